"""Getting a producer's batches to the leaders of their partitions, waiting for the answers.

This file drives `produce_queues` by blocking connections: it finds leaders, makes requests, and
waits. What an answer means for a batch is decided there. It must not know how records are
collected.

Theory: of each partition one batch at a time is on the way, so order needs no further care.
"""

from __future__ import annotations

import select
from dataclasses import dataclass
from functools import partial
from typing import Final

from strandline.client.asking import Asking
from strandline.client.cluster import ClusterClient
from strandline.client.connection import Connection
from strandline.client.coordinator_client import Ask, Outcome
from strandline.client.delivery import Batch, Outcomes
from strandline.client.pending import Pending
from strandline.client.produce_messages import encode_batch, highest_version, produce_request
from strandline.client.produce_policy import ProducePolicy
from strandline.client.produce_queues import ProduceQueues
from strandline.client.producer_identity import ProducerIdentity
from strandline.client.transaction_manager import TransactionManager
from strandline.client.transaction_settings import TransactionSettings
from strandline.errors import ErrorCode, MalformedFrame, ProtocolError
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.init_producer_id import InitProducerIdResponse
from strandline.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from strandline.records.codec import Codec
from strandline.types import BrokerId, Offset, TopicId, TopicPartition

REQUESTS_IN_FLIGHT_MAX: Final = 5
"""Per connection; each carries batches of partitions that the others do not."""
REQUEST_BYTES_MAX: Final = 8 * 1024 * 1024
_WAIT_MS_MAX: Final = 1000


@dataclass(frozen=True, slots=True, eq=False)
class _InFlight:
    """A request on the way, with the batches in it."""

    connection: Connection
    pending: Pending
    batches: dict[TopicPartition, Batch]
    ids: dict[str, TopicId]
    """The topics of the request."""


