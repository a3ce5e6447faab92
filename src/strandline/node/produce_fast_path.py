"""The fast path of a produce request that looks like the one before it.

Clients send thousands of produce requests that differ only in correlation id and records: same
client id, acks, topic and partition. `ProduceFastPath` remembers the constant part of such requests
on one connection, compares instead of decoding, checks the batch by its header, its checksum and a
walk over its records, all in one call (`records/plain_produce`), appends it, and fills in a
prepared answer. That is several times as fast as the general way. With acks=all the answer is
filled in at once, too, and waits in the replica's queue for the high watermark. The first batch of
a transaction is a plain case where the coordinator is this broker's own, and has the partition in
the transaction.

It is only ever a short cut. Whatever is not the plain case (an unusual attribute, a duplicate, a
wrong checksum, a record that is not in order, a full disk) is declined *before anything has
happened*, and the general way, which is the definition of what is right, handles the same bytes. A
differential test runs both.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from strandline.errors import CorruptRecords, ErrorCode, ProtocolError, StorageError
from strandline.node.connection import Connection, Slot
from strandline.node.outbox import Origin, Outbox, Refused
from strandline.node.replica import Replica
from strandline.node.request import Request
from strandline.protocol.apis import KNOWN, ApiKey
from strandline.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from strandline.protocol.schema import encode_response
from strandline.records.batch import CODEC_MASK, HEADER_BYTES, TRANSACTIONAL_BIT, BatchHeader
from strandline.records.codec import Codec
from strandline.records.compression import inflate
from strandline.records.plain_produce import CORRELATION_END, VERSION_END, plain_produce
from strandline.records.produced_framing import begins_with_transactional_batch
from strandline.records.produced_records import newest_of
from strandline.records.rules import AppendRules
from strandline.storage.producer_state import ProducerStates
from strandline.types import NO_TIMESTAMP, Instant, Offset, TopicPartition

if TYPE_CHECKING:
    from strandline.node.transaction_verification import TransactionVerifier

_ACKS_ALL: Final = -1
_FLEXIBLE_SINCE: Final = 9
_ZSTD_SINCE: Final = 7
"""Older requests must be looked at for a codec that they may not use."""
_SHAPES_MAX: Final = 1024
"""A client without batches for several partitions needs one shape for each partition."""
_SHAPES_BYTES_MAX: Final = 256 * 1024
"""Of what is constant in all of them; in memory they take about four times that, and 1 KiB each."""


class _Shape:
    """What is constant in a produce request and in its answer."""

    __slots__ = (
        "acks_all",
        "answer",
        "constant",
        "flags",
        "is_flexible",
        "joined",
        "origin",
        "replica",
        "timeout_ms",
    )

    def __init__(
        self,
        constant: bytes,
        replica: Replica,
        request: Request[ProduceRequest],
        joined: JoinedTransaction | None,
    ) -> None:
        self.constant = constant
        self.joined = joined
        self.flags = 0 if joined is None else TRANSACTIONAL_BIT
        self.replica = replica
        self.origin = Origin(request.client_id, request.connection)
        self.answer = _Answer(request)
        self.is_flexible = request.version >= _FLEXIBLE_SINCE
        self.acks_all = request.body.acks == _ACKS_ALL
        self.timeout_ms = max(0, request.body.timeout_ms)


class JoinedTransaction:
    """The transaction to which the batches of a shape belong."""

    __slots__ = ("_partitions", "_transactional_id", "_verifier")

    def __init__(
        self, transactional_id: str, partition: TopicPartition, verifier: TransactionVerifier
    ) -> None:
        self._transactional_id = transactional_id
        self._partitions = frozenset({partition})
        self._verifier = verifier

    def is_next(self, header: BatchHeader, producers: ProducerStates) -> bool:
        """Whether a batch plainly continues its producer's, and may be in the transaction."""
        verifier = self._verifier
        if verifier.is_asking(header.producer_id):
            return False  # batches before it wait
        return producers.is_next(header) or (
            producers.is_next(header, begins=True)
            and verifier.is_confirmed(
                self._transactional_id,
                header.producer_id,
                header.producer_epoch,
                self._partitions,
            )
        )


