"""One record inside a batch: what it holds, and reading the records of a batch strictly.

This file knows the record layout. It must not know which batches are acceptable to a topic.

    ┌ length ┬ attributes ┬ timestamp delta ┬ offset delta ┬ key ┬ value ┬ header count ┬ headers ┐
    │ varint │ 1, unused  │ varlong         │ varint       │     │       │ varint       │         │
    └────────┴────────────┴─────────────────┴──────────────┴─────┴───────┴──────────────┴─────────┘
    key, value: size (varint, -1: null) · bytes
    header: key size (varint) · key in UTF-8 · value size (varint, -1: null) · value

The deltas count from the batch's base offset and base timestamp. "Strictly" means that the declared
count of records is there, that each fills its declared length, that nothing follows the last one,
and that offsets rise and stay inside the batch. A batch whose count equals its offset range has
therefore consecutive offsets; compaction leaves gaps.

Header keys that are not UTF-8 keep their bytes as lone surrogates, so that a record which is read
and written again is the same record: a producer's odd header must neither stop compaction nor
change under it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from strandline.errors import CorruptRecords
from strandline.records.batch import (
    HEADER_BYTES,
    BatchHeader,
    Buffer,
    TimestampType,
    parse_header,
    verify_crc,
)
from strandline.records.compression import DECOMPRESSED_BYTES_MAX, decompress
from strandline.records.varint import read_varint, read_varlong
from strandline.types import NO_OFFSET, NO_TIMESTAMP, Offset

RECORD_BYTES_MIN = 7
"""Length, attributes, two deltas, two null sizes and a header count of one byte each."""

_INT64_MAX = 2**63 - 1


class Record(NamedTuple):
    """One record. Times are milliseconds since 1970 in UTC, -1 for none."""

    offset: Offset = NO_OFFSET
    timestamp: int = NO_TIMESTAMP
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def read_records(
    buffer: Buffer,
    position: int = 0,
    *,
    max_bytes: int = DECOMPRESSED_BYTES_MAX,
    check_crc: bool = True,
) -> Iterator[Record]:
    """Read the records of the batch that starts at `position`.

    The checksum is verified and the records are decompressed (to at most `max_bytes`) before this
    returns; the buffer is not needed afterwards. Raises `CorruptRecords`, also during iteration.
    """
    header = parse_header(buffer, position)
    if len(buffer) - position < header.size_bytes:
        raise CorruptRecords(f"A record batch of {header.size_bytes} bytes is cut off.")
    if check_crc and not verify_crc(buffer, position, header.size_bytes):
        raise CorruptRecords("A record batch does not match its checksum.")
    return iterate_payload(header, payload_of(header, buffer, position, max_bytes=max_bytes))


def payload_of(
    header: BatchHeader,
    buffer: Buffer,
    position: int = 0,
    *,
    max_bytes: int = DECOMPRESSED_BYTES_MAX,
) -> bytes:
    """The bytes of a batch behind its header, decompressed.

    An empty batch (compaction leaves them) has none, whatever codec its attributes name.
    """
    packed = memoryview(buffer)[position + HEADER_BYTES : position + header.size_bytes]
    if header.record_count == 0 and not packed:
        return b""
    return decompress(header.codec, packed, max_bytes)


def iterate_payload(header: BatchHeader, payload: bytes) -> Iterator[Record]:
    """Yield the records in the decompressed `payload` of the batch that `header` heads."""
    if not 0 <= header.record_count * RECORD_BYTES_MIN <= len(payload):
        raise CorruptRecords(
            f"A record batch declares {header.record_count} records in {len(payload)} bytes."
        )
    return _iterate(header, payload)


def _iterate(header: BatchHeader, payload: bytes) -> Iterator[Record]:
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    append_time = (
        header.max_timestamp if header.timestamp_type is TimestampType.LOG_APPEND_TIME else None
    )
    last_delta = -1
    position = 0
    end = len(payload)
    for _ in range(header.record_count):
        length, position = read_varint(payload, position, end)
        record_end = position + length
        if length < RECORD_BYTES_MIN - 1 or record_end > end:
            raise CorruptRecords(f"A record of {length} bytes does not fit in its batch.")
        timestamp_delta, position = read_varlong(payload, position + 1, record_end)
        timestamp = base_timestamp + timestamp_delta
        if not -_INT64_MAX <= timestamp <= _INT64_MAX:
            raise CorruptRecords("A record's timestamp does not fit in 64 bits.")
        offset_delta, position = read_varint(payload, position, record_end)
        if not last_delta < offset_delta <= header.last_offset_delta:
            raise CorruptRecords(
                f"A record has the offset delta {offset_delta} behind {last_delta} in a batch "
                f"that ends with {header.last_offset_delta}."
            )
        last_delta = offset_delta
        key, position = _read_bytes(payload, position, record_end)
        value, position = _read_bytes(payload, position, record_end)
        # Most records have no headers and end with the count 0.
        if position == record_end - 1 and payload[position] == 0:
            headers: tuple[tuple[str, bytes | None], ...] = ()
        else:
            headers = _read_headers(payload, position, record_end)
        position = record_end
        yield Record(
            Offset(base_offset + offset_delta),
            timestamp if append_time is None else append_time,
            key,
            value,
            headers,
        )
    if position != end:
        raise CorruptRecords(f"{end - position} bytes follow the last record of a batch.")


def _read_bytes(payload: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    size, position = read_varint(payload, position, end)
    if size < 0:
        # Kafka reads every negative size as null; writers use -1.
        return None, position
    stop = position + size
    if stop > end:
        raise CorruptRecords(f"A field of {size} bytes runs past the end of its record.")
    return payload[position:stop], stop


def _read_headers(payload: bytes, position: int, end: int) -> tuple[tuple[str, bytes | None], ...]:
    count, position = read_varint(payload, position, end)
    # A header takes two bytes at least, so a count cannot make this loop longer than its input.
    if not 0 <= count * 2 <= end - position:
        raise CorruptRecords(f"A record declares {count} headers in {end - position} bytes.")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        key, position = _read_bytes(payload, position, end)
        if key is None:
            raise CorruptRecords("A record header has no key.")
        value, position = _read_bytes(payload, position, end)
        headers.append((key.decode("utf-8", "surrogateescape"), value))
    if position != end:
        raise CorruptRecords(f"{end - position} bytes follow the last header of a record.")
    return tuple(headers)
