"""The 61-byte header of a record batch, format 2: reading it, checking it, patching it.

This file knows the header and the checksum. It must not know what the records inside look like
(`record.py`), how they are compressed (`compression.py`) or which batches a topic accepts
(`validation.py`).

A batch has the same bytes on the wire and on disk, and the broker leaves it as the producer wrote
it. All numbers are big endian:

    ┌─ at ┬──────────────────────────┬ bytes ┐
    │   0 │ base offset              │     8 │ the leader assigns it ┐
    │   8 │ length                   │     4 │ of all that follows   │ not covered
    │  12 │ leader epoch             │     4 │ the leader assigns it │ by the CRC
    │  16 │ magic                    │     1 │ 2                     │
    │  17 │ CRC-32C of 21..end       │     4 │                       ┘
    │  21 │ attributes               │     2 │ see below
    │  23 │ last offset delta        │     4 │ last offset - base offset; survives compaction
    │  27 │ base timestamp           │     8 │ or the delete horizon, see below
    │  35 │ max timestamp            │     8 │
    │  43 │ producer id              │     8 │ -1: none
    │  51 │ producer epoch           │     2 │ -1: none
    │  53 │ base sequence            │     4 │ -1: none
    │  57 │ record count             │     4 │ 0 only after compaction
    ├─────┼──────────────────────────┼───────┤
    │  61 │ records, maybe compressed│       │
    └─────┴──────────────────────────┴───────┘

    attributes: │ 15 .. 7 unused │ 6 delete horizon │ 5 control │ 4 transactional │
                │ 3 timestamp type (0 CreateTime, 1 LogAppendTime) │ 2 .. 0 codec  │

The base offset and the leader epoch stand outside the checksum so that a leader can assign them
without reading the records (KIP-98). With bit 6 the base timestamp says when tombstones of this
batch may be dropped (KIP-534).
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from crc32c import crc32c

from strandline.errors import CorruptRecords
from strandline.records.codec import Codec
from strandline.types import LeaderEpoch, Offset, ProducerEpoch, ProducerId

Buffer: TypeAlias = bytes | bytearray | memoryview
"""What is read: bytes in any holder. A memoryview must be one of unsigned bytes."""

WritableBuffer: TypeAlias = bytearray | memoryview
"""What is patched in place. A memoryview must be writable."""

MAGIC: Final = 2
LOG_OVERHEAD: Final = 12
"""Bytes of base offset and length, which the length field does not count."""
HEADER_BYTES: Final = 61

MAGIC_AT: Final = 16
CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21
MAX_TIMESTAMP_AT: Final = 35

CODEC_MASK: Final = 0x07
TIMESTAMP_TYPE_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

SEQUENCE_MAX: Final = 2**31 - 1

HEADER: Final = Struct(">qiibIhiqqqhii")
OFFSET_LENGTH_EPOCH: Final = Struct(">qii")
"""The first 16 bytes: what a leader assigns, with the length in between."""
LENGTH_MIN: Final = HEADER_BYTES - LOG_OVERHEAD

_CODECS: Final = tuple(Codec)
_INT16: Final = Struct(">h")
_UINT32: Final = Struct(">I")
_INT64: Final = Struct(">q")


class TimestampType(IntEnum):
    """Who set a batch's timestamps: the producer, or the leader that appended it."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    """A batch's header, field by field in wire order. `parse_header` makes it."""

    base_offset: Offset
    length: int
    leader_epoch: LeaderEpoch
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The whole batch, header and records."""
        return self.length + LOG_OVERHEAD

    @property
    def last_offset(self) -> Offset:
        return Offset(self.base_offset + self.last_offset_delta)

    @property
    def next_offset(self) -> Offset:
        """The offset that follows this batch."""
        return Offset(self.base_offset + self.last_offset_delta + 1)

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record; -1 when the batch carries none."""
        if self.base_sequence == -1:
            return -1
        return sequence_after(self.base_sequence, self.last_offset_delta)

    @property
    def codec(self) -> Codec:
        """Raises `CorruptRecords` when the attributes name a codec that does not exist."""
        return codec_of(self.attributes)

    @property
    def is_compressed(self) -> bool:
        return self.attributes & CODEC_MASK != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def timestamp_type(self) -> TimestampType:
        if self.attributes & TIMESTAMP_TYPE_BIT:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME

    @property
    def delete_horizon_ms(self) -> int | None:
        """When the tombstones in this batch may be dropped, if compaction has set that already."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def has_producer(self) -> bool:
        return self.producer_id > -1


