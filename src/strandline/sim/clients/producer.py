"""Producers: they send values to partitions and record the outcome of each of them.

`client producer p1 topic=t partition=0,1 acks=all idempotent=yes in-flight=5 every=50ms`

What an answer means, what is sent again and how it is numbered is decided as for users, by
`client.produce_queues`; this file drives it on the simulated network. What is known is written into
the history: `Sent` before a broker could have it, `Acknowledged`, `Refused`; nothing where it is
unknown (I-41).

A plain producer does not repeat what may have been written (it could be there twice): it goes on
with the next value. From then on it counts as another producer in the history, since a late request
may come behind those that were sent after it (F-29). An idempotent one repeats, byte for byte and
in order, until it knows (KIP-98).
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar, Final

from strandline.client.backoff import ExponentialBackoff
from strandline.client.channel import RequestFailed
from strandline.client.partition_queue import PartitionQueue
from strandline.client.produce_messages import produce_request
from strandline.client.produce_policy import ProducePolicy
from strandline.client.produce_queues import ProduceQueues
from strandline.client.producer_identity import ProducerIdentity
from strandline.errors import RETRIABLE, ErrorCode, ProtocolError
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.init_producer_id import InitProducerIdResponse
from strandline.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from strandline.sim.clients.batches import (
    ProducedPartition,
    Recipe,
    RecordedBatch,
    encode,
    offsets_of,
    sends_of,
)
from strandline.sim.clients.client import NO_TOPIC_US, PATIENCE_US, SimClient, place_of
from strandline.sim.clients.client_options import ClientOptions
from strandline.sim.clients.connection import Connection, Outcome
from strandline.sim.clients.world import ClientWorld
from strandline.sim.history.operations import Acknowledged, Refused, StartSeen
from strandline.sim.plan import ClientSpec
from strandline.sim.scenarios.script import BadScript
from strandline.types import NO_OFFSET, BrokerId, Offset, TopicId, TopicPartition

APPEND_TIMEOUT_MS: Final = 3_000
"""How long a broker may wait for the replicas; less than a request may take."""
IN_FLIGHT_MAX: Final = 5
"""As many batches of an idempotent producer a broker knows again."""
_BACKLOG_MAX: Final = 2
"""Batches per partition that wait behind those on their way; then no new ones are made."""
_PATIENT_MS: Final = 10**9
"""Longer than any run: that something does not come through is for the client's `finish` to say."""
_ACKS: Final = {"all": -1, "1": 1, "0": 0}


