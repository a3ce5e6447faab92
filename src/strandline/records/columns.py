"""Record batches as columns: each field of many records in one buffer, laid out as Arrow has them.

This file knows which batches and records of a range become rows, and holds the pure-Python twin of
the compiled builder (`_kernels/decode.pyx`). It must not know Arrow itself, topics, files or how
bytes were fetched; nor which transactions were aborted: the caller decides that, batch by batch.

Theory: nearly all batches are plain: data, not compressed, wholly there. `take_plain` goes through
a run of those at the speed of C and stops in front of the first batch that needs a decision or is
wrong in any way. The caller looks at that one's header and hands it over by `take_batch`, skips it
by `pass_batch`, or lets `take_batch` raise what is wrong with it. Whole batches are taken, so a
builder may exceed its size by one batch.

    validity   one bit per row, least significant first, 1: there; None when no row is null
    offsets    rows + 1 int32: row i of the data is [offsets[i], offsets[i + 1])
    timestamp  microseconds since 1970 in UTC, as Arrow and Spark count; what is beyond 64 bits
               then (more than 292,000 years away) is the farthest millisecond that is not

All numbers are in the machine's byte order.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol, TypeAlias

from strandline.errors import CorruptRecords, InvariantViolated
from strandline.records._kernels import compiled
from strandline.records.batch import (
    HEADER_BYTES,
    LOG_OVERHEAD,
    BatchHeader,
    Buffer,
    TimestampType,
    parse_header,
    verify_crc,
)
from strandline.records.record import Record, iterate_payload, payload_of
from strandline.types import NO_OFFSET, LeaderEpoch

ROW_BYTES: Final = 40
"""What a row counts for besides its data: offsets, numbers and its share of the topic's name."""
BYTES_MAX: Final = 1 << 30
"""The largest size of a builder: with one batch more, int32 offsets still reach everything."""
LEADER_EPOCH_MAX: Final = LeaderEpoch(2**31 - 1)

_OFFSET_MAX: Final = 2**63 - 1
_MILLISECONDS_MAX: Final = _OFFSET_MAX // 1000

ColumnBuffer: TypeAlias = object
"""Bytes that are not changed any more, for consumers of the buffer protocol."""


class VariableColumn(NamedTuple):
    """Byte strings of any length; nulls have no data."""

    offsets: ColumnBuffer
    data: ColumnBuffer
    validity: ColumnBuffer | None


class HeaderColumns(NamedTuple):
    """The headers of all rows, one after the other. A row without headers is null."""

    pairs: int
    """Headers in all rows together."""
    offsets: ColumnBuffer
    """Where each row's headers begin, counted in headers."""
    validity: ColumnBuffer | None
    key: VariableColumn
    """As the bytes came: that they are UTF-8 is not checked."""
    value: VariableColumn


class Columns(NamedTuple):
    """Rows in the order of their offsets."""

    rows: int
    key: VariableColumn
    value: VariableColumn
    offset: ColumnBuffer
    """int64"""
    timestamp: ColumnBuffer
    """int64"""
    timestamp_type: ColumnBuffer
    """int32: see `TimestampType`"""
    headers: HeaderColumns | None


class BuilderLimits(NamedTuple):
    """What a builder takes in. Offsets in `[start, end)` become rows."""

    start: int = 0
    end: int = _OFFSET_MAX
    bytes_max: int = 16 * 1024 * 1024
    """A builder of this size is full. At most `BYTES_MAX`."""
    leader_epoch_max: int = LEADER_EPOCH_MAX
    """`take_plain` stops in front of batches of later epochs."""
    with_headers: bool = False
    checks_crc: bool = True