class _Answer:
    """The bytes of a successful answer, with gaps for what changes."""

    __slots__ = ("error_at", "head", "pack", "size", "tail")

    def __init__(self, request: Request[ProduceRequest]) -> None:
        """Encodes one answer the general way and cuts it apart around its offsets."""
        topic = request.body.topic_data[0]
        marked = PartitionProduceResponse(
            index=topic.partition_data[0].index,
            base_offset=_MARK,
            log_append_time_ms=NO_TIMESTAMP,
            log_start_offset=_MARK,
        )
        response = ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name, topic_id=topic.topic_id, partition_responses=[marked]
                )
            ]
        )
        api = KNOWN[ApiKey.PRODUCE]
        frame = bytes(4 + 4) + bytes(api.response_header_version(request.version))
        frame += encode_response(response, request.version)
        # Base offset, append time, log start; found from the end, since a topic's name may hold
        # anything and stands before them.
        end = frame.rindex(_MARK.to_bytes(8, "big")) + 8
        self.size = len(frame) - 4
        self.head = frame[8 : end - 24]
        self.error_at = end - 26
        self.tail = frame[end:]
        self.pack = Struct(f">ii{len(self.head)}sqqq{len(self.tail)}s").pack


_MARK: Final = 0x5A5A_5A5A_5A5A_5A5A


