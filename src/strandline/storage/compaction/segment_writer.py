"""Writing the segment that takes the place of a group: files that end in `.cleaned`.

This file knows how a closed segment's files look and how they become durable. It must not know what
is copied into them, or what happens to them later (`segment_swap`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from strandline.errors import InvariantViolated
from strandline.records.compacting import IndexEntry
from strandline.storage.files import Buffer, File, Files, sync_new
from strandline.storage.offset_index import OffsetIndex
from strandline.storage.segment_names import (
    CLEANED,
    LOG,
    OFFSET_INDEX,
    SEGMENT_FILES,
    TIME_INDEX,
    TRANSACTION_INDEX,
    segment_path,
)
from strandline.storage.time_index import TimeIndex
from strandline.storage.transaction_index import AbortedTransaction, TransactionIndex

SEGMENT_BYTES_MAX: Final = 2**31 - 1
"""Positions in an offset index have 31 bits."""


class OutgrownSegment(Exception):
    """What is copied takes more room than a segment may have."""


class SegmentWriter:
    """One new segment. `finish` or `discard` it."""

    def __init__(
        self, files: Files, directory: str, base_offset: int, index_bytes_max: int
    ) -> None:
        """Touches nothing; `start` does."""
        self.size_bytes = 0
        self._files = files
        self._directory = directory
        self._index_bytes_max = index_bytes_max
        self._paths = cleaned_paths(directory, base_offset)
        by_kind = dict(zip(SEGMENT_FILES, self._paths, strict=True))
        self._log_path = by_kind[LOG]
        self._log: File | None = None
        self._offset_index = OffsetIndex(files, by_kind[OFFSET_INDEX], base_offset)
        self._time_index = TimeIndex(files, by_kind[TIME_INDEX], base_offset)
        self._aborted = TransactionIndex(files, by_kind[TRANSACTION_INDEX])

    def start(self) -> None:
        """Make the files, empty."""
        for path in self._paths:
            self._files.remove(path)
        self._log = self._files.open(self._log_path, create=True)
        self._offset_index.start_empty(self._index_bytes_max)
        self._time_index.start_empty(self._index_bytes_max)

    def append(self, batches: Buffer, entries: Sequence[IndexEntry]) -> None:
        """Write batches and what the indexes say of them. Raises `OutgrownSegment`."""
        if self.size_bytes + len(batches) > SEGMENT_BYTES_MAX:
            raise OutgrownSegment(f"{self._log_path} would take more than 2 GiB.")
        if self._log is None:
            raise InvariantViolated(f"{self._log_path} was written to before it was made.")
        self._log.append(batches)
        self.size_bytes += len(batches)
        for last_offset, position, timestamp, timestamp_offset in entries:
            self._offset_index.make_room()
            self._time_index.make_room()
            self._offset_index.add_batch(last_offset, position)
            self._time_index.add_largest(timestamp, timestamp_offset)

    def append_aborted(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Note aborted transactions of which something is left."""
        for transaction in transactions:
            self._aborted.append(transaction)

    def finish(self, max_timestamp: int, max_timestamp_offset: int) -> None:
        """Bring all files to their final contents, durably, names included."""
        self._time_index.add_largest(max_timestamp, max_timestamp_offset, closing=True)
        self._offset_index.trim()
        self._time_index.trim()
        for file in (
            self._log,
            self._offset_index.file,
            self._time_index.file,
            self._aborted.file,
        ):
            if file is not None:
                sync_new(file)
        self._files.sync_directory(self._directory)
        self._close()

    def discard(self) -> None:
        """Leave no trace."""
        self._close()
        for path in self._paths:
            self._files.remove(path)

    def _close(self) -> None:
        if self._log is not None:
            self._log.close()
        self._offset_index.close()
        self._time_index.close()
        self._aborted.close()


def cleaned_paths(directory: str, base_offset: int, suffix: str = CLEANED) -> list[str]:
    """The paths of a new segment's files before they have their place, in Kafka's order."""
    return [segment_path(directory, base_offset, kind) + suffix for kind in SEGMENT_FILES]
