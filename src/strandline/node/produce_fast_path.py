"""The fast path of a produce request that looks like the one before it.

Clients send thousands of produce requests that differ only in correlation id and records: same
client id, acks, topic and partition. `ProduceFastPath` remembers the constant part of such requests
on one connection, compares instead of decoding, checks the batch by its header, its checksum and a
compiled walk over its records, appends it, and fills in a prepared answer. That is three times as
fast as the general way. With acks=all the answer is filled in at once, too, and waits in the
replica's queue for the high watermark. The first batch of a transaction is a plain case where the
coordinator is this broker's own, and has the partition in the transaction.

It is only ever a short cut. Whatever is not the plain case (an unusual attribute, a duplicate, a
wrong checksum, a record that is not in order, a full disk) is declined *before anything has
happened*, and the general way, which is the definition of what is right, handles the same bytes. A
differential test runs both.

    api key │ version │ correlation id │ client id … partition index │ length │ batch │ tags
    └─ compared as one word ─┘         └──────── compared ─────────┘
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from strandline.errors import CorruptRecords, ErrorCode, StorageError
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
from strandline.records.batch import (
    CODEC_MASK,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
)
from strandline.records.codec import Codec
from strandline.records.compression import inflate
from strandline.records.produced_records import newest_of
from strandline.records.rules import AppendRules
from strandline.storage.producer_state import ProducerStates
from strandline.types import NO_TIMESTAMP, Instant, Offset, TopicPartition

if TYPE_CHECKING:
    from strandline.node.transaction_verification import TransactionVerifier

_ACKS_ALL: Final = -1
_HEAD: Final = Struct(">Ii")
_CONSTANT_FROM: Final = 8
_FLEXIBLE_SINCE: Final = 9
_ZSTD_SINCE: Final = 7
"""Older requests must be looked at for a codec that they may not use."""
_INT: Final = Struct(">i")
_PLAIN: Final = frozenset(range(5))
"""Attributes with a codec and nothing else."""
_TRANSACTIONAL: Final = frozenset(TRANSACTIONAL_BIT | codec for codec in _PLAIN)
_ATTRIBUTES_AT: Final = 21
_FLAGS_AT: Final = 22
_SHAPES_MAX: Final = 1024
_NO_TAGS: Final = bytes(3)
_BEHIND_PREFIX_MIN: Final = HEADER_BYTES


class _Shape:
    """What is constant in a produce request and in its answer."""

    __slots__ = (
        "acks_all",
        "answer",
        "attributes",
        "is_flexible",
        "joined",
        "origin",
        "replica",
        "timeout_ms",
        "word",
    )

    def __init__(
        self,
        word: int,
        replica: Replica,
        request: Request[ProduceRequest],
        joined: JoinedTransaction | None,
    ) -> None:
        self.word = word
        self.joined = joined
        self.attributes = _PLAIN if joined is None else _TRANSACTIONAL
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
    """The fast path on one connection. Knows at most `_SHAPES_MAX` shapes of requests."""

    __slots__ = ("_connection", "_outbox", "_prefix_end", "_shapes")

    def __init__(self, connection: Connection, outbox: Outbox) -> None:
        self._connection = connection
        self._outbox = outbox
        self._prefix_end = 0
        self._shapes: dict[bytes, _Shape] = {}

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
        if joined is not None and not (
            size > HEADER_BYTES and records[_FLAGS_AT] & TRANSACTIONAL_BIT
        ):
            return  # what may be written under the id was not asked
        if request.version >= _FLEXIBLE_SINCE:
            behind, length_bytes = 3, _varint_bytes(size + 1)
        else:
            behind, length_bytes = 0, 4
        prefix_end = len(frame) - behind - size - length_bytes
        if prefix_end != self._prefix_end or len(self._shapes) >= _SHAPES_MAX:
            self._shapes.clear()
            self._prefix_end = prefix_end
        (word, _) = _HEAD.unpack_from(frame)
        prefix = frame[_CONSTANT_FROM:prefix_end].tobytes()
        known = self._shapes.get(prefix)
        if known is not None and known.word == word and known.replica is replica:
            return  # it was no plain case
        self._shapes[prefix] = _Shape(word, replica, request, joined)

    def maybe_handle(self, frame: memoryview, now: Instant) -> bool:
        """Append and answer, if the request is of a known shape and the plain case."""
        prefix_end = self._prefix_end
        shape = self._shapes.get(frame[_CONSTANT_FROM:prefix_end].tobytes())
        if shape is None:
            return False
        word, correlation_id = _HEAD.unpack_from(frame)
        replica = shape.replica
        log = replica.log
        leading = replica.leading
        settings = log.settings
        if word != shape.word or leading is None or not settings.keeps_batches:
            return False
        if shape.acks_all and not leading.state.has_min_in_sync:
            return False
        frame_size = len(frame)
        if frame_size < prefix_end + _BEHIND_PREFIX_MIN:
            return False
        if shape.is_flexible:
            start, size = _read_length(frame, prefix_end)
            end = start + size
            if end + 3 != frame_size or frame[end:] != _NO_TAGS:
                return False
        else:
            start = prefix_end + 4
            (size,) = _INT.unpack_from(frame, prefix_end)
            end = start + size
            if end != frame_size:
                return False
        rules = settings.client_rules
        if size <= HEADER_BYTES or size > rules.max_message_bytes or size > settings.segment_bytes:
            return False
        batch = frame[start:end]
        # A bare tuple serves as the header wherever fields are taken by position.
        header: BatchHeader = HEADER.unpack_from(batch)  # type: ignore[assignment]
        if (
            header[0] != 0
            or header[1] != size - LOG_OVERHEAD
            or header[3] != MAGIC
            or header[5] not in shape.attributes
            or not header[12] == header[6] + 1 > 0
            or log.health.failure is not None
            or log.health.closed
        ):
            return False
        if header[9] >= 0:
            header = BatchHeader._make(header)
            joined, producers = shape.joined, log.producers
            if not (
                producers.is_next(header) if joined is None else joined.is_next(header, producers)
            ):
                return False
        elif shape.joined is not None:
            return False
        if crc32c(frame[start + _ATTRIBUTES_AT : end]) != header[4]:
            return False
        if _newest_timestamp(header, batch, rules, now.wall_ms) != header[8]:
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


def _newest_timestamp(
    header: BatchHeader, batch: memoryview, rules: AppendRules, now_ms: int
) -> int | None:
    """The largest timestamp of a batch's records; None if anything is wrong with them."""
    payload: Buffer = batch
    start = HEADER_BYTES
    codec = header[5] & CODEC_MASK
    if codec:
        try:
            payload = inflate(Codec(codec), batch[start:], rules.max_decompressed_bytes)
        except CorruptRecords:
            return None
        start = 0
    earliest, latest = rules.timestamp_limits(now_ms)
    return newest_of(
        payload, start, len(payload), header[12], header[7], earliest, latest, rules.compacted
    )


def _read_length(frame: memoryview, position: int) -> tuple[int, int]:
    """Where the records start and how long they are, from a compact length (one more)."""
    value = frame[position]
    if value < 0x80:
        return position + 1, value - 1
    value = 0
    for shift in (0, 7, 14, 21, 28):
        byte = frame[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
    return position, value - 1


def _varint_bytes(value: int) -> int:
    return max(1, (value.bit_length() + 6) // 7)
