"""The batches of one segment and how they are found: a `.log` file and the indexes beside it.

This file knows where batches are and which index entries lead to them. It must not know when a
segment begins, is appended to, or ends; that is `segment`.

Theory: the indexes are sparse. A lookup gives a place at or before the wanted one, and a short scan
of batch headers goes on from there. An index that cannot be right is rebuilt from the batches, so
that a damaged index costs time and never wrong data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from strandline.errors import StorageError
from strandline.records.batch import HEADER_BYTES, BatchHeader
from strandline.storage.batch_scan import (
    SCAN_CHUNK_BYTES,
    DamagedSegment,
    header_at,
    headers_between,
)
from strandline.storage.files import File, Files, MissingFile, sync_new
from strandline.storage.index_file import DamagedIndex
from strandline.storage.offset_index import LAYOUT as OFFSET_LAYOUT
from strandline.storage.offset_index import RELATIVE_OFFSET_MAX, IndexedPosition, OffsetIndex
from strandline.storage.segment_names import (
    OFFSET_INDEX,
    REBUILT,
    TIME_INDEX,
    TRANSACTION_INDEX,
    segment_path,
)
from strandline.storage.time_index import TimeIndex, TimestampOffset
from strandline.storage.transaction_index import TransactionIndex
from strandline.types import NO_TIMESTAMP, Offset

INDEX_INTERVAL_DEFAULT: Final = 4096
_T = TypeVar("_T")


class IndexedSegment:
    """See the module. Sizes and positions are bytes in the `.log` file.

    - `size`: every batch lies in `[0, size)`; moved by appending and cutting.
    - `max_timestamp`, `max_timestamp_offset`: the largest timestamp so far and the last offset of
      the batch that has it. Only for an active segment; else ask `largest_timestamp`.
    """

    __slots__ = (
        "base_offset",
        "bytes_since_entry",
        "directory",
        "files",
        "index_interval_bytes",
        "indexes_full",
        "last_offset_max",
        "log",
        "max_timestamp",
        "max_timestamp_offset",
        "offset_index",
        "size",
        "time_index",
        "transaction_index",
    )

    def __init__(self, files: Files, directory: str, base_offset: int, log: File) -> None:
        self.files = files
        self.directory = directory
        self.base_offset = base_offset
        self.log = log
        self.size = log.size
        self.offset_index = OffsetIndex(files, self.path(OFFSET_INDEX), base_offset)
        self.time_index = TimeIndex(files, self.path(TIME_INDEX), base_offset)
        self.transaction_index = TransactionIndex(files, self.path(TRANSACTION_INDEX))
        self.last_offset_max = base_offset + RELATIVE_OFFSET_MAX
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self.bytes_since_entry = 0
        self.index_interval_bytes = INDEX_INTERVAL_DEFAULT
        self.indexes_full = False

    def path(self, kind: str) -> str:
        """The path of one of the segment's files."""
        return segment_path(self.directory, self.base_offset, kind)

    def find(self, offset: int) -> tuple[int, BatchHeader] | None:
        """Position and header of the first batch that ends at or after `offset`."""
        if self.size == 0:
            return None
        start = self.floor_position(offset).position
        for position, header in headers_between(self.log, start, self.size):
            if header.last_offset >= offset:
                return position, header
        return None

    def floor_position(self, offset: int) -> IndexedPosition:
        """A batch boundary from which to scan for `offset`, out of the index if it is right."""

        def believable() -> IndexedPosition:
            found = self.offset_index.lookup(offset)
            if found.position:
                if found.position >= self.size:
                    raise DamagedIndex(f"{self.offset_index.path} points behind its segment.")
                self._check_points_at_batch(found.position, offset)
            return found

        return self.with_indexes(believable)

    def _check_points_at_batch(self, position: int, offset: int) -> None:
        # Any batch that starts at or below the wanted offset is a right place to scan from.
        try:
            header = header_at(self.log, position)
        except DamagedSegment as error:
            raise DamagedIndex(f"{self.offset_index.path} points between batches.") from error
        if not self.base_offset <= header.base_offset <= offset:
            raise DamagedIndex(f"{self.offset_index.path} points at offset {header.base_offset}.")

    def boundary_below(self, start: int, limit: int) -> tuple[int, int]:
        """The last batch boundary in `[start, limit]`, where `start` is one.

        With it comes the offset of the batch there, or else of what will be appended there.
        """

        def believable() -> IndexedPosition:
            found = self.offset_index.lookup_position(limit)
            if found.position > start:
                self._check_points_at_batch(found.position, found.offset)
            return found

        indexed = self.with_indexes(believable)
        boundary = max(start, indexed.position)
        upper = indexed.offset + 1
        for position, header in headers_between(self.log, boundary, self.size):
            if position + header.size_bytes > limit:
                upper = header.base_offset
                break
            boundary, upper = position + header.size_bytes, header.next_offset
        return boundary, upper

    def last_batch(self) -> BatchHeader | None:
        """The header of the last batch."""
        start = self.floor_position(self.last_offset_max).position
        last = None
        for _, header in headers_between(self.log, start, self.size):
            last = header
        return last

    def end_offset(self) -> Offset:
        """The offset after the last batch; the base offset without one. Costs a short scan."""
        last = self.last_batch()
        return Offset(self.base_offset) if last is None else last.next_offset

    def largest_timestamp(self) -> TimestampOffset:
        """The largest timestamp in the segment and the last offset of the batch that has it."""
        if self.max_timestamp == NO_TIMESTAMP and not self.time_index.capacity and self.size:
            last = self.with_indexes(lambda: self.time_index.last)
            self.max_timestamp, self.max_timestamp_offset = last
        return TimestampOffset(self.max_timestamp, self.max_timestamp_offset)

    def note_batch(self, header: BatchHeader, position: int) -> None:
        """Index a batch that is in the file already, as `append_batch` would have done."""
        last_offset = header.last_offset
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp = header.max_timestamp
            self.max_timestamp_offset = last_offset
        if self.bytes_since_entry > self.index_interval_bytes:
            self.offset_index.make_room()
            self.time_index.make_room()
            self.add_entries(last_offset, position)
        self.bytes_since_entry += header.size_bytes

    def add_entries(self, last_offset: int, position: int) -> None:
        self.offset_index.add_batch(last_offset, position)
        self.time_index.add_largest(self.max_timestamp, self.max_timestamp_offset)
        self.bytes_since_entry = 0
        self.note_full()

    def note_full(self) -> None:
        self.indexes_full = self.offset_index.is_full or self.time_index.is_full

    def close_indexes(self) -> None:
        """Bring all files to their final contents, because nothing more will be appended."""
        self.time_index.add_largest(self.max_timestamp, self.max_timestamp_offset, closing=True)
        self.offset_index.trim()
        self.time_index.trim()

    def rebuild_indexes(self) -> None:
        """Make the offset and time index anew from the batches, whose checksums are not read."""
        capacity = self.offset_index.capacity * OFFSET_LAYOUT.size
        if capacity:
            # Of an active segment: the next start makes these anew unless it was clean.
            self._index_everything(capacity)
        else:
            self._rebuild_aside()

    def _rebuild_aside(self) -> None:
        """Of a closed segment, whose indexes recovery may trust: whole and durable, or as before.

        Written in place, half an index could outlive a crash and pass for a whole one (I-04).
        """
        paths = self.offset_index.path, self.time_index.path
        self.offset_index.close()
        self.time_index.close()
        try:
            self._use_indexes_at(*(path + REBUILT for path in paths))
            self._index_everything(self.size + HEADER_BYTES)
            self.close_indexes()
            for index in (self.offset_index, self.time_index):
                sync_new(index.file)
                path = index.path.removesuffix(REBUILT)
                self.files.rename(index.path, path)
                index.moved_to(path)
            self.files.sync_directory(self.directory)
        except StorageError:
            self.offset_index.close()
            self.time_index.close()
            self._use_indexes_at(*paths)
            for path in paths:
                self.files.remove(path + REBUILT)
            raise

    def _use_indexes_at(self, offset_path: str, time_path: str) -> None:
        self.offset_index = OffsetIndex(self.files, offset_path, self.base_offset)
        self.time_index = TimeIndex(self.files, time_path, self.base_offset)

    def _index_everything(self, capacity_bytes: int) -> None:
        self.start_indexes(capacity_bytes)
        for position, header in headers_between(self.log, 0, self.size, SCAN_CHUNK_BYTES):
            self.note_batch(header, position)

    def start_indexes(self, capacity_bytes: int) -> None:
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = self.base_offset
        self.bytes_since_entry = 0
        self.offset_index.start_empty(capacity_bytes)
        self.time_index.start_empty(capacity_bytes)

    def with_indexes(self, use: Callable[[], _T]) -> _T:
        """What `use` returns; with rebuilt indexes if it finds them missing or damaged."""
        try:
            self._open_indexes()
            return use()
        except (DamagedIndex, MissingFile):
            self.rebuild_indexes()
            return use()

    def _open_indexes(self) -> None:
        if not self.offset_index.is_open:
            self.offset_index.open_existing()
            self.offset_index.check_within(self.size)
        if not self.time_index.is_open:
            self.time_index.open_existing()
            self._check_time_index()

    def _check_time_index(self) -> None:
        """Raise `DamagedIndex` unless the last entry is true; a closed segment always has one, if
        one of its records has a timestamp."""
        timestamp, offset = self.time_index.last
        if self.time_index.entries == 0:
            headers = headers_between(self.log, 0, self.size, SCAN_CHUNK_BYTES)
            if any(header.max_timestamp > NO_TIMESTAMP for _, header in headers):
                raise DamagedIndex(f"{self.time_index.path} has no entry.")
            return
        found = self.find(offset)
        if found is None or not (
            found[1].base_offset <= offset and found[1].max_timestamp == timestamp
        ):
            raise DamagedIndex(
                f"{self.time_index.path} ends with an entry that no batch bears out."
            )