def codec_of(attributes: int) -> Codec:
    """The codec that a batch's attributes name."""
    number = attributes & CODEC_MASK
    if number >= len(_CODECS):
        raise CorruptRecords(f"A record batch names the compression codec {number}, unknown here.")
    return _CODECS[number]


def parse_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read the header that starts at `position`.

    Raises `CorruptRecords` when fewer than 61 bytes are left, when the magic byte is not 2, or when
    the length field is too small for a header. That the whole batch is present is not required:
    an index scan reads headers alone.
    """
    if len(buffer) - position < HEADER_BYTES or position < 0:
        raise CorruptRecords(
            f"A record batch header takes {HEADER_BYTES} bytes; at position {position} there are "
            f"{max(0, len(buffer) - position)}."
        )
    header = BatchHeader._make(HEADER.unpack_from(buffer, position))
    if header.magic != MAGIC:
        raise CorruptRecords(f"A record batch has magic {header.magic}; only {MAGIC} is readable.")
    if header.length < LENGTH_MIN:
        raise CorruptRecords(
            f"A record batch gives its length as {header.length}; at least {LENGTH_MIN} is needed."
        )
    return header


def iterate_headers(
    buffer: Buffer, position: int = 0, end: int | None = None
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of each whole batch in `buffer[position:end]`.

    Stops in front of a last batch that is cut off, as fetch responses have (the position to go on
    from is the last one plus its `size_bytes`). Checks no checksum. Raises `CorruptRecords` where
    what follows cannot be a batch.
    """
    stop = len(buffer) if end is None else end
    while stop - position >= HEADER_BYTES:
        header = parse_header(buffer, position)
        if stop - position < header.length + LOG_OVERHEAD:
            return
        yield position, header
        position += header.length + LOG_OVERHEAD


def compute_crc(buffer: Buffer, position: int, size: int) -> int:
    """The CRC-32C of the batch of `size` bytes at `position`: of its attributes and all after."""
    return crc32c(memoryview(buffer)[position + ATTRIBUTES_AT : position + size])


def verify_crc(buffer: Buffer, position: int, size: int) -> bool:
    """Whether the batch of `size` bytes at `position` is all there and as it was written."""
    if size < HEADER_BYTES or position < 0 or len(buffer) - position < size:
        return False
    stored: int = _UINT32.unpack_from(buffer, position + CRC_AT)[0]
    return stored == compute_crc(buffer, position, size)


def check_crc(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """Raises `CorruptRecords` unless the batch is as it was written."""
    if not verify_crc(buffer, position, header.size_bytes):
        raise CorruptRecords("A record batch does not match its checksum.")


def set_max_timestamp(
    buffer: WritableBuffer, position: int, timestamp_type: TimestampType, max_timestamp: int
) -> bool:
    """Set who stamped the batch and its largest timestamp, in place; returns whether that differs.

    A change recomputes the checksum over the whole batch, which must therefore be in the buffer.
    """
    header = parse_header(buffer, position)
    if header.timestamp_type is timestamp_type and header.max_timestamp == max_timestamp:
        return False
    attributes = header.attributes & ~TIMESTAMP_TYPE_BIT
    if timestamp_type is TimestampType.LOG_APPEND_TIME:
        attributes |= TIMESTAMP_TYPE_BIT
    _INT16.pack_into(buffer, position + ATTRIBUTES_AT, attributes)
    _INT64.pack_into(buffer, position + MAX_TIMESTAMP_AT, max_timestamp)
    set_crc(buffer, position, header.size_bytes)
    return True


def set_log_append_time(buffer: WritableBuffer, position: int, now_ms: int) -> bool:
    """Stamp the batch with the time of its append (`message.timestamp.type=LogAppendTime`)."""
    return set_max_timestamp(buffer, position, TimestampType.LOG_APPEND_TIME, now_ms)


def set_crc(buffer: WritableBuffer, position: int, size: int) -> None:
    """Write the checksum that belongs to the batch as it now is."""
    if size < HEADER_BYTES or len(buffer) - position < size:
        raise CorruptRecords(f"A record batch of {size} bytes is not whole in its buffer.")
    _UINT32.pack_into(buffer, position + CRC_AT, compute_crc(buffer, position, size))


def sequence_after(sequence: int, increment: int) -> int:
    """The sequence number `increment` records later; 0 follows 2^31 - 1 (KIP-98)."""
    return (sequence + increment) & SEQUENCE_MAX
