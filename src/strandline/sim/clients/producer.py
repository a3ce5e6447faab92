"""Producers: values into partitions, and what became of each of them.

`client producer p1 topic=t partition=0,1 acks=all idempotent=yes in-flight=5 every=50ms`

The outcome of an attempt is definite or unknown (I-41). An error that a broker only gives before it
appends is definite; a broken connection, a time-out, and errors that may also come after an append
are not. What is known is written into the history: `Sent` before anybody could do anything,
`Acknowledged`, `Refused`; nothing where it is unknown.

A plain producer does not repeat what may have been written (it could be there twice): it goes on
with the next value. From then on it counts as another producer in the history, since a late request
may come behind those that were sent after it (F-29). An idempotent one repeats, byte for byte and
in order, until it knows (KIP-98); `idempotent.py` has that part.
"""

from __future__ import annotations

from functools import partial
from itertools import zip_longest
from typing import ClassVar, Final

from strandline.client.backoff import ExponentialBackoff
from strandline.client.channel import RequestFailed
from strandline.client.partition_queue import PartitionQueue
from strandline.client.produce_messages import answers_by_partition, produce_request
from strandline.errors import RETRIABLE, ErrorCode
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from strandline.protocol.produce_errors import is_definite
from strandline.sim.clients.batches import Batch, Recipe, encode, offsets_of
from strandline.sim.clients.client import NO_TOPIC_US, PATIENCE_US, SimClient, place_of
from strandline.sim.clients.client_options import ClientOptions
from strandline.sim.clients.connection import Connection, Outcome
from strandline.sim.clients.world import ClientWorld
from strandline.sim.history.operations import Acknowledged, Erased, Refused, Sent, StartSeen
from strandline.sim.plan import ClientSpec
from strandline.types import BrokerId, TopicId, TopicPartition

APPEND_TIMEOUT_MS: Final = 3_000
"""How long a broker may wait for the replicas; less than a request may take."""
_BACKLOG_MAX: Final = 2
"""Batches per partition that wait behind those on their way; then no new ones are made."""
_ACKS: Final = {"all": -1, "1": 1, "0": 0}


class RecordedQueue(PartitionQueue[Batch]):
    """The batches of one partition, and what the history is told of them."""

    def __init__(
        self,
        at: TopicPartition,
        backoff: ExponentialBackoff,
        in_flight_max: int,
        writer: str,
        *,
        is_numbered: bool,
    ) -> None:
        super().__init__(at, backoff, in_flight_max, is_numbered=is_numbered)
        self.writer = writer
        """Under which name the history orders what is sent to this partition."""
        self.connection: Connection | None = None
        """Over which the last batch was sent."""
        self.start: StartSeen | None = None
        """Where the log began, as the last answer said."""
        self.written_to: tuple[TopicId | None, int] = (None, 0)
        """The offset behind what was acknowledged last, with the topic's id."""


