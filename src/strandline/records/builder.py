"""Writing record batches: new ones, control batches, and what compaction leaves of old ones.

This file knows how records become a batch. It must not know where batches go.

Kafka's habits are kept because readers rely on them: the base timestamp is the first record's, the
largest is computed here, and the codec applies to all records of the batch together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from strandline.errors import InvariantViolated
from strandline.records.batch import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD,
    MAGIC,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    TimestampType,
    set_crc,
)
from strandline.records.codec import Codec
from strandline.records.compression import compress
from strandline.records.control import EndTransactionMarker
from strandline.records.record import Record
from strandline.records.varint import varint_size, write_varint
from strandline.types import (
    NO_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
)

_FIRST_OFFSET: Final = Offset(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions:
    """All of a batch that does not come from its records."""

    base_offset: Offset = _FIRST_OFFSET
    leader_epoch: LeaderEpoch = NO_EPOCH
    codec: Codec = Codec.NONE
    level: int | None = None
    """Compression level; None is the codec's default."""
    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE
    is_transactional: bool = False
    is_control: bool = False
    log_append_time_ms: int | None = None
    """Set: the batch is stamped LogAppendTime with this time."""


_DEFAULTS: Final = BatchOptions()


class BatchBuilder:
    """Collects records into one batch. Offsets count up from the base offset."""

    __slots__ = ("_base_timestamp", "_count", "_max_timestamp", "_options", "_payload")

    def __init__(self, options: BatchOptions = _DEFAULTS) -> None:
        self._options = options
        self._payload = bytearray()
        self._count = 0
        self._base_timestamp = NO_TIMESTAMP
        self._max_timestamp = NO_TIMESTAMP

    @property
    def record_count(self) -> int:
        return self._count

    @property
    def size_bytes(self) -> int:
        """The size of the batch so far, before compression."""
        return HEADER_BYTES + len(self._payload)

    def size_with(self, record: Record) -> int:
        """What `size_bytes` would be with this record too: to stop before a limit."""
        base = self._base_timestamp if self._count else record.timestamp
        length = _body_size(record, record.timestamp - base, self._count)
        return self.size_bytes + varint_size(length) + length

    def append(self, record: Record) -> Offset:
        """Add a record; its own offset is ignored. Returns the offset that it has in the batch."""
        if self._count == 0:
            self._base_timestamp = record.timestamp
        _write_record(self._payload, record, record.timestamp - self._base_timestamp, self._count)
        self._max_timestamp = max(self._max_timestamp, record.timestamp)
        self._count += 1
        return Offset(self._options.base_offset + self._count - 1)

    def build(self) -> bytes:
        """The finished batch. It must have a record: only compaction leaves empty batches."""
        if self._count == 0:
            raise InvariantViolated("A record batch was built without a record.")
        options = self._options
        attributes = int(options.codec)
        attributes |= TRANSACTIONAL_BIT if options.is_transactional else 0
        attributes |= CONTROL_BIT if options.is_control else 0
        max_timestamp = self._max_timestamp
        if options.log_append_time_ms is not None:
            attributes |= TIMESTAMP_TYPE_BIT
            max_timestamp = options.log_append_time_ms
        header = BatchHeader(
            base_offset=options.base_offset,
            length=0,
            leader_epoch=options.leader_epoch,
            magic=MAGIC,
            crc=0,
            attributes=attributes,
            last_offset_delta=self._count - 1,
            base_timestamp=self._base_timestamp,
            max_timestamp=max_timestamp,
            producer_id=options.producer_id,
            producer_epoch=options.producer_epoch,
            base_sequence=options.base_sequence,
            record_count=self._count,
        )
        return bytes(join_batch(header, compress(options.codec, self._payload, options.level)))


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: Offset = _FIRST_OFFSET,
    leader_epoch: LeaderEpoch = NO_EPOCH,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    producer_id: ProducerId = NO_PRODUCER_ID,
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    log_append_time_ms: int | None = None,
) -> bytes:
    """One batch of `records`, at least one. Their offsets are ignored: they count up from the base.

    The defaults are those of a producer without idempotence.
    """
    builder = BatchBuilder(
        BatchOptions(
            base_offset=base_offset,
            leader_epoch=leader_epoch,
            codec=codec,
            level=level,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            is_transactional=is_transactional,
            log_append_time_ms=log_append_time_ms,
        )
    )
    for record in records:
        builder.append(record)
    return builder.build()


