"""Which records compaction keeps: the map of the newest offset of each key, and the filter.

This file knows keys, batches and the rules for single records. It must not know files, segments,
transactions or when compaction runs. It is also the executable specification of the compiled
kernel `_kernels/compact.pyx`, which offers the same two classes: `kernel()` chooses.

Theory (Kafka's Cleaner, MemoryRecords.filterTo, KIP-534). A round reads the uncleaned part of a
log and notes the newest offset of each key, until that part or the map's memory ends. Then it reads
everything from the start of the log and keeps a record if

- it lies behind the last offset that the map covers, or
- it has a key, no newer record in the map has that key, and it has a value or may not go yet: a
  record without a value (a tombstone) stays until the delete horizon that its batch was given the
  first time it was copied, so that slow readers learn of the deletion.

A batch that loses nothing is copied byte for byte. One that loses records, or is given a horizon,
is written anew with its offsets, sequence numbers and leader epoch unchanged.

Batches that are compressed, transactional or control batches are `SPECIAL`: the caller opens and
judges them, and hands the records of those it wants filtered to `add_records` and `survivors`.
"""

from __future__ import annotations

from bisect import bisect_left
from enum import IntEnum
from hashlib import blake2b
from typing import Final, NamedTuple

from strandline.errors import CorruptRecords
from strandline.records._kernels import compiled
from strandline.records.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_BYTES,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    iterate_headers,
    parse_header,
    verify_crc,
)
from strandline.records.builder import join_batch, rebuild_batch, rebuild_records
from strandline.records.record import Record, iterate_payload
from strandline.types import NO_OFFSET

SLOT_BYTES: Final = 24
"""What one key takes: a hash of 16 bytes and an offset of 8, as in Kafka."""

SPECIAL_BITS: Final = CODEC_MASK | TRANSACTIONAL_BIT | CONTROL_BIT


class Stop(IntEnum):
    """Why a walk over batches ended."""

    END = 0
    """Less than a whole batch is left."""
    SPECIAL = 1
    """The batch is compressed, transactional or a control batch."""
    FULL = 2
    """The map took as many keys as it may."""


class FilterRules(NamedTuple):
    """What holds for a whole round. Times are milliseconds since 1970 in UTC."""

    now_ms: int
    horizon_ms: int
    """The delete horizon for batches whose tombstones are copied the first time."""
    producer_ids: tuple[int, ...] = ()
    """The live producers, in increasing order."""
    last_offsets: tuple[int, ...] = ()
    """For each, the offset of its last record, or -1."""
    index_interval_bytes: int = 4096
    notes_gone: bool = False
    """Whether the ranges of dropped offsets are wanted."""


class IndexEntry(NamedTuple):
    """A place in the output that its offset index and its time index must name."""

    last_offset: int
    position: int
    max_timestamp: int
    max_timestamp_offset: int


