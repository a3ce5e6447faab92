"""The batches of one segment file in order, whole or damaged, as far as they can be followed.

This file knows how to get from one batch to the next and when that is over. It must not know which
offsets are expected.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from strandline.errors import CorruptRecords
from strandline.records.batch import HEADER_BYTES, BatchHeader, parse_header, verify_crc
from strandline.records.columns import BuilderLimits, new_builder
from strandline.records.control import EndTransactionMarker, parse_marker
from strandline.records.record import read_records
from strandline.storage.files import File

_CHUNK_BYTES: Final = 4 * 1024 * 1024
_UNCHECKED: Final = BuilderLimits(checks_crc=False)


class StoredBatch(NamedTuple):
    """A batch where it lies. The bytes are good until the next one is asked for."""

    position: int
    header: BatchHeader
    data: memoryview
    damage: str
    """What is wrong with its bytes; empty if nothing is."""
    marker: EndTransactionMarker | None


class Unreadable(NamedTuple):
    """Here no batch begins, or not all of it is there: what follows in the file is unknown."""

    position: int
    reason: str
    is_unwritten: bool
    """Only zeros follow: room that was reserved, or that a crash left."""


def stored_batches(file: File) -> Iterator[StoredBatch | Unreadable]:
    """Everything in the file, and an `Unreadable` last if the file does not end with a batch."""
    position, end = 0, file.size
    chunk, chunk_at = memoryview(b""), 0
    while position < end:
        at = position - chunk_at
        if at + HEADER_BYTES > len(chunk):
            chunk, chunk_at, at = _read(file, position, _CHUNK_BYTES), position, 0
        try:
            header = parse_header(chunk, at)
        except CorruptRecords as error:
            yield Unreadable(position, str(error), _only_zeros(file, position))
            return
        size = header.size_bytes
        if size > end - position:
            reason = f"A record batch of {size} bytes is cut off after {end - position}."
            yield Unreadable(position, reason, is_unwritten=False)
            return
        if at + size > len(chunk):
            chunk, chunk_at, at = _read(file, position, max(size, _CHUNK_BYTES)), position, 0
        yield _checked(position, header, chunk[at : at + size])
        position += size


def _checked(position: int, header: BatchHeader, data: memoryview) -> StoredBatch:
    marker = None
    damage = ""
    if not verify_crc(data, 0, len(data)):
        damage = "A record batch does not match its checksum."
        return StoredBatch(position, header, data, damage, marker)
    try:
        if header.is_control:
            for record in read_records(data, check_crc=False):
                marker = parse_marker(record)
        else:
            new_builder(_UNCHECKED).take_batch(header, data, 0)
    except CorruptRecords as error:
        damage = str(error)
    return StoredBatch(position, header, data, damage, marker)


def _read(file: File, position: int, length: int) -> memoryview:
    return memoryview(file.read_at(position, length))


def _only_zeros(file: File, position: int) -> bool:
    while position < file.size:
        chunk = file.read_at(position, _CHUNK_BYTES)
        if not chunk or any(chunk):
            return False
        position += len(chunk)
    return True