class ProduceFastPath:
    """The fast path on one connection. Knows at most `_SHAPES_MAX` shapes of requests, fewer where
    names are long."""

    __slots__ = ("_connection", "_only", "_outbox", "_prefix_end", "_shapes")

    def __init__(self, connection: Connection, outbox: Outbox) -> None:
        self._connection = connection
        self._outbox = outbox
        self._prefix_end = 0
        self._shapes: dict[bytes, _Shape] = {}
        self._only: _Shape | None = None

    def learn(
        self,
        frame: memoryview,
        request: Request[ProduceRequest],
        replica: Replica,
        joined: JoinedTransaction | None,
    ) -> None:
        """Remember a request for one partition that asked for an answer; `joined` if it names a
        transactional id."""
        records = request.body.topic_data[0].partition_data[0].records
        if records is None or request.version < _ZSTD_SINCE:
            return
        size = len(records)
        if request.version >= _FLEXIBLE_SINCE:
            behind, length_bytes = 3, _varint_bytes(size + 1)
        else:
            behind, length_bytes = 0, 4
        prefix_end = len(frame) - behind - size - length_bytes
        shapes_max = min(_SHAPES_MAX, _SHAPES_BYTES_MAX // prefix_end)
        if prefix_end != self._prefix_end or len(self._shapes) >= shapes_max:
            self._shapes.clear()
            self._prefix_end = prefix_end
        prefix = frame[CORRELATION_END:prefix_end].tobytes()
        constant = frame[:VERSION_END].tobytes() + prefix
        known = self._shapes.get(prefix)
        if known is not None and known.constant == constant and known.replica is replica:
            return  # it was no plain case
        if joined is not None and not _is_transactional(records):
            return  # what may be written under the id was not asked
        self._shapes[prefix] = shape = _Shape(constant, replica, request, joined)
        self._only = shape if len(self._shapes) == 1 else None

    def maybe_handle(self, frame: memoryview, now: Instant) -> bool:
        """Append and answer, if the request is of a known shape and the plain case."""
        shape = self._only
        if shape is None:
            shape = self._shapes.get(frame[CORRELATION_END : self._prefix_end].tobytes())
            if shape is None:
                return False
        replica = shape.replica
        log = replica.log
        leading = replica.leading
        settings = log.settings
        if leading is None or not settings.keeps_batches:
            return False
        if shape.acks_all and not leading.state.has_min_in_sync:
            return False
        rules = settings.client_rules
        found = plain_produce(
            frame,
            shape.constant,
            shape.is_flexible,
            settings.batch_bytes_max,
            now.wall_ms,
            rules.before_max_ms,
            rules.after_max_ms,
            rules.compacted,
            shape.flags,
        )
        if found is None or log.health.failure is not None or log.health.closed:
            return False
        correlation_id, start, end, header = found
        batch = frame[start:end]
        if header[9] >= 0:
            header = BatchHeader._make(header)
            joined, producers = shape.joined, log.producers
            if not (
                producers.is_next(header) if joined is None else joined.is_next(header, producers)
            ):
                return False
        elif shape.joined is not None:
            return False
        if header[5] & CODEC_MASK and (
            _newest_inside(header, batch, rules, now.wall_ms) != header[8]
        ):
            return False
        try:
            base_offset = leading.append_validated(batch, header, now)
        except StorageError:
            # The log is as it was before: the general way meets the same disk and tells the client.
            # The batch was patched, though, and must look as the client sent it.
            batch[:8] = bytes(8)
            return False
        answer = shape.answer
        answered = answer.pack(
            answer.size,
            correlation_id,
            answer.head,
            base_offset,
            NO_TIMESTAMP,
            log.offsets.log_start_offset,
            answer.tail,
        )
        required = base_offset + header[6] + 1
        if shape.acks_all and log.offsets.high_watermark < required:
            waiting = _Waiting(self, shape, answered, now)
            deadline_ms = now.monotonic_ms + shape.timeout_ms
            replica.await_commit(Offset(required), waiting.decided, deadline_ms=deadline_ms)
            return True
        self._outbox.produced_at_once += 1
        connection = self._connection
        if connection.slots:
            connection.fill(connection.open_slot(), [answered])
        else:
            connection.outgoing.append(answered)
        self._outbox.flush_later(connection)
        return True

    def open_slot(self) -> Slot:
        """Take the next place in the order of answers."""
        return self._connection.open_slot()

    def fill(self, slot: Slot, frame: bytes, waited_ms: int) -> None:
        """Answer later than at once."""
        self._connection.fill(slot, [frame])
        self._outbox.flush_later(self._connection)
        self._outbox.produced_after_ms.append(waited_ms)

    def refused(self, shape: _Shape, code: ErrorCode) -> None:
        """Have the refusal noted."""
        about = (*shape.replica.topic_partition, None)
        self._outbox.refuses(Refused(code, ApiKey.PRODUCE.name, about, shape.origin, None))


class _Waiting:
    """A produce with acks=all that is appended, with the answer that it gets if it is committed."""

    __slots__ = ("_frame", "_path", "_shape", "_since_ms", "_slot")

    def __init__(self, path: ProduceFastPath, shape: _Shape, frame: bytes, now: Instant) -> None:
        self._path = path
        self._shape = shape
        self._frame = frame
        self._since_ms = now.monotonic_ms
        self._slot = path.open_slot()

    def decided(self, code: ErrorCode, now: Instant) -> None:
        """Answer, now that the outcome is known, or that it is not known in time."""
        frame = self._frame
        if code is not ErrorCode.NONE:
            at = self._shape.answer.error_at
            frame = frame[:at] + code.to_bytes(2, "big", signed=True) + frame[at + 2 :]
            self._path.refused(self._shape, code)
        self._path.fill(self._slot, frame, now.monotonic_ms - self._since_ms)


def _newest_inside(
    header: BatchHeader, batch: memoryview, rules: AppendRules, now_ms: int
) -> int | None:
    """The largest timestamp of compressed records; None if anything is wrong with them."""
    codec = Codec(header[5] & CODEC_MASK)
    try:
        payload = inflate(codec, batch[HEADER_BYTES:], rules.max_decompressed_bytes)
    except CorruptRecords:
        return None
    earliest, latest = rules.timestamp_limits(now_ms)
    return newest_of(
        payload, 0, len(payload), header[12], header[7], earliest, latest, rules.compacted
    )


def _is_transactional(records: memoryview) -> bool:
    try:
        return begins_with_transactional_batch(records)
    except ProtocolError:
        return False


def _varint_bytes(value: int) -> int:
    return max(1, (value.bit_length() + 6) // 7)
