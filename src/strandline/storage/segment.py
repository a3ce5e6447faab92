"""One segment of a log: a `.log` file of batches and the three indexes beside it.

This file knows one segment: where its batches are, its largest timestamp, when it should be closed.
It must not know other segments, offsets that are to be assigned, or replicas.

Theory: only the last segment of a log is active, that is, appended to. An active segment keeps the
offsets and positions of its newest batches in memory (`Tail`), because that is where nearly every
read happens; older batches are found through the sparse offset index and a short scan. A closed
segment holds no contents in memory and opens its files when they are needed. An index that cannot
be right is rebuilt from the batches, so that a damaged index costs time and never wrong data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from strandline.config.topic import LONG_MAX, TopicConfig
from strandline.records.batch import HEADER_BYTES, BatchHeader
from strandline.storage.batch_scan import (
    SCAN_CHUNK_BYTES,
    DamagedSegment,
    header_at,
    headers_between,
)
from strandline.storage.files import Buffer, File, Files, MissingFile
from strandline.storage.index_file import DamagedIndex
from strandline.storage.offset_index import LAYOUT as OFFSET_LAYOUT
from strandline.storage.offset_index import RELATIVE_OFFSET_MAX, IndexedPosition, OffsetIndex
from strandline.storage.segment_names import (
    LOG,
    OFFSET_INDEX,
    SEGMENT_FILES,
    TIME_INDEX,
    TRANSACTION_INDEX,
    segment_path,
)
from strandline.storage.tail import Tail
from strandline.storage.time_index import LAYOUT as TIME_LAYOUT
from strandline.storage.time_index import TimeIndex, TimestampOffset
from strandline.storage.transaction_index import TransactionIndex
from strandline.types import NO_TIMESTAMP, Offset

NEVER: Final = LONG_MAX
INDEX_INTERVAL_DEFAULT: Final = 4096
_T = TypeVar("_T")


class Segment:
    """See the module. Sizes and positions are bytes in the `.log` file.

    - `size`: every batch lies in `[0, size)`; moved by `append_batch` and `truncate_to`.
    - `max_timestamp`, `max_timestamp_offset`: the largest timestamp so far and the last offset of
      the batch that has it. Only for an active segment; else ask `largest_timestamp`.
    - `roll_at_timestamp`, `roll_at_ms`: close the segment in front of a batch with a larger
      timestamp, or after that wall time; moved when the first batch arrives.
    """

    __slots__ = (
        "base_offset",
        "bytes_since_entry",
        "created_ms",
        "directory",
        "files",
        "first_timestamp",
        "index_interval_bytes",
        "indexes_full",
        "jitter_ms",
        "last_offset_max",
        "log",
        "max_timestamp",
        "max_timestamp_offset",
        "offset_index",
        "roll_after_ms",
        "roll_at_ms",
        "roll_at_timestamp",
        "size",
        "synced_names",
        "tail",
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
        self.tail = Tail()
        self.synced_names = False
        """Whether the directory was synced since the files of this segment were created."""
        self.last_offset_max = base_offset + RELATIVE_OFFSET_MAX
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self.first_timestamp: int | None = None
        self.bytes_since_entry = 0
        self.index_interval_bytes = INDEX_INTERVAL_DEFAULT
        self.indexes_full = False
        self.created_ms = 0
        self.jitter_ms = 0
        self.roll_after_ms = NEVER
        self.roll_at_timestamp = NEVER
        self.roll_at_ms = NEVER

    @classmethod
    def create(cls, files: Files, directory: str, base_offset: int, config: TopicConfig) -> Segment:
        """Make the files of a new, empty, active segment; none of them is left after an error."""
        paths = [segment_path(directory, base_offset, kind) for kind in SEGMENT_FILES]
        for path in paths:
            files.remove(path)
        try:
            segment = cls(files, directory, base_offset, files.open(paths[0], create=True))
            segment.offset_index.start_empty(config.segment_index_bytes)
            segment.time_index.start_empty(config.segment_index_bytes)
            if config.preallocate:
                segment.log.reserve(config.segment_bytes)
        except BaseException:
            for path in paths:
                files.remove(path)
            raise
        segment.tail.restart(base_offset)
        segment.index_interval_bytes = config.index_interval_bytes
        segment._note_full()
        return segment

    @classmethod
    def existing(cls, files: Files, directory: str, base_offset: int) -> Segment:
        """A closed segment as it is on disk. Reads nothing but the size of its `.log` file."""
        log = files.open(segment_path(directory, base_offset, LOG))
        return cls(files, directory, base_offset, log)

    def path(self, kind: str) -> str:
        """The path of one of the segment's files."""
        return segment_path(self.directory, self.base_offset, kind)

    # -- Appending ---------------------------------------------------------------------------

    def append_batch(self, batch: Buffer, size: int, last_offset: int, max_timestamp: int) -> None:
        """Write one batch of `size` bytes. After a `StorageError` the segment is as before."""
        position = self.size
        waiting = self.bytes_since_entry
        wants_entry = waiting > self.index_interval_bytes
        if wants_entry:
            self.offset_index.make_room()
            self.time_index.make_room()
        self.log.append(batch)
        self.size = position + size
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if wants_entry:
            self._add_entries(last_offset, position)
            waiting = 0
        self.bytes_since_entry = waiting + size
        self.tail.add(last_offset, position)
        if position == 0:
            self.first_timestamp = max_timestamp
            self._set_roll_deadline()

    def note_batch(self, header: BatchHeader, position: int) -> None:
        """Index a batch that is in the file already, as `append_batch` would have done."""
        last_offset = header.last_offset
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp = header.max_timestamp
            self.max_timestamp_offset = last_offset
        if self.bytes_since_entry > self.index_interval_bytes:
            self.offset_index.make_room()
            self.time_index.make_room()
            self._add_entries(last_offset, position)
        self.bytes_since_entry += header.size_bytes

    def _add_entries(self, last_offset: int, position: int) -> None:
        self.offset_index.add_batch(last_offset, position)
        self.time_index.add_largest(self.max_timestamp, self.max_timestamp_offset)
        self.bytes_since_entry = 0
        self._note_full()

    def _note_full(self) -> None:
        self.indexes_full = self.offset_index.is_full or self.time_index.is_full

    # -- Opening and closing -----------------------------------------------------------------

    def start_clock(self, config: TopicConfig, now_ms: int, jitter_ms: int) -> None:
        """Begin the life of an active segment: from now on its age counts."""
        self.created_ms = now_ms
        self.jitter_ms = jitter_ms
        self.follow(config)

    def follow(self, config: TopicConfig) -> None:
        """Take over settings that changed."""
        self.index_interval_bytes = config.index_interval_bytes
        self.roll_after_ms = config.max_segment_ms - min(self.jitter_ms, config.max_segment_ms)
        self._set_roll_deadline()

    def open_for_append(self, config: TopicConfig, end_offset: int) -> None:
        """Make a closed segment, whose last batch ends in front of `end_offset`, active again."""
        self.index_interval_bytes = config.index_interval_bytes
        self.with_indexes(_nothing)
        last = self.time_index.last
        self.max_timestamp, self.max_timestamp_offset = last
        # Without a closing entry, batches behind the last one may have larger timestamps.
        start = self.offset_index.lookup(last.offset).position if self.time_index.entries else 0
        for _, header in headers_between(self.log, start, self.size, SCAN_CHUNK_BYTES):
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp = header.max_timestamp
                self.max_timestamp_offset = header.last_offset
        self.offset_index.resize(config.segment_index_bytes)
        self.time_index.resize(config.segment_index_bytes)
        self.first_timestamp = header_at(self.log, 0).max_timestamp if self.size else None
        self.bytes_since_entry = 0
        self.tail.restart(end_offset)
        self._note_full()
        self._set_roll_deadline()

    def close_indexes(self) -> None:
        """Bring all files to their final contents, because nothing more will be appended."""
        self.time_index.add_largest(self.max_timestamp, self.max_timestamp_offset, closing=True)
        self.offset_index.trim()
        self.time_index.trim()

    def reopen_indexes(self, config: TopicConfig) -> None:
        """Go on appending after a closing that could not be finished."""
        self.offset_index.capacity = config.segment_index_bytes // OFFSET_LAYOUT.size
        self.time_index.capacity = config.segment_index_bytes // TIME_LAYOUT.size
        self._note_full()

    def files_to_sync(self) -> list[File]:
        """The files of the segment, with everything written to them that was waiting."""
        self.with_indexes(_nothing)
        self.offset_index.write_pending()
        self.time_index.write_pending()
        files = [self.log, self.offset_index.file, self.time_index.file]
        aborted = self.transaction_index.file
        return files if aborted is None else [*files, aborted]

    def become_closed(self) -> None:
        """Drop what only an active segment needs; `close_indexes` went before."""
        self.tail.restart(LONG_MAX)

    def trim_log(self) -> None:
        """Give space back that was reserved and never used."""
        self.log.truncate(self.size)

    def rebuild_indexes(self) -> None:
        """Make the offset and time index anew from the batches, whose checksums are not read."""
        capacity = self.offset_index.capacity * OFFSET_LAYOUT.size
        was_active = capacity > 0
        self._start_indexes(capacity or self.size + HEADER_BYTES)
        for position, header in headers_between(self.log, 0, self.size, SCAN_CHUNK_BYTES):
            self.note_batch(header, position)
        if not was_active:
            self.close_indexes()

    def _start_indexes(self, capacity_bytes: int) -> None:
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = self.base_offset
        self.bytes_since_entry = 0
        self.offset_index.start_empty(capacity_bytes)
        self.time_index.start_empty(capacity_bytes)

    def start_recovery(self, config: TopicConfig) -> None:
        """Forget all indexes, in order to read every batch and `note_batch` it."""
        self.index_interval_bytes = config.index_interval_bytes
        self._start_indexes(config.segment_index_bytes)
        self.transaction_index.reset()

    def _set_roll_deadline(self) -> None:
        self.roll_at_timestamp = self.roll_at_ms = NEVER
        if self.size == 0 or self.first_timestamp is None:
            return
        if self.first_timestamp >= 0:
            self.roll_at_timestamp = self.first_timestamp + self.roll_after_ms
        else:
            self.roll_at_ms = self.created_ms + self.roll_after_ms

    # -- Finding -----------------------------------------------------------------------------

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

        With it comes an offset above all those in front of the boundary.
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
        """Raise `DamagedIndex` unless the last entry is true; a closed segment always has one."""
        timestamp, offset = self.time_index.last
        if self.time_index.entries == 0:
            if self.size:
                raise DamagedIndex(f"{self.time_index.path} has no entry.")
            return
        found = self.find(offset)
        if found is None or not (
            found[1].base_offset <= offset and found[1].max_timestamp == timestamp
        ):
            raise DamagedIndex(
                f"{self.time_index.path} ends with an entry that no batch bears out."
            )

    # -- Cutting and going away --------------------------------------------------------------

    def truncate_to(self, offset: int) -> Offset:
        """Remove the batch that contains `offset` and all after it; returns the new end offset.

        The cut is at a batch boundary, so the end is at most `offset`: a batch is kept whole or not
        at all. `open_for_append` must follow.
        """
        self.with_indexes(_nothing)
        found = self.find(offset)
        end = offset
        if found is not None:
            position, header = found
            end = min(offset, header.base_offset)
            self.log.truncate(position)
            self.size = position
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.transaction_index.truncate_to(Offset(offset))
        self.tail.restart(end)
        return Offset(end)

    def moved_to(self, directory: str, suffix: str = "") -> None:
        """Tell that the directory, or with `suffix` each file, was renamed."""
        self.directory = directory
        self.log.moved_to(self.path(LOG) + suffix)
        self.offset_index.moved_to(self.path(OFFSET_INDEX) + suffix)
        self.time_index.moved_to(self.path(TIME_INDEX) + suffix)
        self.transaction_index.moved_to(self.path(TRANSACTION_INDEX) + suffix)

    def discard(self) -> None:
        """Close the segment and remove its files at once."""
        self.close()
        for kind in SEGMENT_FILES:
            self.files.remove(self.path(kind))

    def close(self) -> None:
        """Give all handles up without writing anything."""
        self.log.close()
        self.offset_index.close()
        self.time_index.close()
        self.transaction_index.close()


def _nothing() -> None:
    """For `with_indexes`, when opening and checking them is all that is wanted."""
