"""Reading a closed segment from its first batch to its last, in pieces of bounded size.

This file knows how to get whole batches into memory. It must not know what is done with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from strandline.errors import CorruptRecords, StrandlineError
from strandline.records.batch import HEADER_BYTES, BatchHeader, verify_crc
from strandline.storage.batch_scan import damaged, header_in
from strandline.storage.compaction.plan import CleaningPlan, SegmentToClean
from strandline.storage.files import File, Files
from strandline.storage.segment_names import LOG, segment_path


class CleaningAborted(StrandlineError):
    """A round of compaction was ended before it was done; nothing of it is left."""


class Pace(Protocol):
    """How fast a round goes, and whether it goes on. The driver's part of a round."""

    def spend(self, byte_count: int) -> None:
        """So many bytes were read or written. May wait; raises `CleaningAborted` to end the round.

        Called with at most about the size of the buffers, or of one batch.
        """


class SegmentCursor:
    """A place in a segment, and the bytes from there on."""

    def __init__(self, file: File, end: int, chunk_bytes: int, pace: Pace) -> None:
        self._file = file
        self._end = end
        self._chunk_bytes = self._wanted = chunk_bytes
        self._pace = pace
        self._chunk = b""
        self.position = 0

    @property
    def chunk_end(self) -> int:
        """Where in the chunk the segment ends; beyond the chunk if it does not."""
        return self._end - self.position

    def read(self) -> bytes | None:
        """The next piece, which begins with a batch; None at the end of the segment."""
        if self.position >= self._end:
            return None
        self._chunk = self._file.read_at(self.position, min(self._wanted, self.chunk_end))
        self._pace.spend(len(self._chunk))
        return self._chunk

    def advance(self, used: int) -> None:
        """Go on behind the whole batches in the first `used` bytes. Raises `DamagedSegment`."""
        self._wanted = self._chunk_bytes
        if used == 0:
            # One batch that is larger than the buffer, or none at all.
            self._wanted = header_in(self._file, self._chunk, 0, self.position).size_bytes
            if not len(self._chunk) < self._wanted <= self.chunk_end:
                raise damaged(self._file, self.position, "the batch is cut off")
        self.position += used


class SegmentReader:
    """Opens the segments of one plan."""

    def __init__(self, plan: CleaningPlan, files: Files, pace: Pace) -> None:
        self._directory = plan.directory
        self._chunk_bytes = max(HEADER_BYTES, plan.settings.io_buffer_bytes // 2)
        self._files = files
        self._pace = pace

    @contextmanager
    def open(self, segment: SegmentToClean) -> Iterator[SegmentCursor]:
        """A cursor at the start of the segment."""
        file = self._files.open(segment_path(self._directory, segment.base_offset, LOG))
        try:
            yield SegmentCursor(file, segment.size_bytes, self._chunk_bytes, self._pace)
        finally:
            file.close()


def check_batch(header: BatchHeader, chunk: bytes, position: int) -> None:
    """Raise `CorruptRecords` unless the batch is as it was written."""
    if not verify_crc(chunk, position, header.size_bytes):
        raise CorruptRecords(
            f"The record batch at offset {header.base_offset} does not match its checksum."
        )
