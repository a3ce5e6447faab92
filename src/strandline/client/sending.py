"""Getting a producer's batches to the leaders of their partitions, in order.

This file knows produce requests, retries and what each error means for a batch. It must not know
how records are collected.

Theory: of each partition one batch at a time is on the way, so order needs no further care. A batch
that fails in a way that a retry may mend stays first in its partition's queue and is sent again,
byte for byte, until the delivery timeout.
"""

from __future__ import annotations

import select
from dataclasses import dataclass
from typing import Final

from strandline.client.backoff import ExponentialBackoff
from strandline.client.cluster import ClusterClient
from strandline.client.connection import Connection, Pending
from strandline.client.delivery import Batch, FailedRecords, FlushResult
from strandline.client.partition_queue import PartitionQueue
from strandline.client.produce_messages import (
    answers_by_partition,
    highest_version,
    produce_request,
)
from strandline.client.producer_identity import IdentitySource
from strandline.client.refusal import refusal
from strandline.client.retry import is_worth_waiting_for
from strandline.errors import ErrorCode, MalformedFrame, ProtocolError
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from strandline.protocol.produce_errors import is_definite
from strandline.records.builder import BatchBuilder, BatchOptions
from strandline.records.codec import Codec
from strandline.types import (
    NO_OFFSET,
    BrokerId,
    Offset,
    TopicId,
    TopicPartition,
)

REQUESTS_IN_FLIGHT_MAX: Final = 5
"""Per connection; each carries batches of partitions that the others do not."""
REQUEST_BYTES_MAX: Final = 8 * 1024 * 1024
RENEWALS_MAX: Final = 3
_BATCHES_IN_FLIGHT_MAX: Final = 1
"""Per partition, see the module."""
_WAIT_MS_MAX: Final = 1000