class Producer(SimClient):
    """See the module; this is the plain one."""

    kind: ClassVar[str] = "producer"
    is_idempotent: ClassVar[bool] = False
    may_overtake: ClassVar[bool] = False
    """Whether batches may go to a new leader while others wait for the old one's answer."""

    def __init__(self, world: ClientWorld, spec: ClientSpec, options: ClientOptions) -> None:
        super().__init__(world, spec, options)
        self.acks = _ACKS[options.one_of("acks", ("all", "1", "0"))]
        self.in_flight_max = options.number("in-flight", 1, least=1)
        self.every_us = options.time_us("every", "100ms")
        self.recipe = Recipe(options, self.random, world.streams(f"lies of {self.name}"), self.name)
        self.queues = {
            at: RecordedQueue(
                at,
                ExponentialBackoff(self.random),
                self.in_flight_max,
                self.name,
                is_numbered=self.is_idempotent,
            )
            for at in options.partitions()
        }
        self.cluster.topics = [options.text("topic")]
        self.cluster.changed = self.pump
        self.produce_version = self.cluster.versions.of(ApiKey.PRODUCE)
        self._writers = 0

    # -- life --------------------------------------------------------------------------------

    def start(self) -> None:
        """See `SimClient`."""
        self.cluster.stale()
        self.after(self.random.randrange(self.every_us), self._tick)

    def finishing(self) -> None:
        """See `SimClient`."""
        self.pump()

    def _tick(self) -> None:
        """Time for new values."""
        if not self.is_finishing:
            self.cluster.keep_fresh()
            for queue in self.queues.values():
                if len(queue.batches) < self.in_flight_max + _BACKLOG_MAX:
                    batch = self.recipe.batch(
                        queue.topic_partition, self.now_us, produce_version=self.produce_version
                    )
                    queue.add(batch)
        self.pump()
        self.after(self.about(self.every_us), self._tick)

    def maybe_done(self) -> None:
        """See `SimClient`."""
        if any(queue.batches for queue in self.queues.values()):
            if self.now_us < self.give_up_us and not self._is_in_vain():
                return
            self._give_up()
        self.done()

    def _is_in_vain(self) -> bool:
        """Whether it is clear by now that there is no such topic."""
        is_late = self.now_us >= self.give_up_us - PATIENCE_US + NO_TOPIC_US
        return is_late and all(
            self.cluster.view(queue.topic_partition.topic) is None for queue in self.queues.values()
        )

    def _give_up(self) -> None:
        """Patience is over: that is nobody's fault only if there is no such topic any more."""
        for queue in self.queues.values():
            if queue.batches and self.cluster.view(queue.topic_partition.topic) is not None:
                self.found(
                    "I-50",
                    f"{self.name} could not bring {queue.batches[0].values[0]!r} through, after "
                    f"{queue.batches[0].attempts} attempts",
                    queue.topic_partition,
                )

    # -- sending -----------------------------------------------------------------------------

    def pump(self) -> None:
        """Send what can be sent."""
        if self.is_done or not self.may_send():
            return
        wanted: dict[BrokerId, list[Batch]] = {}
        for queue in self.queues.values():
            for batch in self._sendable(queue):
                leader = self.cluster.leader(queue.topic_partition)
                if leader is None:
                    break
                wanted.setdefault(leader.broker_id, []).append(batch)
        for broker_id, batches in wanted.items():
            connection = self.cluster.connection(broker_id)
            if connection is None:
                self.wake_at(self.cluster.closed_until_us(broker_id))
                continue
            batches = [each for each in batches if self._is_in_order(each, connection)]
            # One batch per partition and request: a broker takes no more.
            while batches:
                request: dict[TopicPartition, Batch] = {}
                for batch in batches:
                    request.setdefault(batch.at, batch)
                batches = [each for each in batches if request[each.at] is not each]
                self._send(connection, list(request.values()))

    def may_send(self) -> bool:
        """Whether this producer is in a state to send anything."""
        return True

    def _sendable(self, queue: RecordedQueue) -> list[Batch]:
        """The batches of a queue that may go now, in order."""
        if queue.not_before_ms > self.now_ms:
            self.wake_at(1000 * queue.not_before_ms)
            return []
        if not self._is_of_this_topic(queue):
            return []
        return queue.sendable(self.now_ms)

    def _is_of_this_topic(self, queue: RecordedQueue) -> bool:
        """Give up what was meant for a topic that has been made anew since (F-68)."""
        topic_id = self.cluster.topic_id(queue.topic_partition.topic)
        stale = [
            batch
            for batch in queue.batches
            if batch.topic_id not in (None, topic_id) and not queue.is_in_flight(batch)
        ]
        for batch in stale:
            queue.is_sequence_confirmed = False
            self.counters["batch for a former topic"] += 1
            self.drop(queue, batch)
        return self.cluster.view(queue.topic_partition.topic) is not None

    def _is_in_order(self, batch: Batch, connection: Connection) -> bool:
        """Between connections there is no order: what was sent before must be decided first, or
        else (acks=0) nothing can be said of the order any more."""
        queue = self.queues[batch.at]
        if queue.connection is not connection:
            if queue.in_flight and not self.may_overtake:
                return False
            if self.acks == 0:
                self._rename(queue)
            queue.connection = connection
        return True

    def _send(self, connection: Connection, batches: list[Batch]) -> None:
        for batch in batches:
            self._prepare(batch)
        ids = {batch.at.topic: self.cluster.topic_id(batch.at.topic) for batch in batches}
        request = produce_request(
            [(batch.at, batch.encoded) for batch in batches],
            ids,
            acks=self.acks,
            timeout_ms=APPEND_TIMEOUT_MS,
        )
        self.counters["produce"] += 1
        if self.acks == 0:
            connection.tell(ApiKey.PRODUCE, self.produce_version, request)
            for batch in batches:
                self.queues[batch.at].remove(batch)
            return
        for batch in batches:
            self.queues[batch.at].sent(batch)
            if self.acks == 1:
                batch.led_by = self.world.leadership(connection.broker_id, batch.at)
        self.cluster.ask(connection, ApiKey.PRODUCE, request, partial(self._answered, batches, ids))

    def _prepare(self, batch: Batch) -> None:
        """The first attempt fixes what is sent, and enters it into the history."""
        batch.attempts += 1
        batch.was_next = self.queues[batch.at].batches[0] is batch
        if batch.attempts > 1:
            self.counters["batch sent again"] += 1
        if not batch.encoded:
            self.encode(batch)
        if batch.topic_id is None:
            batch.topic_id = self.cluster.topic_id(batch.at.topic)
            batch.place = place_of(batch.at, batch.topic_id)
            writer = self.queues[batch.at].writer
            history, values = self.world.history, batch.values
            for value, record in zip_longest(values, batch.records):
                if value is None:
                    history.append(Erased(batch.place, record.key))
                else:
                    history.append(Sent(writer, batch.place, value, record.key))

    def encode(self, batch: Batch) -> None:
        """Make a batch's bytes."""
        encode(batch, None)

    # -- outcomes ----------------------------------------------------------------------------

    def _answered(self, batches: list[Batch], ids: dict[str, TopicId], outcome: Outcome) -> None:
        for batch in batches:
            self.queues[batch.at].answered(batch)
        if isinstance(outcome, RequestFailed):
            self.cluster.stale()
            for batch in batches:
                if outcome.was_sent:
                    self.lost(self.queues[batch.at], batch)
                else:
                    self.retry(self.queues[batch.at], batch)
        else:
            self._take(batches, ids, outcome)
        self.pump()

    def _take(
        self, batches: list[Batch], ids: dict[str, TopicId], response: ProduceResponse
    ) -> None:
        answers = dict(answers_by_partition(response, ids))
        for batch in batches:
            answer = answers.get(batch.at)
            if answer is None:
                self.found("I-50", f"A produce answer to {self.name} lacks a partition", batch.at)
                self.lost(self.queues[batch.at], batch)
                continue
            self.cluster.hint(batch.at, answer.current_leader, response.node_endpoints)
            self._take_one(self.queues[batch.at], batch, answer)

    def _take_one(
        self, queue: RecordedQueue, batch: Batch, answer: PartitionProduceResponse
    ) -> None:
        code = ErrorCode(answer.error_code)
        start = StartSeen(self.name, batch.place, answer.log_start_offset)
        if start.offset > 0 and start != queue.start:
            queue.start = start
            self.world.history.append(start)
        if code is ErrorCode.NONE:
            self.acknowledged(queue, batch, offsets_of(batch, answer))
            return
        self.counters[f"produce {code.name}"] += 1
        if code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self.acknowledged(queue, batch, [None] * len(batch.values))
            return
        if code in RETRIABLE:
            self.cluster.stale()
        if is_definite(code, self.acks):
            self.refused(queue, batch, code)
        else:
            self.unknown(queue, batch, code)

    def acknowledged(self, queue: RecordedQueue, batch: Batch, offsets: list[int | None]) -> None:
        """The broker said that it is written."""
        queue.worked()
        queue.remove(batch)
        epoch = self._written_in(batch)
        self.world.history.extend(
            Acknowledged(batch.place, value, offset, epoch)
            for value, offset in zip(batch.values, offsets, strict=True)
        )

    def _written_in(self, batch: Batch) -> int:
        """In which epoch a leader has written what it acknowledged alone: in the one in which it
        led before and after. -1 if that is not certain, and for all that more than one vouch for.
        """
        led = batch.led_by
        if led is None or led != self.world.leadership(led.broker_id, batch.at):
            return -1
        return led.leader_epoch

    def refused(self, queue: RecordedQueue, batch: Batch, code: ErrorCode) -> None:
        """The broker said that it is not written."""
        if code in RETRIABLE:
            self.pause(queue)
        self.forget(queue, batch)

    def unknown(self, queue: RecordedQueue, batch: Batch, code: ErrorCode) -> None:
        """The broker said something after which it may be written or not."""
        self.counters[f"unknown after {code.name}"] += 1
        self.pause(queue)
        self.lost(queue, batch)

    def lost(self, queue: RecordedQueue, batch: Batch) -> None:
        """There is no answer, although the broker may have got it."""
        batch.maybe_written = True
        self.drop(queue, batch)

    def retry(self, queue: RecordedQueue, batch: Batch) -> None:
        """Nobody got it: it stays first in its queue."""
        del batch
        self.pause(queue)

    # -- parts of these ----------------------------------------------------------------------

    def pause(self, queue: RecordedQueue) -> None:
        """Send nothing more to this partition for a while."""
        queue.pause(self.now_ms)
        self.wake_at(1000 * queue.not_before_ms)

    def forget(self, queue: RecordedQueue, batch: Batch) -> None:
        """It is not in the log and never will be: so says the history from now on."""
        queue.remove(batch)
        self.world.history.extend(Refused(batch.place, value) for value in batch.values)

    def drop(self, queue: RecordedQueue, batch: Batch) -> None:
        """Send it no more. If it may be written, what follows has no order with it any more."""
        if not batch.maybe_written:
            self.forget(queue, batch)
            return
        queue.remove(batch)
        self.counters["outcome unknown"] += 1
        self._rename(queue)

    def _rename(self, queue: RecordedQueue) -> None:
        self._writers += 1
        queue.writer = f"{self.name}/{self._writers}"
