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

What the rules say of a segment is a value, its `Fate`; `expire` reads it, and so does `explain`
(`retention_facts`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from strandline.errors import ErrorCode, ProtocolError, StorageError
from strandline.storage.files import NoRoom
from strandline.storage.log_parts import LogParts
from strandline.storage.log_roller import LogRoller
from strandline.storage.segment import Segment
from strandline.types import Offset


class Rule(Enum):
    """What keeps a segment, or removes it."""

    BELOW_START = "below-log-start"
    SIZE = "retention.bytes"
    AGE = "retention.ms"
    POLICY = "cleanup.policy"
    NOT_COMMITTED = "high-watermark"
    EMPTY_ACTIVE = "active-segment"
    OLDER_STAYS = "older-segment"
    NOTHING_SET = "no-limit"


class Fate(NamedTuple):
    """What becomes of a segment with the next round of retention, and which rule says so."""

    goes: bool
    rule: Rule


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
        below = count = self.segments_below_start
        for index, fate in self.fates(now_ms, None if at_most is None else below + at_most):
            if not fate.goes:
                break
            count = index + 1
        if count == below:
            return 0
        if count == len(self._segments):
            try:
                self._roller.roll(now_ms)
            except NoRoom:
                count -= 1  # it goes when the others have made room
                if count == below:
                    raise
        self.delete_records_to(Offset(self.upper_bound(count - 1)))
        return count - below

    def drop_below_start(self, now_ms: int, at_most: int | None = None) -> int:
        """Drop the segments, or the oldest `at_most`, that are wholly below the log start.

        Their files are renamed now and removed after `file.delete.delay.ms`. Returns how many.
        While the checkpoint does not say where the log starts now, each is durably gone before the
        next: otherwise a power failure could leave a hole (see `expire`).
        """
        self._health.check_usable()
        count = self.segments_below_start
        if count == 0:
            return 0
        dropped = list(self._segments.all[: count if at_most is None else min(count, at_most)])
        due_ms = now_ms + self._settings.config.file_delete_delay_ms
        is_saved = self._offsets.log_start_saved >= self._offsets.log_start_offset
        for segment in dropped:
            if not is_saved:
                # A full disk did not take the checkpoint, and is to get room all the same.
                self._make_drops_durable()
            self._drop(segment, due_ms)
        return len(dropped)

    def _make_drops_durable(self) -> None:
        try:
            self._location.sync()
        except NoRoom:
            raise  # for want of a handle: nothing was begun
        except StorageError as error:
            self._health.fail(f"The names of dropped segments are not durable: {error}", error)
            raise

    def _drop(self, segment: Segment, due_ms: int) -> None:
        try:
            self._segments.retire(self._location.files, [segment], due_ms)
            snapshot = self._producers.snapshots.retire(Offset(segment.base_offset))
        except StorageError as error:
            self._health.fail(f"Old segments could not be dropped: {error}", error)
            raise
        if snapshot is not None:
            self._segments.retire_files([snapshot], due_ms)

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

    def fates(self, now_ms: int, ages_to: int | None = None) -> Iterator[tuple[int, Fate]]:
        """The index and the fate of every segment, the oldest first.

        Ages are looked at as the caller goes on. Ends at the segment with the index `ages_to` or
        behind it, if that would need its age.
        """
        below, excess = self.segments_below_start, self._excess()
        stays = False
        for index, segment in enumerate(self._segments.all):
            excess -= segment.size
            if index < below:
                yield index, Fate(True, Rule.BELOW_START)
                continue
            fate = self._fate_without_age(index, has_excess=excess >= 0 and not stays)
            if fate is None:
                if ages_to is not None and index >= ages_to:
                    return
                fate = Fate(self._is_old(index, now_ms), Rule.AGE)
            if fate.goes and stays:
                fate = Fate(False, Rule.OLDER_STAYS)
            stays = stays or not fate.goes
            yield index, fate

    def _excess(self) -> int:
        """How many bytes are more than `retention.bytes`; negative if it sets no limit."""
        limit = self._settings.config.retention_bytes
        return -1 if limit < 0 else self._segments.size_bytes - limit

    def _fate_without_age(self, index: int, *, has_excess: bool) -> Fate | None:
        """The fate of a segment if all before it go; None if its age decides."""
        config = self._settings.config
        if not config.deletes_old_segments:
            return Fate(False, Rule.POLICY)
        if not self.may_drop(index):
            is_empty = self._segments.all[index].size == 0
            return Fate(False, Rule.EMPTY_ACTIVE if is_empty else Rule.NOT_COMMITTED)
        if has_excess:
            return Fate(True, Rule.SIZE)
        if config.retention_ms >= 0:
            return None
        return Fate(False, Rule.SIZE if config.retention_bytes >= 0 else Rule.NOTHING_SET)

    def _is_old(self, index: int, now_ms: int) -> bool:
        return now_ms - self.newest_ms(index) > self._settings.config.retention_ms
