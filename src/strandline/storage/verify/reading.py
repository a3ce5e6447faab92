"""The batches of one segment file in order, whole or damaged, as far as they can be followed.

This file knows how to get from one batch to the next, believing nothing that it reads, and when
that is over. It must not know which offsets are expected (`order`).

`batches_between` compares bytes with checksums; `stored_batches` reads the records too, for an
audit; `checked_batches` ends at the first fault, for recovery and for rebuilding state.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from strandline.errors import CorruptRecords
from strandline.records.batch import HEADER_BYTES, BatchHeader, parse_header, verify_crc
from strandline.records.columns import BuilderLimits, new_builder
from strandline.records.control import EndTransactionMarker, parse_marker
from strandline.records.record import read_records
from strandline.storage.batch_scan import SCAN_CHUNK_BYTES
from strandline.storage.files import File

_AUDIT_CHUNK_BYTES: Final = 4 * 1024 * 1024
_UNCHECKED: Final = BuilderLimits(checks_crc=False)


class StoredBatch(NamedTuple):
    """A batch where it lies. The bytes are good until the next one is asked for."""

    position: int
    header: BatchHeader
    data: memoryview
    damage: str = ""
    """What is wrong with its bytes; empty if nothing is."""
    marker: EndTransactionMarker | None = None


class Unreadable(NamedTuple):
    """Here no batch begins, or not all of it is there: what follows in the file is unknown."""

    position: int
    reason: str


def batches_between(
    file: File, position: int, end: int, chunk_bytes: int = SCAN_CHUNK_BYTES
) -> Iterator[StoredBatch | Unreadable]:
    """Everything in `[position, end)`, and an `Unreadable` last if that does not end with a batch.

    What is in the records is not looked at.
    """
    chunk, chunk_at = memoryview(b""), position

    def read(length: int) -> memoryview:
        return memoryview(file.read_at(position, min(length, end - position)))

    while position < end:
        at = position - chunk_at
        if at + HEADER_BYTES > len(chunk):
            chunk, chunk_at, at = read(chunk_bytes), position, 0
        try:
            header = parse_header(chunk, at)
        except CorruptRecords as error:
            yield Unreadable(position, str(error))
            return
        size = header.size_bytes
        if size > end - position:
            reason = f"A record batch of {size} bytes is cut off after {end - position}."
            yield Unreadable(position, reason)
            return
        if at + size > len(chunk):
            chunk, chunk_at, at = read(max(size, chunk_bytes)), position, 0
        damage = ""
        if not verify_crc(chunk, at, size):
            damage = "A record batch does not match its checksum."
        elif header.last_offset_delta < 0:
            damage = "A record batch ends before its first offset."
        yield StoredBatch(position, header, chunk[at : at + size], damage)
        position += size


def checked_batches(
    file: File, position: int, end: int
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Yield (position, header, whole batch) while batches are whole and match their checksum.

    Raises `CorruptRecords` with the reason at the first that does not. The memoryview is good
    until the next step.
    """
    for found in batches_between(file, position, end):
        if isinstance(found, Unreadable):
            raise CorruptRecords(found.reason)
        if found.damage:
            raise CorruptRecords(found.damage)
        yield found.position, found.header, found.data


def stored_batches(file: File) -> Iterator[StoredBatch | Unreadable]:
    """Everything in the file, with the records of every batch read."""
    for found in batches_between(file, 0, file.size, _AUDIT_CHUNK_BYTES):
        yield found if isinstance(found, Unreadable) or found.damage else _read_records(found)


def _read_records(batch: StoredBatch) -> StoredBatch:
    marker = None
    damage = ""
    try:
        if batch.header.is_control:
            for record in read_records(batch.data, check_crc=False):
                marker = parse_marker(record)
        else:
            new_builder(_UNCHECKED).take_batch(batch.header, batch.data, 0)
    except CorruptRecords as error:
        damage = str(error)
    return batch._replace(damage=damage, marker=marker)


def is_reserved(file: File, position: int) -> bool:
    """Whether room begins here that `preallocate` claimed or a crash left unwritten: zeros."""
    start = file.read_at(position, HEADER_BYTES)
    return bool(start) and not any(start)


def is_unwritten(file: File, position: int) -> bool:
    """Whether only zeros follow, to the end of the file."""
    while position < file.size:
        chunk = file.read_at(position, _AUDIT_CHUNK_BYTES)
        if not chunk or chunk != bytes(len(chunk)):
            return False
        position += len(chunk)
    return True