class KeyMap:
    """The newest offset of each key in `memory_bytes`, filled to `load_factor`.

    Keys are told apart by 16 bytes of a hash keyed with `secret`: with a secret drawn for each
    round no client can prepare keys that collide.
    """

    def __init__(self, memory_bytes: int, load_factor: float, secret: bytes) -> None:
        self.slots = max(1, memory_bytes // SLOT_BYTES)
        self.entries_max = min(int(self.slots * load_factor), self.slots - 1)
        self.latest_offset = -1
        """Everything up to here is in the map. Only moves up."""
        self.records_read = 0
        self._secret = secret
        self._offsets: dict[bytes, int] = {}

    @property
    def entries(self) -> int:
        return len(self._offsets)

    def offset_of(self, key: bytes) -> int:
        """The newest offset of the key, or -1."""
        return self._offsets.get(self._hash(key), NO_OFFSET)

    def advance_to(self, offset: int) -> None:
        """Say that everything up to `offset` is in the map."""
        self.latest_offset = max(self.latest_offset, offset)

    def add_batches(
        self, chunk: Buffer, start: int, end: int, first_offset: int
    ) -> tuple[int, Stop]:
        """Note the keys of the batches in `chunk[start:end]`; returns where and why it stopped.

        Records below `first_offset` are passed over. Raises `CorruptRecords`.
        """
        for position, header in iterate_headers(chunk, start, min(end, len(chunk))):
            if header.attributes & SPECIAL_BITS:
                return position, Stop.SPECIAL
            if header.last_offset >= first_offset:
                payload = _checked_payload(chunk, position, header)
                if self.add_records(header, payload, first_offset):
                    return position, Stop.FULL
                self.advance_to(header.last_offset)
            start = position + header.size_bytes
        return start, Stop.END

    def add_records(self, header: BatchHeader, payload: bytes, first_offset: int) -> bool:
        """Note the keys in a batch's decompressed `payload`; whether there was no room for one.

        Raises `CorruptRecords`, with no key noted, whether there is room or not.
        """
        for record in tuple(iterate_payload(header, payload)):
            if record.key is not None and record.offset >= first_offset:
                if len(self._offsets) >= self.entries_max:
                    return True
                self._offsets[self._hash(record.key)] = record.offset
                self.latest_offset = record.offset
            self.records_read += 1
        return False

    def _hash(self, key: bytes) -> bytes:
        return blake2b(key, digest_size=16, key=self._secret).digest()


class BatchFilter:
    """Copies what a round keeps, and notes what the indexes of the copy must say.

    `waiting_bytes` is the size of the output that `take` would give.
    """

    def __init__(self, keys: KeyMap, rules: FilterRules) -> None:
        self.records_read = 0
        self.records_kept = 0
        self._keys = keys
        self._rules = rules
        self._gone: list[tuple[int, int]] = []
        self.start_segment(0)

    def start_segment(self, base_offset: int) -> None:
        """Begin a new output file; what was not taken of the last one is dropped."""
        self._out = bytearray()
        self._entries: list[IndexEntry] = []
        self._written = 0
        self._since_entry = 0
        self.max_timestamp = -1
        self.max_timestamp_offset = base_offset

    @property
    def waiting_bytes(self) -> int:
        return len(self._out)

    def filter(self, chunk: Buffer, start: int, end: int, last_end: int) -> tuple[int, Stop]:
        """Copy what is to be kept of the batches in `chunk[start:end]`.

        Returns where and why it stopped. A batch that ends at `last_end` is kept even without
        records. Raises `CorruptRecords`.
        """
        for position, header in iterate_headers(chunk, start, min(end, len(chunk))):
            if header.attributes & SPECIAL_BITS:
                return position, Stop.SPECIAL
            start = position + header.size_bytes
            payload = _checked_payload(chunk, position, header)
            kept = self.survivors(header, payload)
            if kept is None:
                self.emit(memoryview(chunk)[position:start])
            elif kept[0].record_count:
                self.emit(join_batch(*kept))
            elif start == last_end or self.is_last_of_producer(header):
                self.emit(rebuild_batch(header, ()))
        return start, Stop.END

    def survivors(self, header: BatchHeader, payload: bytes) -> tuple[BatchHeader, bytes] | None:
        """What stays of a batch's decompressed `payload`, with the header fields that belong to it.

        None when the batch stays as it is. Length and checksum of the header are not right yet.
        """
        kept: list[Record] = []
        count = 0
        for record in iterate_payload(header, payload):
            count += 1
            if self._keeps(header, record):
                kept.append(record)
            elif self._rules.notes_gone:
                self._note_gone(record.offset, record.offset)
        self.records_read += count
        self.records_kept += len(kept)
        needs_horizon = header.delete_horizon_ms is None and any(r.value is None for r in kept)
        if count and len(kept) == count and not needs_horizon:
            return None
        horizon_ms = self._rules.horizon_ms if needs_horizon else None
        return rebuild_records(header, kept, delete_horizon_ms=horizon_ms)

    def _keeps(self, header: BatchHeader, record: Record) -> bool:
        if record.offset > self._keys.latest_offset:
            return True
        if record.key is None or record.offset < self._keys.offset_of(record.key):
            return False
        horizon_ms = header.delete_horizon_ms
        return record.value is not None or horizon_ms is None or self._rules.now_ms < horizon_ms

    def is_last_of_producer(self, header: BatchHeader) -> bool:
        """Whether the sequence of a live producer ends with this data batch."""
        ids = self._rules.producer_ids
        index = bisect_left(ids, header.producer_id)
        return (
            header.producer_id >= 0
            and index < len(ids)
            and ids[index] == header.producer_id
            and self._rules.last_offsets[index] == header.last_offset
        )

    def emit(self, batch: Buffer) -> None:
        """Copy a whole batch, and index it as an append would."""
        header = parse_header(batch)
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp = header.max_timestamp
            self.max_timestamp_offset = header.last_offset
        if self._since_entry > self._rules.index_interval_bytes:
            self._entries.append(
                IndexEntry(
                    header.last_offset, self._written, self.max_timestamp, self.max_timestamp_offset
                )
            )
            self._since_entry = 0
        self._since_entry += len(batch)
        self._written += len(batch)
        self._out += batch

    def take(self) -> tuple[bytes, list[IndexEntry]]:
        """The output since the last call, and the index entries in it."""
        out, entries = bytes(self._out), self._entries
        self._out, self._entries = bytearray(), []
        return out, entries

    def count_kept(self, header: BatchHeader) -> None:
        """Count the records of a batch that the caller keeps as a whole."""
        self.records_read += header.record_count
        self.records_kept += header.record_count

    def count_gone(self, header: BatchHeader) -> None:
        """Count the records of a batch that the caller drops as a whole."""
        self.records_read += header.record_count
        if self._rules.notes_gone and header.record_count:
            self._note_gone(header.base_offset, header.last_offset)

    def _note_gone(self, first: int, last: int) -> None:
        if self._gone and self._gone[-1][1] == first - 1:
            first = self._gone.pop()[0]
        self._gone.append((first, last))

    def take_gone(self) -> list[tuple[int, int]]:
        """The ranges (first, last) of dropped offsets since the last call, if they are noted."""
        gone, self._gone = self._gone, []
        return gone


def kernel() -> tuple[type[KeyMap], type[BatchFilter]]:
    """The two classes: compiled, or the twins in this file."""
    module = compiled("compact")
    return (KeyMap, BatchFilter) if module is None else (module.KeyMap, module.BatchFilter)


def _checked_payload(chunk: Buffer, position: int, header: BatchHeader) -> bytes:
    if not verify_crc(chunk, position, header.size_bytes):
        raise CorruptRecords(
            f"The record batch at offset {header.base_offset} does not match its checksum."
        )
    return bytes(chunk[position + HEADER_BYTES : position + header.size_bytes])