_IDENTITY_LOST: Final = frozenset(
    {
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)


@dataclass(frozen=True, slots=True, eq=False)
class _InFlight:
    """A request on the way, with the batches in it."""

    connection: Connection
    pending: Pending
    batches: dict[TopicPartition, Batch]
    ids: dict[str, TopicId]
    """The topics of the request."""


class Sender:
    """See the module. `held_bytes` counts everything not done, open batches included."""

    def __init__(
        self,
        cluster: ClusterClient,
        *,
        acks: int,
        codec: tuple[Codec, int | None],
        timeouts_ms: tuple[int, int],
        is_idempotent: bool,
    ) -> None:
        """`codec` comes with its level; the timeouts are those of an append and a delivery."""
        self.held_bytes = 0
        self._cluster = cluster
        self._acks = acks
        self._codec, self._level = codec
        self._append_timeout_ms, self._delivery_timeout_ms = timeouts_ms
        self._identities = IdentitySource(cluster) if is_idempotent else None
        self._queues: dict[TopicPartition, PartitionQueue[Batch]] = {}
        self._in_flight: list[_InFlight] = []
        self._delivered = 0
        self._failed: dict[tuple[TopicPartition, ErrorCode], FailedRecords] = {}

    @property
    def has_work(self) -> bool:
        """Whether a batch waits or is on the way."""
        return bool(self._queues)

    def enqueue(self, batch: Batch) -> None:
        """Take a batch over; it is sent after those of its partition that came before."""
        partition = batch.topic_partition
        queue = self._queues.get(partition)
        if queue is None:
            settings = self._cluster.settings
            queue = self._queues[partition] = PartitionQueue(
                partition,
                ExponentialBackoff(
                    self._cluster.random, settings.retry_backoff_ms, settings.retry_backoff_max_ms
                ),
                _BATCHES_IN_FLIGHT_MAX,
                is_numbered=self._identities is not None,
            )
        queue.add(batch)

    def take_outcomes(self) -> FlushResult:
        """What became of records since this was asked last."""
        result = FlushResult(self._delivered, tuple(self._failed.values()))
        self._delivered, self._failed = 0, {}
        return result

    def pump(self, *, wait: bool) -> None:
        """Take in what was answered and send what can be; with `wait`, until either happens."""
        self._take_in_answers()
        self._give_up_old()
        sent = self._send_ready()
        if wait and not sent and self._queues:
            self._wait()
            self._take_in_answers()

    # -- Sending -----------------------------------------------------------------------------

    def _send_ready(self) -> bool:
        """Send each sendable first batch of a partition; whether there were any."""
        by_leader: dict[BrokerId, list[Batch]] = {}
        now_ms = self._cluster.clock.monotonic_ms()
        for partition, queue in list(self._queues.items()):
            for batch in queue.sendable(now_ms):
                try:
                    leader = self._cluster.partition(partition).leader
                    self._encode(batch)
                except ProtocolError as error:
                    self._settle(batch, error)
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
                    self._settle(batch, error)
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
        )
        highest = highest_version(ids)
        if self._acks == 0:
            connection.send_unanswered(ApiKey.PRODUCE, request, highest=highest)
            for batch in batches:
                self._finish(batch, NO_OFFSET, None)
            return
        sent = {batch.topic_partition: batch for batch in batches}
        pending = connection.send(
            ApiKey.PRODUCE, request, highest=highest, timeout_ms=self._answer_timeout_ms
        )
        for partition, batch in sent.items():
            self._queues[partition].sent(batch)
        self._in_flight.append(_InFlight(connection, pending, sent, ids))

    def _encode(self, batch: Batch) -> None:
        if batch.encoded is not None:
            return
        options = BatchOptions(codec=self._codec, level=self._level)
        if self._identities is not None:
            identity = self._identities.next_for(batch.topic_partition)
            batch.identity = identity
            options = BatchOptions(
                codec=self._codec,
                level=self._level,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                base_sequence=identity.base_sequence,
            )
        builder = BatchBuilder(options)
        for record in batch.records:
            builder.append(record)
        batch.encoded = builder.build()

    # -- Answers -----------------------------------------------------------------------------

    def _wait(self) -> None:
        """Sleep until an answer comes, a retry is due, or an answer is overdue."""
        now_ms = self._cluster.clock.monotonic_ms()
        pauses = [queue.not_before_ms for queue in self._queues.values()]
        waking = [at_ms for at_ms in pauses if at_ms > now_ms]
        waking += [each.pending.deadline for each in self._in_flight]
        wait_ms = max(0, min(min(waking, default=now_ms) - now_ms, _WAIT_MS_MAX))
        poller = select.poll()
        watched = [each.connection for each in self._in_flight if not each.connection.closed]
        if not watched:
            self._cluster.clock.sleep_ms(wait_ms)
            return
        for connection in watched:
            poller.register(connection, select.POLLIN)
        if not poller.poll(wait_ms):
            self._tell_silence()

    def _tell_silence(self) -> None:
        """Tell a person who waits of the oldest request that a broker does not answer."""
        oldest = min(self._in_flight, key=lambda each: each.pending.sent_ms)
        if self._cluster.clock.monotonic_ms() - oldest.pending.sent_ms >= _WAIT_MS_MAX:
            self._cluster.on_delay(oldest.connection.silence(oldest.pending))

    @property
    def _answer_timeout_ms(self) -> int:
        """The broker may use up the append timeout before it answers at all."""
        return max(self._cluster.settings.request_timeout_ms, self._append_timeout_ms + 5000)

    def _take_in_answers(self) -> None:
        now_ms = self._cluster.clock.monotonic_ms()
        for request in list(self._in_flight):
            pending = request.pending
            if not pending.is_done:
                request.connection.take_arrived()
            if pending.is_done or now_ms > pending.deadline:
                self._in_flight.remove(request)
                for partition, batch in request.batches.items():
                    self._queues[partition].answered(batch)
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
            for batch in request.batches.values():
                batch.maybe_written = True
                self._settle(batch, error)
            return
        unanswered = dict(request.batches)
        for partition, answer in answers_by_partition(response, request.ids):
            found = unanswered.pop(partition, None)
            if found is not None:
                self._cluster.hint(partition, answer.current_leader, response.node_endpoints)
                self._take_in_one(found, answer)
        for batch in unanswered.values():
            batch.maybe_written = True
            self._settle(
                batch, ProtocolError(ErrorCode.NETWORK_EXCEPTION, "The broker's answer lacks it.")
            )

    def _take_in_one(self, batch: Batch, answer: PartitionProduceResponse) -> None:
        if answer.error_code == ErrorCode.NONE:
            self._finish(batch, Offset(answer.base_offset), None)
        elif answer.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._finish(batch, NO_OFFSET, None)
        else:
            what = f"partition {batch.topic_partition}"
            message = answer.error_message
            if answer.record_errors:
                message = answer.record_errors[0].batch_index_error_message or message
            error = refusal(answer.error_code, message, what)
            batch.maybe_written |= not is_definite(error.code, self._acks)
            self._settle(batch, error)

    # -- Outcomes ----------------------------------------------------------------------------

    def _settle(self, batch: Batch, error: ProtocolError) -> None:
        """Decide what a failed attempt means: try again, number anew, split, or give up."""
        partition = batch.topic_partition
        if error.code is ErrorCode.MESSAGE_TOO_LARGE and len(batch.records) > 1:
            self._queues[partition].replace(batch, batch.split())
            return
        if error.code in _IDENTITY_LOST and self._maybe_renumber(batch):
            return
        now_ms = self._cluster.clock.monotonic_ms()
        if now_ms - batch.created_ms < self._patience_ms(error):
            self._cluster.on_delay(error)
            self._cluster.forget([partition.topic])
            self._queues[partition].pause(now_ms)
            return
        self._finish(batch, NO_OFFSET, error)

    def _patience_ms(self, error: ProtocolError) -> int:
        """For how long batches that meet this error are tried again."""
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return min(self._cluster.settings.topic_wait_ms, self._delivery_timeout_ms)
        return self._delivery_timeout_ms if is_worth_waiting_for(error) else 0

    def _maybe_renumber(self, batch: Batch) -> bool:
        """Send the batch under a new producer id, if no attempt can have written it."""
        if self._identities is None or batch.identity is None or batch.maybe_written:
            return False
        if batch.renewals >= RENEWALS_MAX:
            return False
        self._identities.renew(batch.identity)
        batch.renewals += 1
        batch.identity = batch.encoded = None
        return True

    def _give_up_old(self) -> None:
        """Fail batches that waited longer than the delivery timeout."""
        oldest_ms = self._cluster.clock.monotonic_ms() - self._delivery_timeout_ms
        for partition, queue in list(self._queues.items()):
            oldest = queue.batches[0]
            if not queue.is_in_flight(oldest) and oldest.created_ms < oldest_ms:
                self._finish(
                    oldest,
                    NO_OFFSET,
                    ProtocolError(
                        ErrorCode.REQUEST_TIMED_OUT,
                        f"Records for partition {partition} could not be delivered within "
                        f"{self._delivery_timeout_ms} ms.",
                    ),
                )

    def _finish(self, batch: Batch, base_offset: Offset, error: ProtocolError | None) -> None:
        """Set a batch's outcome and go on to the next of its partition."""
        partition = batch.topic_partition
        count = len(batch.records)
        queue = self._queues[partition]
        if error is None:
            self._delivered += count
            queue.is_sequence_confirmed = True
            queue.worked()
            if self._identities is not None and batch.identity is not None:
                self._identities.written(partition, batch.identity, count)
        else:
            before = self._failed.get((partition, error.code))
            self._failed[partition, error.code] = FailedRecords(
                partition,
                count + (before.count if before else 0),
                error,
                batch.maybe_written or (before is not None and before.maybe_written),
            )
            if self._identities is not None and batch.identity and batch.maybe_written:
                self._identities.renew(batch.identity)
        batch.finish(base_offset, error)
        self.held_bytes -= batch.size_bytes
        queue.remove(batch)
        if not queue.batches:
            del self._queues[partition]
