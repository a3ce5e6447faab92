"""One segment of a log, from its first batch to its removal.

This file knows one segment: how batches are added, when it should be closed, how it is cut and
dropped. How batches are found is in `indexed_segment`. It must not know other segments, offsets
that are to be assigned, or replicas.

Theory: only the last segment of a log is active, that is, appended to. An active segment keeps the
offsets and positions of its newest batches in memory (`Tail`), because that is where nearly every
read happens. A closed segment holds no contents in memory and opens its files when they are needed.
"""

from __future__ import annotations

from typing import Final

from strandline.config.topic import LONG_MAX, TopicConfig
from strandline.storage.batch_scan import SCAN_CHUNK_BYTES, header_at, headers_between
from strandline.storage.files import Buffer, File, Files
from strandline.storage.indexed_segment import IndexedSegment
from strandline.storage.offset_index import LAYOUT as OFFSET_LAYOUT
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
from strandline.types import Offset

NEVER: Final = LONG_MAX


class Segment(IndexedSegment):
    """See the module.

    - `roll_at_timestamp`, `roll_at_ms`: close the segment in front of a batch with a larger
      timestamp, or after that wall time; moved when the first batch arrives.
    - `first_timestamp`: the largest timestamp in the first batch, by which the segment ages.
    """

    __slots__ = (
        "created_ms",
        "first_timestamp",
        "jitter_ms",
        "roll_after_ms",
        "roll_at_ms",
        "roll_at_timestamp",
        "synced_names",
        "tail",
    )

    def __init__(self, files: Files, directory: str, base_offset: int, log: File) -> None:
        super().__init__(files, directory, base_offset, log)
        self.tail = Tail()
        self.synced_names = False
        """Whether the directory was synced since the files of this segment were created."""
        self.first_timestamp: int | None = None
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
        segment = cls(files, directory, base_offset, files.open(paths[0], create=True))
        try:
            segment.offset_index.start_empty(config.segment_index_bytes)
            segment.time_index.start_empty(config.segment_index_bytes)
            if config.preallocate:
                segment.log.reserve(config.segment_bytes)
        except BaseException:
            segment.discard()  # a file that is open keeps its room when its name is gone
            raise
        segment.tail.restart(base_offset)
        segment.index_interval_bytes = config.index_interval_bytes
        segment.note_full()
        return segment

    @classmethod
    def existing(cls, files: Files, directory: str, base_offset: int) -> Segment:
        """A closed segment as it is on disk. Reads nothing but the size of its `.log` file."""
        log = files.open(segment_path(directory, base_offset, LOG))
        return cls(files, directory, base_offset, log)

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
            self.add_entries(last_offset, position)
            waiting = 0
        self.bytes_since_entry = waiting + size
        self.tail.add(last_offset, position)
        if position == 0:
            self.first_timestamp = max_timestamp
            self._set_roll_deadline()

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
        self.note_full()
        self._set_roll_deadline()

    def reopen_indexes(self, config: TopicConfig) -> None:
        """Go on appending after a closing that could not be finished."""
        self.offset_index.capacity = config.segment_index_bytes // OFFSET_LAYOUT.size
        self.time_index.capacity = config.segment_index_bytes // TIME_LAYOUT.size
        self.note_full()

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

    def trim_reserved(self) -> bool:
        """As `trim_log`, for a file that may have been reserved under earlier settings; whether it
        was."""
        has_room = self.files.size_of(self.log.path) > self.size
        if has_room:
            self.trim_log()
        return has_room

    def start_recovery(self, config: TopicConfig) -> None:
        """Forget all indexes, in order to read every batch and `note_batch` it."""
        self.index_interval_bytes = config.index_interval_bytes
        self.start_indexes(config.segment_index_bytes)
        self.transaction_index.reset()

    def _set_roll_deadline(self) -> None:
        self.roll_at_timestamp = self.roll_at_ms = NEVER
        if self.size == 0 or self.first_timestamp is None:
            return
        if self.first_timestamp >= 0:
            self.roll_at_timestamp = self.first_timestamp + self.roll_after_ms
        else:
            self.roll_at_ms = self.created_ms + self.roll_after_ms

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