def build_control_batch(
    marker: EndTransactionMarker,
    *,
    timestamp: int,
    producer_id: ProducerId,
    producer_epoch: ProducerEpoch,
    base_offset: Offset = _FIRST_OFFSET,
    leader_epoch: LeaderEpoch = NO_EPOCH,
) -> bytes:
    """The batch that ends a producer's transaction: one control record, never compressed."""
    builder = BatchBuilder(
        BatchOptions(
            base_offset=base_offset,
            leader_epoch=leader_epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            is_transactional=True,
            is_control=True,
        )
    )
    builder.append(marker.record(timestamp))
    return builder.build()


def rebuild_batch(
    header: BatchHeader,
    survivors: Sequence[Record],
    *,
    delete_horizon_ms: int | None = None,
    level: int | None = None,
) -> bytes:
    """What compaction leaves of a batch: the same batch with only `survivors`, offsets unchanged.

    Base offset, last offset delta, leader epoch, codec and the producer's fields stay, because
    followers, duplicate detection and readers that count offsets need them. Without survivors the
    result is an empty batch. `delete_horizon_ms` becomes the base timestamp (KIP-534); a horizon
    that the batch has already stays when None is given.
    """
    if not survivors:
        return _empty_batch(header)
    kept, payload = rebuild_records(header, survivors, delete_horizon_ms=delete_horizon_ms)
    return bytes(join_batch(kept, compress(header.codec, payload, level)))


def rebuild_records(
    header: BatchHeader, survivors: Sequence[Record], *, delete_horizon_ms: int | None = None
) -> tuple[BatchHeader, bytes]:
    """The header and the records, not compressed, of what `rebuild_batch` makes of `survivors`.

    Length and checksum in the header are not right yet.
    """
    if not survivors:
        return header._replace(record_count=0), b""
    if delete_horizon_ms is None:
        delete_horizon_ms = header.delete_horizon_ms
    attributes = header.attributes & ~DELETE_HORIZON_BIT
    base_timestamp = survivors[0].timestamp
    if delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON_BIT
        base_timestamp = delete_horizon_ms
    payload = bytearray()
    for record in survivors:
        if not header.base_offset <= record.offset <= header.last_offset:
            raise InvariantViolated(f"The record at {record.offset} is not of the batch it is in.")
        delta = record.offset - header.base_offset
        _write_record(payload, record, record.timestamp - base_timestamp, delta)
    max_timestamp = header.max_timestamp
    if header.timestamp_type is TimestampType.CREATE_TIME:
        max_timestamp = max(record.timestamp for record in survivors)
    kept = header._replace(
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        record_count=len(survivors),
    )
    return kept, bytes(payload)


def join_batch(header: BatchHeader, packed: bytes) -> bytearray:
    """A batch of `header` and the packed records, with the length and checksum that belong to it.

    Returns a bytearray because a leader that packed records anew still assigns their offsets.
    """
    size = HEADER_BYTES + len(packed)
    batch = bytearray(size)
    HEADER.pack_into(batch, 0, *header._replace(length=size - LOG_OVERHEAD))
    batch[HEADER_BYTES:] = packed
    set_crc(batch, 0, size)
    return batch


def _empty_batch(header: BatchHeader) -> bytes:
    attributes = header.attributes & (TIMESTAMP_TYPE_BIT | TRANSACTIONAL_BIT | CONTROL_BIT)
    emptied = header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, record_count=0)
    return bytes(join_batch(emptied, b""))


def _body_size(record: Record, timestamp_delta: int, offset_delta: int) -> int:
    size = 1 + varint_size(timestamp_delta) + varint_size(offset_delta)
    size += _field_size(record.key) + _field_size(record.value) + varint_size(len(record.headers))
    for key, value in record.headers:
        size += _field_size(_encode_key(key)) + _field_size(value)
    return size


def _field_size(field: bytes | None) -> int:
    return 1 if field is None else varint_size(len(field)) + len(field)


def _write_record(out: bytearray, record: Record, timestamp_delta: int, offset_delta: int) -> None:
    body = bytearray(1)  # attributes: none are defined
    write_varint(body, timestamp_delta)
    write_varint(body, offset_delta)
    _write_field(body, record.key)
    _write_field(body, record.value)
    write_varint(body, len(record.headers))
    for key, value in record.headers:
        _write_field(body, _encode_key(key))
        _write_field(body, value)
    write_varint(out, len(body))
    out += body


def _write_field(out: bytearray, field: bytes | None) -> None:
    if field is None:
        out.append(1)  # the varint of -1
    else:
        write_varint(out, len(field))
        out += field


def _encode_key(key: str) -> bytes:
    return key.encode("utf-8", "surrogateescape")
