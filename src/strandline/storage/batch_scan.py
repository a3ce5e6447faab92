"""Walking over the record batches in a `.log` file.

This file knows how to get from one batch to the next with few reads. It must not know indexes or
what is done with the batches. It reads headers alone and trusts them, as every read of the log
does; what reads everything and believes nothing is `verify/reading`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from strandline.errors import CorruptRecords, StorageError
from strandline.records.batch import HEADER_BYTES, BatchHeader, parse_header
from strandline.storage.files import File
from strandline.storage.old_messages import old_magic_at

LOOKUP_CHUNK_BYTES: Final = 8 * 1024
SCAN_CHUNK_BYTES: Final = 1024 * 1024


class DamagedSegment(StorageError):
    """The batches of a segment cannot be read: its bytes rotted, or it was changed by others."""


class OldFormat(DamagedSegment):
    """A message of format 0 or 1: no damage, and not to be cut, but not read here either."""


def headers_between(
    file: File, position: int, end: int, chunk_bytes: int = LOOKUP_CHUNK_BYTES
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) for the batches in `[position, end)`, both batch boundaries.

    Raises `DamagedSegment` where there is no whole batch.
    """
    chunk, chunk_at = b"", position
    while position < end:
        if position + HEADER_BYTES > chunk_at + len(chunk):
            chunk_at = position
            chunk = file.read_at(position, min(chunk_bytes, end - position))
        header = header_in(file, chunk, position - chunk_at, chunk_at)
        if header.size_bytes > end - position:
            raise damaged(file, position, "the batch is cut off")
        yield position, header
        position += header.size_bytes


def header_at(file: File, position: int) -> BatchHeader:
    """The header of the batch at `position`. Raises `DamagedSegment`."""
    return header_in(file, file.read_at(position, HEADER_BYTES), 0, position)


def header_in(file: File, chunk: bytes, at: int, chunk_at: int) -> BatchHeader:
    """The header at `at` in bytes that were read at `chunk_at`. Raises `DamagedSegment`."""
    try:
        return parse_header(chunk, at)
    except CorruptRecords as error:
        refuse_old_format(file, chunk_at + at)
        raise damaged(file, chunk_at + at, str(error)) from error


def refuse_old_format(file: File, position: int) -> None:
    """Raise `OldFormat` if there is a message of format 0 or 1 at `position`."""
    magic = old_magic_at(file, position)
    if magic is not None:
        raise OldFormat(
            f"{file.path} has a message of format {magic} at position {position}: Kafka wrote such "
            "before 0.11, and Strandline does not read them."
        )


def damaged(file: File, position: int, reason: str) -> DamagedSegment:
    """The error that says where a segment stops being readable."""
    return DamagedSegment(f"{file.path} has no record batch at position {position}: {reason}")