class Sender:
    """See the module. `outcomes.held_bytes` counts everything not done, open batches included."""

    def __init__(
        self,
        cluster: ClusterClient,
        policy: ProducePolicy,
        *,
        codec: tuple[Codec, int | None],
        append_timeout_ms: int,
        is_idempotent: bool,
        transactions: TransactionSettings | None = None,
    ) -> None:
        """`codec` comes with its level; the timeout is how long a broker may wait for replicas."""
        self.transactions: TransactionManager | None = None
        """With it all batches are sent in transactions."""
        self.outcomes = Outcomes()
        self._cluster = cluster
        self._acks = policy.acks
        self._append_timeout_ms = append_timeout_ms
        identity = ProducerIdentity() if is_idempotent else None
        if transactions is not None:
            self.transactions = TransactionManager(transactions, cluster.router, cluster.random)
            identity = self.transactions.identity
        self._queues: ProduceQueues[Batch] = ProduceQueues(
            policy, cluster.random, partial(encode_batch, codec=codec), self, identity
        )
        if self.transactions is not None:
            self._queues.join_transactions(self.transactions)
        self._in_flight: list[_InFlight] = []
        self._asking = Asking(cluster, self._told)

    @property
    def has_work(self) -> bool:
        """Whether a batch waits or is on the way."""
        return self._queues.has_work

    def enqueue(self, batch: Batch) -> None:
        """Take a batch over; it is sent after those of its partition that came before."""
        self._queues.add(batch)

    def pump(self, *, wait: bool) -> None:
        """Take in what was answered and send what can be; with `wait`, until either happens."""
        self._take_in_answers()
        self._queues.give_up_old(self._now_ms, spares_untried=True)
        sent = self._send_ready()
        self._queues.give_up_old(self._now_ms)  # nothing fails without an attempt
        sent |= self._ask_coordinators()
        if wait and not sent and (self.has_work or self._is_busy):
            self._wait()
            self._take_in_answers()
            self._ask_coordinators()

    @property
    def _now_ms(self) -> int:
        return self._cluster.clock.monotonic_ms()

    # -- Transactions ------------------------------------------------------------------------

    @property
    def _is_busy(self) -> bool:
        return self.transactions is not None and self.transactions.is_busy

    def _ask_coordinators(self) -> bool:
        """Send what the transaction needs; whether there was anything."""
        if self.transactions is None:
            return False
        asks = self.transactions.step(self._now_ms)
        for ask in asks:
            self._asking.send(ask)
        return bool(asks)

    def _told(self, ask: Ask, outcome: Outcome) -> None:
        if self.transactions is not None:
            self.transactions.answered(ask, outcome, self._now_ms)

    # -- Sending -----------------------------------------------------------------------------

    def _send_ready(self) -> bool:
        """Send each sendable first batch of a partition; whether there were any."""
        by_leader: dict[BrokerId, list[Batch]] = {}
        now_ms = self._now_ms
        for queue in self._queues.busy:
            partition = queue.topic_partition
            known = self._cluster.view.topics.get(partition.topic)
            if known is not None:
                self._queues.give_up_former(queue, known.topic_id)
            for batch in self._queues.sendable(queue, now_ms):
                try:
                    leader = self._cluster.partition(partition).leader
                    self._identify()
                    self._queues.prepare(batch)
                except ProtocolError as error:
                    self._queues.settle(batch, error, self._now_ms, was_sent=False)
                    break
                by_leader.setdefault(leader, []).append(batch)
        sent = False
        for leader, batches in by_leader.items():
            sent |= self._send_to(leader, batches)
        return sent

    def _send_to(self, leader: BrokerId, batches: list[Batch]) -> bool:
        sent = False
        while batches:
            request = [batches.pop(0)]
            size = len(request[0].encoded or b"")
            while batches and size + len(batches[0].encoded or b"") <= REQUEST_BYTES_MAX:
                size += len(batches[0].encoded or b"")
                request.append(batches.pop(0))
            try:
                connection = self._cluster.connection_to(leader)
                if connection.in_flight >= REQUESTS_IN_FLIGHT_MAX:
                    return sent
                self._send_request(connection, request)
            except ProtocolError as error:
                for batch in request:
                    self._queues.settle(batch, error, self._now_ms, was_sent=False)
            sent = True
        return sent

    def _send_request(self, connection: Connection, batches: list[Batch]) -> None:
        ids = {
            name: self._cluster.topic(name).topic_id
            for name in {batch.topic_partition.topic for batch in batches}
        }
        request = produce_request(
            [(batch.topic_partition, batch.encoded or b"") for batch in batches],
            ids,
            acks=self._acks,
            timeout_ms=self._append_timeout_ms,
            transactional_id=self._queues.transactional_id,
        )
        highest = highest_version(ids, self._queues.highest_produce)
        if self._acks == 0:
            connection.send_unanswered(ApiKey.PRODUCE, request, highest=highest)
        else:
            patience_ms = self._queues.patience_ms(batches, self._now_ms, self._answer_timeout_ms)
            pending = connection.send(
                ApiKey.PRODUCE, request, highest=highest, timeout_ms=patience_ms
            )
            sent = {batch.topic_partition: batch for batch in batches}
            self._in_flight.append(_InFlight(connection, pending, sent, ids))
        self._queues.sent(batches, ids)

    def _identify(self) -> None:
        """Ask for a producer id, if one is needed. A failure is one of the batch, tried again as
        long as that."""
        identity = self._queues.identity
        if identity is None or not self._queues.needs_identity:
            return
        connection = self._cluster.any_connection()
        identity.learn(
            connection.call(ApiKey.INIT_PRODUCER_ID, InitProducerIdResponse, identity.request)
        )

    # -- Answers -----------------------------------------------------------------------------

    def _wait(self) -> None:
        """Sleep until an answer comes, a retry is due, or an answer is overdue."""
        now_ms = self._now_ms
        waking = [each.pending.deadline for each in self._in_flight]
        waking += [each.pending.deadline for each in self._asking.in_flight]
        wakes_ms = None if self.transactions is None else self.transactions.wake_ms
        waking += [each for each in (self._queues.next_ms(now_ms), wakes_ms) if each is not None]
        wait_ms = max(0, min(min(waking, default=now_ms) - now_ms, _WAIT_MS_MAX))
        poller = select.poll()
        waited_on = [each.connection for each in self._in_flight]
        waited_on += [each.connection for each in self._asking.in_flight]
        watched = [connection for connection in waited_on if not connection.closed]
        if not watched:
            self._cluster.clock.sleep_ms(wait_ms)
            return
        for connection in watched:
            poller.register(connection, select.POLLIN)
        if not poller.poll(wait_ms):
            self._tell_silence()

    def _tell_silence(self) -> None:
        """Tell a person who waits of the oldest request that a broker does not answer."""
        oldest = min(self._in_flight, key=lambda each: each.pending.sent_ms, default=None)
        if oldest is None:
            return
        if self._now_ms - oldest.pending.sent_ms >= _WAIT_MS_MAX:
            self._cluster.on_delay(oldest.connection.silence(oldest.pending))

    @property
    def _answer_timeout_ms(self) -> int:
        """The broker may use up the append timeout before it answers at all."""
        return max(self._cluster.settings.request_timeout_ms, self._append_timeout_ms + 5000)

    def _take_in_answers(self) -> None:
        now_ms = self._now_ms
        self._asking.take_arrived(now_ms)
        for request in list(self._in_flight):
            pending = request.pending
            if not pending.is_done:
                request.connection.take_arrived()
            if pending.is_done or now_ms > pending.deadline:
                self._in_flight.remove(request)
                self._take_in(request)

    def _take_in(self, request: _InFlight) -> None:
        try:
            response = request.connection.result(request.pending, ProduceResponse)
        except (ProtocolError, MalformedFrame) as failure:
            error = (
                failure
                if isinstance(failure, ProtocolError)
                else ProtocolError(ErrorCode.NETWORK_EXCEPTION, str(failure))
            )
            self._queues.lost(request.batches.values(), error, self._now_ms, was_sent=True)
            return
        self._queues.answered(request.batches, request.ids, response, self._now_ms)

    # -- What the queues tell (`ProduceWatcher`) ---------------------------------------------

    def answered(
        self,
        batch: Batch,
        topic_id: TopicId,
        answer: PartitionProduceResponse,
        response: ProduceResponse,
    ) -> None:
        """See `ProduceWatcher`."""
        self._cluster.hint(
            batch.topic_partition, topic_id, answer.current_leader, response.node_endpoints
        )

    def failed(self, batch: Batch, error: ProtocolError) -> None:
        """See `ProduceWatcher`. What the next attempt mends is nothing that a person waits for: a
        transaction that begins while its predecessor is being ended, for example."""
        if batch.failed_ms is None:
            batch.failed_ms = self._now_ms
        if self._now_ms - batch.failed_ms >= _WAIT_MS_MAX:
            self._cluster.on_delay(error)
        self._cluster.forget([batch.topic_partition.topic])

    def number_refused(self, batch: Batch, error: ProtocolError) -> None:
        """See `ProduceWatcher`: the queues number anew, which is all that there is to do."""

    def finished(self, batch: Batch, base_offset: Offset, error: ProtocolError | None) -> None:
        """See `ProduceWatcher`."""
        del base_offset
        self.outcomes.add(batch, error)