class ColumnBuilder(Protocol):
    """See the module.

    `next_offset` is behind the last batch that was taken or passed, -1 before the first one;
    offsets only rise. `size_bytes` is what the rows take so far.
    """

    @property
    def rows(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def next_offset(self) -> int: ...

    def take_plain(self, buffer: Buffer, position: int, *, stops_at_transactions: bool) -> int:
        """Take plain batches from `position` on; returns where the first one that is left begins.

        Stops when the builder is full, too, and in front of a batch that is cut off or begins at or
        behind the end. Control batches, and transactional ones, stop it only if so wanted; else
        the former are passed and the latter taken.
        """

    def take_batch(self, header: BatchHeader, buffer: Buffer, position: int) -> None:
        """Take a whole batch of any codec. Raises `CorruptRecords`, and has then not changed."""

    def pass_batch(self, header: BatchHeader) -> None:
        """Go on behind a batch without its records."""

    def columns(self) -> Columns:
        """Hand over the rows and begin anew with none; `next_offset` stays."""


def new_builder(limits: BuilderLimits) -> ColumnBuilder:
    """The compiled builder, or its twin where there is none."""
    if not 0 < limits.bytes_max <= BYTES_MAX:
        raise InvariantViolated(f"Columns of {limits.bytes_max} bytes are not possible.")
    kernel = compiled("decode")
    if kernel is None:
        return PythonColumnBuilder(limits)
    builder: ColumnBuilder = kernel.ColumnBuilder(limits)
    return builder


def whole_batches(buffer: Buffer, position: int = 0) -> tuple[int, int]:
    """Where the whole batches from `position` on end, and the offset behind them.

    The offset is -1 without a batch. Stops quietly at what cannot be one; its reader will say so.
    """
    kernel = compiled("decode")
    if kernel is not None:
        found: tuple[int, int] = kernel.whole_batches(buffer, position)
        return found
    return whole_batches_in_python(buffer, position)


def whole_batches_in_python(buffer: Buffer, position: int) -> tuple[int, int]:
    """The twin of the kernel's function."""
    next_offset: int = NO_OFFSET
    while (header := _whole_header(buffer, position)) and is_in_order(header, NO_OFFSET):
        position += header.size_bytes
        next_offset = header.next_offset
    return position, next_offset


class PythonColumnBuilder:
    """The twin: the same answers from the one reader of records that all else uses."""

    def __init__(self, limits: BuilderLimits) -> None:
        self.next_offset: int = NO_OFFSET
        self._limits = limits
        self._start_empty()

    @property
    def rows(self) -> int:
        return len(self._offset)

    @property
    def size_bytes(self) -> int:
        return self._data_bytes + ROW_BYTES * len(self._offset)

    def take_plain(self, buffer: Buffer, position: int, *, stops_at_transactions: bool) -> int:
        limits = self._limits
        while self.size_bytes < limits.bytes_max:
            header = _whole_header(buffer, position)
            if header is None or header.base_offset >= limits.end:
                break
            if not is_in_order(header, self.next_offset):
                break
            if stops_at_transactions and (header.is_control or header.is_transactional):
                break
            if header.next_offset <= limits.start:
                self.pass_batch(header)
            elif header.leader_epoch > limits.leader_epoch_max:
                break
            elif header.is_control:
                self.pass_batch(header)
            elif header.is_compressed:
                break
            else:
                try:
                    self.take_batch(header, buffer, position)
                except CorruptRecords:
                    break
            position += header.size_bytes
        return position

    def take_batch(self, header: BatchHeader, buffer: Buffer, position: int) -> None:
        payload = checked_payload(header, buffer, position, self._limits, self.next_offset)
        limits = self._limits
        # A list first: nothing is kept of a batch that turns out to be damaged.
        for record in list(iterate_payload(header, payload)):
            if limits.start <= record.offset < limits.end:
                self._add(record, header.timestamp_type)
        self.next_offset = header.next_offset

    def pass_batch(self, header: BatchHeader) -> None:
        if not is_in_order(header, self.next_offset):
            raise out_of_order(header, self.next_offset)
        self.next_offset = header.next_offset

    def columns(self) -> Columns:
        headers = None
        if self._limits.with_headers:
            headers = HeaderColumns(
                len(self._header_key),
                self._header_offsets,
                _bits(self._has_headers),
                self._header_key.column(),
                self._header_value.column(),
            )
        done = Columns(
            self.rows,
            self._key.column(),
            self._value.column(),
            self._offset,
            self._timestamp,
            self._timestamp_type,
            headers,
        )
        self._start_empty()
        return done

    def _start_empty(self) -> None:
        self._data_bytes = 0
        self._key, self._value = _Values(), _Values()
        self._offset, self._timestamp = array("q"), array("q")
        self._timestamp_type = array("i")
        self._header_offsets = array("i", [0])
        self._has_headers: list[bool] = []
        self._header_key, self._header_value = _Values(), _Values()

    def _add(self, record: Record, timestamp_type: TimestampType) -> None:
        self._data_bytes += self._key.add(record.key) + self._value.add(record.value)
        self._offset.append(record.offset)
        timestamp = max(-_MILLISECONDS_MAX, min(_MILLISECONDS_MAX, record.timestamp))
        self._timestamp.append(timestamp * 1000)
        self._timestamp_type.append(timestamp_type)
        if self._limits.with_headers:
            for name, value in record.headers:
                key = name.encode("utf-8", "surrogateescape")
                self._data_bytes += self._header_key.add(key) + self._header_value.add(value)
            self._header_offsets.append(len(self._header_key))
            self._has_headers.append(bool(record.headers))


class _Values:
    """A variable column that grows."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._offsets = array("i", [0])
        self._there: list[bool] = []

    def __len__(self) -> int:
        return len(self._there)

    def add(self, value: bytes | None) -> int:
        """Add one; returns how many bytes that took."""
        self._there.append(value is not None)
        self._data += value or b""
        self._offsets.append(len(self._data))
        return len(value or b"")

    def column(self) -> VariableColumn:
        """What was added."""
        return VariableColumn(self._offsets, bytes(self._data), _bits(self._there))


def checked_payload(
    header: BatchHeader, buffer: Buffer, position: int, limits: BuilderLimits, next_offset: int
) -> bytes:
    """The decompressed records of a batch after every check that its header allows.

    Raises `CorruptRecords`. `next_offset` is the least that the batch may begin with.
    """
    if not is_in_order(header, next_offset):
        raise out_of_order(header, next_offset)
    if len(buffer) - position < header.size_bytes:
        raise CorruptRecords(f"A record batch of {header.size_bytes} bytes is cut off.")
    if limits.checks_crc and not verify_crc(buffer, position, header.size_bytes):
        raise CorruptRecords("A record batch does not match its checksum.")
    return payload_of(header, buffer, position)


def explain(header: BatchHeader, payload: bytes) -> Iterator[Record]:
    """Read a batch that the kernel refused: raises `CorruptRecords` with the reason."""
    yield from iterate_payload(header, payload)
    raise InvariantViolated(f"The kernel refused a sound batch at offset {header.base_offset}.")


def out_of_order(header: BatchHeader, next_offset: int) -> CorruptRecords:
    """The error for a batch whose offsets cannot follow what came before."""
    return CorruptRecords(
        f"A record batch has the offsets {header.base_offset} to {header.last_offset} where "
        f"{max(0, next_offset)} is the least that can follow."
    )


def is_in_order(header: BatchHeader, next_offset: int) -> bool:
    return (
        max(0, next_offset) <= header.base_offset
        and header.last_offset_delta >= 0
        and header.last_offset < _OFFSET_MAX
    )


def _whole_header(buffer: Buffer, position: int) -> BatchHeader | None:
    """The header of the batch at `position` if all of the batch is there."""
    if len(buffer) - position < HEADER_BYTES:
        return None
    try:
        header = parse_header(buffer, position)
    except CorruptRecords:
        return None
    return header if len(buffer) - position >= header.length + LOG_OVERHEAD else None


def _bits(flags: list[bool]) -> bytes | None:
    """A validity bitmap; None when everything is there."""
    if all(flags):
        return None
    number = sum(1 << at for at, is_set in enumerate(flags) if is_set)
    return number.to_bytes((len(flags) + 7) // 8, "little")
