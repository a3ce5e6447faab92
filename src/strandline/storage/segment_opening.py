"""Opening the segments that lie in a log's directory, and clearing it of what belongs to none.

The first step of loading a log (`recovery`). This file knows which files a crash, a deletion or a
roll that failed may leave beside the segments. It must not know whether what is in the segments can
be trusted.
"""

from __future__ import annotations

from bisect import bisect_right
from contextlib import closing
from typing import Final

from strandline.storage.batch_scan import (
    SCAN_CHUNK_BYTES,
    DamagedSegment,
    headers_between,
    refuse_old_format,
)
from strandline.storage.files import join
from strandline.storage.leader_epochs import FILE_NAME as LEADER_EPOCHS_NAME
from strandline.storage.leader_epochs import NEXT_SUFFIX
from strandline.storage.log_parts import LogParts
from strandline.storage.log_to_load import LogToLoad
from strandline.storage.segment import Segment
from strandline.storage.segment_names import LOG, REBUILT, parse_segment_name, segment_path
from strandline.storage.swap_recovery import finish_interrupted_swaps
from strandline.storage.verify.files import lonely_among
from strandline.types import NO_TOPIC_ID

LEADER_EPOCHS_NEXT: Final = LEADER_EPOCHS_NAME + NEXT_SUFFIX


class SegmentOpening:
    """Opens the segments of one log. `run` once."""

    def __init__(self, log: LogParts, found: LogToLoad, now_ms: int) -> None:
        self._log = log
        self._files = log.location.files
        self._directory = log.location.path
        self._found = found
        self._now_ms = now_ms
        self.names: list[str] = []
        """What is in the directory, but for what was made or removed in opening the segments."""
        self._notes: list[str] = []

    def run(self) -> list[str]:
        """Fill the log's segments; what was done besides, in sentences.

        Raises `DamagedSegment` if one is missing between others, and `DamagedCheckpoint` for a
        topic id that cannot be read. `OldFormat`, before anything is changed, if the log begins
        with messages of such a format.
        """
        segments = self._log.segments
        self.names = self._files.list_directory(self._directory)
        self._refuse_old_format()
        self._clear_if_never_durable()
        notes = finish_interrupted_swaps(self._files, self._directory, self.names)
        if notes:
            self._notes += notes
            self.names = self._files.list_directory(self._directory)
        for segment in self._open():
            segments.add(segment)
        self._retire_deleted()
        self._remove_overlapping_empty()
        return self._notes

    def _refuse_old_format(self) -> None:
        """Raise `OldFormat` if the first segment begins with one: a log that was older than 0.11
        had all its messages in front of the first batch.

        Nothing is read where the table of leader epochs covers the whole log: old messages have no
        epoch, so that it begins behind them.
        """
        found = [parsed for name in self.names if (parsed := parse_segment_name(name)) is not None]
        bases = sorted(each.base_offset for each in found if each.kind == LOG and not each.suffix)
        if not bases:
            return
        log_start = self._found.log_start_offset
        first = bases[max(0, bisect_right(bases, log_start) - 1)]
        epochs = self._log.leader_epochs.entries
        if epochs and epochs[0].start_offset <= max(first, log_start):
            return
        with closing(self._files.open(segment_path(self._directory, first, LOG))) as file:
            refuse_old_format(file, 0)

    def _clear_if_never_durable(self) -> None:
        """Drop what a power failure left of a directory that was not synced since it was made.

        Without its topic id its records may be those of a former topic of that name. They are not
        missed: the id is durable before a table of leader epochs is, and before the recovery point
        moves. Raises `DamagedCheckpoint` for an id that cannot be read in any other directory.
        """
        location, found = self._log.location, self._found
        if location.topic_id != NO_TOPIC_ID:
            return
        was_durable = found.recovery_point > 0 or self._log.leader_epochs.entries
        if found.needs_recovery and not was_durable:
            names = location.clear()
            self.names = []
            if names:
                self._notes.append(
                    f"Removed {', '.join(names)} from {self._directory}: none of it was synced, "
                    "and the disk does not say to which topic it belongs."
                )
        elif location.damage is not None:
            raise location.damage

    def _open(self) -> list[Segment]:
        """The segments on disk; removes index files that belong to none or are not whole."""
        names = self.names
        found = [parsed for name in names if (parsed := parse_segment_name(name)) is not None]
        bases = {each.base_offset for each in found if each.kind == LOG}
        for base_offset, path in lonely_among(
            [each for each in found if not each.suffix], self._directory
        ):
            self._check_missing(base_offset, bases)
            self._files.remove(path)
            self._notes.append(f"Removed {path}: it has no segment.")
        for name in names:
            if name == LEADER_EPOCHS_NEXT:
                self._files.remove(join(self._directory, name))
            elif name.endswith(REBUILT) and parse_segment_name(name.removesuffix(REBUILT)):
                self._files.remove(join(self._directory, name))
                self._notes.append(f"Removed {join(self._directory, name)}: it is not finished.")
        return [Segment.existing(self._files, self._directory, base) for base in sorted(bases)]

    def _check_missing(self, base_offset: int, bases: set[int]) -> None:
        """Raise `DamagedSegment` for indexes in the middle of the log whose segment is gone.

        Retention and truncation take segments from the ends only, and what a crash can take is at
        or above the recovery point. Readers and followers would pass over the hole unawares.
        """
        found = self._found
        start = max(found.log_start_offset, min(bases, default=0))
        end = found.recovery_point if found.needs_recovery else max(bases, default=0)
        following = min((base for base in bases if base > base_offset), default=base_offset)
        if start <= base_offset and following <= end and following > base_offset:
            path = segment_path(self._directory, base_offset, LOG)
            raise DamagedSegment(f"The segment {path} is gone, but there are newer ones.")

    def _retire_deleted(self) -> None:
        """Drop the segments wholly below the log start: their deletion may be half done."""
        log = self._log
        bases = log.segments.base_offsets
        count = bisect_right(bases, self._found.log_start_offset) - 1
        if count > 0:
            due_ms = self._now_ms + log.settings.config.file_delete_delay_ms
            log.segments.retire(self._files, list(log.segments.all[:count]), due_ms)
            self._notes.append(f"Dropped {count} segments of {self._directory}: they were deleted.")

    def _remove_overlapping_empty(self) -> None:
        """Remove empty segments that a failed roll left inside the range of an older one."""
        segments = self._log.segments
        for index in range(len(segments) - 1, 0, -1):
            segment, before = segments.all[index], segments.all[index - 1]
            if segment.size == 0 and self._readable_end(before) > segment.base_offset:
                segments.forget([segment])
                segment.discard()
                self._notes.append(f"Removed {segment.log.path}: it is empty and inside another.")

    def _readable_end(self, segment: Segment) -> int:
        """The offset after the last batch that can be read, found by a short scan if possible."""
        end = segment.base_offset
        try:
            return segment.end_offset()
        except DamagedSegment:
            # The end is torn, so the index may be, too: recovery deals with that later.
            batches = headers_between(segment.log, 0, segment.size, SCAN_CHUNK_BYTES)
        try:
            for _, header in batches:
                end = header.next_offset
        except DamagedSegment:
            return end
        return end
