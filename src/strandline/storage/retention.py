"""Retention: which segments at the start of a log are not kept, and how they go (4.5).

This file knows Kafka's three rules, in their order, and the two steps in which files change. It
must not know when retention runs, or compaction.

1. a segment wholly below the log start goes;
2. one without which at least `retention.bytes` remain goes;
3. one whose newest record is older than `retention.ms` goes.

Rules 2 and 3 are for topics whose `cleanup.policy` contains `delete`. Only the oldest segments go,
as many as there are without one in between that stays; none of them reaches beyond the high
watermark (KAFKA-5634); the empty active segment stays. An active segment with records may go: a new
one is begun first.
"""

from __future__ import annotations

from bisect import bisect_right

from strandline.errors import StorageError
from strandline.storage.log_state import LogState
from strandline.types import Offset


class DropsOldSegments(LogState):
    """The part of `log.Log` that drops what is too old."""

    __slots__ = ()

    def apply_retention(self, now_ms: int) -> int:
        """Drop the oldest segments that the topic's settings do not keep; returns how many."""
        self.expire(now_ms)
        return self.drop_below_start(now_ms)

    def expire(self, now_ms: int, at_most: int | None = None) -> int:
        """Raise the log start to what the topic's settings keep; by how many segments it moved.

        A caller with little time looks at the ages of `at_most` segments and comes again. The files
        stay until `drop_below_start`. The log directory must write its log start checkpoint in
        between: where renames reach the disk in any order, a power failure may keep that of a later
        segment and lose that of an earlier one, and only the checkpoint then says that neither is
        part of the log.
        """
        self.check_usable()
        if not self.config.deletes_old_segments:
            return 0
        below = self.segments_below_start
        last = len(self.segments) if at_most is None else below + at_most
        by_size = self._beyond_size(below)
        count = self._beyond_age(by_size, now_ms, min(last, len(self.segments)))
        if count == below:
            return 0
        if count == len(self.segments):
            self.roll(now_ms)
        self.delete_records_to(Offset(self.upper_bound(count - 1)))
        return count - below

    def drop_below_start(self, now_ms: int, at_most: int | None = None) -> int:
        """Drop the segments, or the oldest `at_most`, that are wholly below the log start.

        Their files are renamed now and removed after `file.delete.delay.ms`. Returns how many.
        """
        self.check_usable()
        count = self.segments_below_start
        if count == 0:
            return 0
        dropped = list(self.segments.all[: count if at_most is None else min(count, at_most)])
        due_ms = now_ms + self.config.file_delete_delay_ms
        try:
            self.segments.retire(self.files, dropped, due_ms)
            snapshots = self.producers.snapshots
            retired = [snapshots.retire(Offset(segment.base_offset)) for segment in dropped]
        except StorageError as error:
            self.fail(f"Old segments could not be dropped: {error}", error)
            raise
        self.segments.retire_files([path for path in retired if path is not None], due_ms)
        return len(dropped)

    def remove_due_files(self, now_ms: int) -> int:
        """Remove the files of dropped segments after `file.delete.delay.ms`; how many went.

        At once, for who has no other thread; a node has them removed (`Segments.take_due`).
        """
        taken = self.segments.take_due(now_ms, len(self.segments.removals))
        count = sum(self.files.remove(path) for removal in taken for path in removal.paths)
        self.segments.settle(taken, is_done=True)
        return count

    @property
    def segments_below_start(self) -> int:
        """How many of the oldest segments are wholly below the log start; never the active one."""
        return max(0, bisect_right(self.segments.base_offsets, self.log_start_offset) - 1)

    def upper_bound(self, index: int) -> int:
        """The offset in front of which the segment ends: where the next begins, or the log's end.

        Compaction may have removed the records in front of it.
        """
        bases = self.segments.base_offsets
        return bases[index + 1] if index + 1 < len(bases) else self.log_end_offset

    def may_drop(self, index: int) -> bool:
        """Whether all of the segment is committed, and it is not the empty active one."""
        segment = self.segments.all[index]
        is_last = index + 1 == len(self.segments)
        return self.high_watermark >= self.upper_bound(index) and not (
            is_last and segment.size == 0
        )

    def newest_ms(self, index: int) -> int:
        """By what a segment ages: its largest timestamp, or without any when it was written."""
        segment = self.segments.all[index]
        newest_ms = segment.largest_timestamp().timestamp
        return self.files.modified_ms(segment.log.path) if newest_ms < 0 else newest_ms

    def _beyond_size(self, count: int) -> int:
        """How many of the oldest, at least `count`, can go while `retention.bytes` still remain."""
        if self.config.retention_bytes < 0:
            return count
        excess = self.size_bytes - self.config.retention_bytes
        for index, segment in enumerate(self.segments.all):
            excess -= segment.size
            if excess < 0 or (index >= count and not self.may_drop(index)):
                return max(count, index)
        return len(self.segments)

    def _beyond_age(self, count: int, now_ms: int, last: int) -> int:
        """How many of the oldest, at least `count` and else at most `last`, are older than
        `retention.ms`."""
        retention_ms = self.config.retention_ms
        if retention_ms < 0:
            return count
        for index in range(count, last):
            if now_ms - self.newest_ms(index) <= retention_ms or not self.may_drop(index):
                return index
        return max(count, last)