class Producer(SimClient):
    """See the module. It is also the `ProduceWatcher` of its queues."""

    kind: ClassVar[str] = "producer"

    def __init__(self, world: ClientWorld, spec: ClientSpec, options: ClientOptions) -> None:
        super().__init__(world, spec, options)
        self.acks = _ACKS[options.one_of("acks", ("all", "1", "0"))]
        self.in_flight_max = options.number("in-flight", 1, least=1)
        self.every_us = options.time_us("every", "100ms")
        self.recipe = Recipe(options, self.random, world.streams(f"lies of {self.name}"), self.name)
        self.is_idempotent = options.flag("idempotent")
        if self.is_idempotent and (self.acks != -1 or self.in_flight_max > IN_FLIGHT_MAX):
            raise BadScript(f"'{spec}' must have acks=all and at most {IN_FLIGHT_MAX} in flight.")
        policy = ProducePolicy(
            acks=self.acks,
            repeats=self.is_idempotent,
            batches_in_flight_max=self.in_flight_max,
            delivery_timeout_ms=_PATIENT_MS,
            topic_wait_ms=_PATIENT_MS,
        )
        self.identity = ProducerIdentity() if self.is_idempotent else None
        self.queues: ProduceQueues[RecordedBatch] = ProduceQueues(
            policy, self.random, encode, self, self.identity
        )
        self.tracks = {at: ProducedPartition(self.name) for at in options.partitions()}
        self.cluster.topics = [options.text("topic")]
        self.cluster.changed = self.pump
        self.produce_version = self.cluster.versions.of(ApiKey.PRODUCE)
        self._writers = 0
        self._is_identifying = False
        self._identifying = ExponentialBackoff(self.random)

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
            for at in self.tracks:
                if len(self.queues.queue(at).batches) < self.in_flight_max + _BACKLOG_MAX:
                    batch = self.recipe.batch(at, self.now_us, produce_version=self.produce_version)
                    self.queues.add(batch)
        self.pump()
        self.after(self.about(self.every_us), self._tick)

    def maybe_done(self) -> None:
        """See `SimClient`."""
        if self.queues.has_work:
            if self.now_us < self.give_up_us and not self._is_in_vain():
                return
            self._give_up()
        self.done()

    def _is_in_vain(self) -> bool:
        """Whether it is clear by now that there is no such topic."""
        is_late = self.now_us >= self.give_up_us - PATIENCE_US + NO_TOPIC_US
        return is_late and all(self.cluster.view(at.topic) is None for at in self.tracks)

    def _give_up(self) -> None:
        """Time out: report a violation for pending batches unless their topic was deleted."""
        for queue in self.queues.busy:
            first = queue.batches[0]
            if self.cluster.view(queue.topic_partition.topic) is not None:
                self.found(
                    "I-50",
                    f"{self.name} could not bring {first.values[0]!r} through, after "
                    f"{first.attempts} attempts",
                    queue.topic_partition,
                )

    # -- sending -----------------------------------------------------------------------------

    def pump(self) -> None:
        """Send what can be sent."""
        if self.is_done:
            return
        for queue in self.queues.busy:
            topic_id = self.cluster.topic_id(queue.topic_partition.topic)
            self.queues.give_up_former(queue, topic_id)
        if self.queues.needs_identity:
            self._identify()
            return
        wanted: dict[BrokerId, list[RecordedBatch]] = {}
        for queue in self.queues.busy:
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
                request: dict[TopicPartition, RecordedBatch] = {}
                for batch in batches:
                    request.setdefault(batch.topic_partition, batch)
                batches = [each for each in batches if request[each.topic_partition] is not each]
                self._send(connection, request)

    def _sendable(self, queue: PartitionQueue[RecordedBatch]) -> list[RecordedBatch]:
        """The batches of a queue that may go now, in order."""
        if queue.not_before_ms > self.now_ms:
            self.wake_at(1000 * queue.not_before_ms)
            return []
        is_known = self.cluster.view(queue.topic_partition.topic) is not None
        return queue.sendable(self.now_ms) if is_known else []

    def _is_in_order(self, batch: RecordedBatch, connection: Connection) -> bool:
        """Between connections there is no order: what was sent before must be decided first, or
        else (acks=0) nothing can be said of the order any more. Of numbered batches brokers know
        it."""
        track = self.tracks[batch.topic_partition]
        if track.connection is not connection:
            if self.queues.queue(batch.topic_partition).in_flight and not self.is_idempotent:
                return False
            if self.acks == 0:
                self._rename(track)
            track.connection = connection
        return True

    def _send(self, connection: Connection, batches: dict[TopicPartition, RecordedBatch]) -> None:
        for batch in batches.values():
            self._note(batch)
        ids = {at.topic: self.cluster.topic_id(at.topic) for at in batches}
        request = produce_request(
            [(at, self.queues.prepare(batch)) for at, batch in batches.items()],
            ids,
            acks=self.acks,
            timeout_ms=APPEND_TIMEOUT_MS,
        )
        self.counters["produce"] += 1
        self.queues.sent(batches.values(), ids)
        if self.acks == 0:
            connection.tell(ApiKey.PRODUCE, self.produce_version, request)
            return
        for at, batch in batches.items():
            batch.led_by = self.world.leadership(connection.broker_id, at)
            batch.log_start = self.world.log_start(at)
            batch.newest_epoch = self.world.leader_epoch(at)
        self.cluster.ask(connection, ApiKey.PRODUCE, request, partial(self._told, batches, ids))

    def _note(self, batch: RecordedBatch) -> None:
        """The first attempt enters a batch into the history."""
        batch.attempts += 1
        if batch.attempts > 1:
            self.counters["batch sent again"] += 1
        if batch.place:
            return
        at = batch.topic_partition
        batch.place = place_of(at, self.cluster.topic_id(at.topic))
        self.world.history.extend(sends_of(batch, self.tracks[at].writer))

    def _identify(self) -> None:
        """Ask for a producer id."""
        if self._is_identifying or self.identity is None:
            return
        self._is_identifying = True
        connection = self.cluster.any_connection()
        if connection is None:
            self.after(1000 * self._identifying.next_ms(), self._identify_again)
            return
        self.cluster.ask(
            connection, ApiKey.INIT_PRODUCER_ID, self.identity.request, self._identified
        )

    def _identify_again(self) -> None:
        self._is_identifying = False
        self.pump()

    def _identified(self, outcome: Outcome) -> None:
        if not isinstance(outcome, RequestFailed) and self._is_learned(outcome):
            self._identifying.reset()
            self._identify_again()
        else:
            self.after(1000 * self._identifying.next_ms(), self._identify_again)

    def _is_learned(self, response: InitProducerIdResponse) -> bool:
        if self.identity is None:
            return False
        try:
            self.identity.learn(response)
        except ProtocolError as error:
            self.counters[f"identity {error.code.name}"] += 1
            return False
        return True

    # -- what the queues tell ----------------------------------------------------------------

    def _told(
        self,
        batches: dict[TopicPartition, RecordedBatch],
        ids: dict[str, TopicId],
        outcome: Outcome,
    ) -> None:
        if isinstance(outcome, RequestFailed):
            self.cluster.stale()
            error = ProtocolError(ErrorCode.NETWORK_EXCEPTION, outcome.reason)
            self.queues.lost(batches.values(), error, self.now_ms, was_sent=outcome.was_sent)
        else:
            for batch in batches.values():
                batch.is_answered = False
            self.queues.answered(batches, ids, outcome, self.now_ms)
            for batch in batches.values():
                if not batch.is_answered:
                    self.found(
                        "I-50",
                        f"A produce answer to {self.name} lacks a partition",
                        batch.topic_partition,
                    )
        self.pump()

    def answered(
        self,
        batch: RecordedBatch,
        topic_id: TopicId,
        answer: PartitionProduceResponse,
        response: ProduceResponse,
    ) -> None:
        """See `ProduceWatcher`."""
        at = batch.topic_partition
        batch.is_answered = True
        self.cluster.hint(at, topic_id, answer.current_leader, response.node_endpoints)
        code = ErrorCode(answer.error_code)
        track = self.tracks[at]
        start = StartSeen(self.name, batch.place, answer.log_start_offset)
        if start.offset > 0 and start != track.start:
            track.start = start
            self.world.history.append(start)
        if code is not ErrorCode.NONE:
            self.counters[f"produce {code.name}"] += 1
        if code in RETRIABLE:
            self.cluster.stale()

    def failed(self, batch: RecordedBatch, error: ProtocolError) -> None:
        """See `ProduceWatcher`."""
        if batch.maybe_written:
            self.counters[f"unknown after {error.code.name}"] += 1
        self.cluster.stale()
        self.wake_at(1000 * self.queues.queue(batch.topic_partition).not_before_ms)

    def finished(
        self, batch: RecordedBatch, base_offset: Offset, error: ProtocolError | None
    ) -> None:
        """See `ProduceWatcher`."""
        if self.acks == 0:
            return
        track = self.tracks[batch.topic_partition]
        if error is None:
            self._acknowledged(track, batch, base_offset)
            return
        if error.code is ErrorCode.UNKNOWN_TOPIC_ID:
            self.counters["batch for a former topic"] += 1
        if batch.maybe_written:
            # What follows has no order with it any more.
            self.counters["outcome unknown"] += 1
            self.counters[f"unknown after {error.code.name}"] += 1
            self._rename(track)
        elif batch.place:
            # It is not in the log and never will be: so says the history from now on.
            self.world.history.extend(Refused(batch.place, value) for value in batch.values)

    def _acknowledged(
        self, track: ProducedPartition, batch: RecordedBatch, base_offset: Offset
    ) -> None:
        """The broker said that it is written."""
        if batch.identity is not None and base_offset != NO_OFFSET:
            track.written[batch.topic_id, batch.identity] = base_offset + len(batch.records)
        if self.is_idempotent and batch.maybe_written:
            self.counters["retry acknowledged"] += 1
        epoch = self._written_in(batch)
        self.world.history.extend(
            Acknowledged(batch.place, value, offset, epoch)
            for value, offset in zip(batch.values, offsets_of(batch, base_offset), strict=True)
        )

    def _written_in(self, batch: RecordedBatch) -> int:
        """In which epoch a leader has written what it acknowledged alone: in the one in which it
        led before and after. -1 if that is not certain, and for all that more than one vouch for.
        """
        led = batch.led_by
        at = batch.topic_partition
        if self.acks != 1 or led is None or led != self.world.leadership(led.broker_id, at):
            return -1
        return led.leader_epoch

    def number_refused(self, batch: RecordedBatch, error: ProtocolError) -> None:
        """I-54: librdkafka ends here. A broker may only have lost count where records were lost,
        which the judge of the run knows, or where what this batch repeats is deleted (KIP-360), or
        compacted away: a start reads from the log what it must know again. One that was deposed
        before it was asked, and does not know it yet, lacks what its successor has acknowledged.
        """
        self.counters["number refused"] += 1
        at = batch.topic_partition
        if batch.led_by is not None and batch.led_by.leader_epoch < batch.newest_epoch:
            self.counters["number refused by a deposed leader"] += 1
            return
        if batch.maybe_written and self.world.is_compacted(at):
            self.counters["lost count behind a compaction"] += 1
            return
        number = 0 if batch.identity is None else batch.identity.base_sequence
        # A leader that knows nothing of a producer may have written a later batch before this one,
        # or an earlier one again.
        written_to = self.tracks[at].written_before(batch)
        if max(self.world.log_start(at), batch.log_start) >= max(written_to, 1):
            self.counters["lost count behind a deletion"] += 1
            return
        self.found(
            "I-54",
            f"{self.name} was refused with {error.code.name} when it sent {batch.values[0]!r} with "
            f"the sequence number {number}, attempt {batch.attempts}; everything before it was "
            f"acknowledged, up to offset {written_to}",
            at,
        )

    def _rename(self, track: ProducedPartition) -> None:
        self._writers += 1
        track.writer = f"{self.name}/{self._writers}"
