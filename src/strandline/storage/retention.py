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

from strandline.errors import ErrorCode, ProtocolError, StorageError
from strandline.storage.log_parts import LogParts
from strandline.storage.log_roller import LogRoller
from strandline.types import Offset


class Retention:
    """Drops what is too old or deleted.

    The log start moves up to the high watermark at most (I-01), and never to a place between two
    segments that stay. Files of segments below it go from the oldest on, so that what is left has
    no hole.
    """

    __slots__ = (
        "_health",
        "_leader_epochs",
        "_location",
        "_offsets",
        "_producers",
        "_roller",
        "_segments",
        "_settings",
    )

    def __init__(self, parts: LogParts, roller: LogRoller) -> None:
        self._location = parts.location
        self._settings = parts.settings
        self._health = parts.health
        self._offsets = parts.offsets
        self._segments = parts.segments
        self._leader_epochs = parts.leader_epochs
        self._producers = parts.producers
        self._roller = roller

    def delete_records_to(self, offset: Offset) -> bool:
        """Raise the log start, so that older records are gone; returns whether it moved.

        Raises `ProtocolError` OFFSET_OUT_OF_RANGE beyond the high watermark. Segments that are
        wholly below the start go with the next `drop_below_start`.
        """
        offsets = self._offsets
        if offset > offsets.high_watermark:
            raise ProtocolError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Records of {self._location.topic_partition} cannot be deleted up to offset "
                f"{offset}: the high watermark is {offsets.high_watermark}.",
            )
        if not offsets.advance_start_to(offset):
            return False
        self._leader_epochs.truncate_from_start(offset)
        self._producers.advance_log_start_to(offset)
        return True

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
        self._health.check_usable()
        if not self._settings.config.deletes_old_segments:
            return 0
        below = self.segments_below_start
        last = len(self._segments) if at_most is None else below + at_most
        by_size = self._beyond_size(below)
        count = self._beyond_age(by_size, now_ms, min(last, len(self._segments)))
        if count == below:
            return 0
        if count == len(self._segments):
            self._roller.roll(now_ms)
        self.delete_records_to(Offset(self.upper_bound(count - 1)))
        return count - below

    def drop_below_start(self, now_ms: int, at_most: int | None = None) -> int:
        """Drop the segments, or the oldest `at_most`, that are wholly below the log start.

        Their files are renamed now and removed after `file.delete.delay.ms`. Returns how many.
        """
        self._health.check_usable()
        count = self.segments_below_start
        if count == 0:
            return 0
        dropped = list(self._segments.all[: count if at_most is None else min(count, at_most)])
        due_ms = now_ms + self._settings.config.file_delete_delay_ms
        try:
            self._segments.retire(self._location.files, dropped, due_ms)
            snapshots = self._producers.snapshots
            retired = [snapshots.retire(Offset(segment.base_offset)) for segment in dropped]
        except StorageError as error:
            self._health.fail(f"Old segments could not be dropped: {error}", error)
            raise
        self._segments.retire_files([path for path in retired if path is not None], due_ms)
        return len(dropped)

    def remove_due_files(self, now_ms: int) -> int:
        """Remove the files of dropped segments after `file.delete.delay.ms`; how many went.

        At once, for callers without another thread; a node has them removed (`Segments.take_due`).
        """
        taken = self._segments.take_due(now_ms, len(self._segments.removals))
        count = sum(
            self._location.files.remove(path) for removal in taken for path in removal.paths
        )
        self._segments.settle(taken, is_done=True)
        return count

    @property
    def segments_below_start(self) -> int:
        """How many of the oldest segments are wholly below the log start; never the active one."""
        return max(0, bisect_right(self._segments.base_offsets, self._offsets.log_start_offset) - 1)

    def upper_bound(self, index: int) -> int:
        """The offset in front of which the segment ends: where the next begins, or the log's end.

        Compaction may have removed the records in front of it.
        """
        bases = self._segments.base_offsets
        return bases[index + 1] if index + 1 < len(bases) else self._offsets.log_end_offset

    def may_drop(self, index: int) -> bool:
        """Whether all of the segment is committed, and it is not the empty active one."""
        segment = self._segments.all[index]
        is_last = index + 1 == len(self._segments)
        return self._offsets.high_watermark >= self.upper_bound(index) and not (
            is_last and segment.size == 0
        )

    def newest_ms(self, index: int) -> int:
        """By what a segment ages: its largest timestamp, or without any when it was written."""
        segment = self._segments.all[index]
        newest_ms = segment.largest_timestamp().timestamp
        return self._location.files.modified_ms(segment.log.path) if newest_ms < 0 else newest_ms

    def _beyond_size(self, count: int) -> int:
        """How many of the oldest, at least `count`, can go while `retention.bytes` still remain."""
        if self._settings.config.retention_bytes < 0:
            return count
        excess = self._segments.size_bytes - self._settings.config.retention_bytes
        for index, segment in enumerate(self._segments.all):
            excess -= segment.size
            if excess < 0 or (index >= count and not self.may_drop(index)):
                return max(count, index)
        return len(self._segments)

    def _beyond_age(self, count: int, now_ms: int, last: int) -> int:
        """How many of the oldest, at least `count` and else at most `last`, are older than
        `retention.ms`."""
        retention_ms = self._settings.config.retention_ms
        if retention_ms < 0:
            return count
        for index in range(count, last):
            if now_ms - self.newest_ms(index) <= retention_ms or not self.may_drop(index):
                return index
        return max(count, last)
