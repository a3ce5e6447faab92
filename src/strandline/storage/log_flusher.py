"""What must be synced for a log to be durable, and when that is due.

This file knows what the log owes to the disk. It carries nothing out, apart from entries of leader
epochs that are late: a driver does, in any thread (`flush_plan`).
"""

from __future__ import annotations

from collections.abc import Iterable

from strandline.config.topic import LONG_MAX
from strandline.storage.files import File, join, name_of, parent_of
from strandline.storage.flush_plan import ClosePlan, FlushPlan
from strandline.storage.leader_epochs import ALL_WRITTEN, EpochsToWrite
from strandline.storage.log_parts import LogParts
from strandline.storage.segment import Segment
from strandline.types import LeaderEpoch, Offset


class LogFlusher:
    """Says what to sync, and moves the recovery point when that was done.

    - `wants_flush`: `flush_plan` is due, because a segment was closed or `flush.messages` reached,
      or records were written in an epoch whose entry is not on the disk yet.
    - `flush_at_offset`: with which end of the log that is so.
    - A plan from before a truncation moves nothing (I-07): what it synced may have been replaced.
    - The recovery point passes no record whose leader epoch is not on the disk.
    - Producer snapshots that were not synced are in each plan until one with them was carried out.
    """

    __slots__ = (
        "_last_flush_ms",
        "_leader_epochs",
        "_location",
        "_offsets",
        "_segments",
        "_settings",
        "_unsynced_snapshots",
        "flush_at_offset",
        "wants_flush",
    )

    def __init__(self, parts: LogParts, now_ms: int) -> None:
        self._location = parts.location
        self._settings = parts.settings
        self._offsets = parts.offsets
        self._segments = parts.segments
        self._leader_epochs = parts.leader_epochs
        self._last_flush_ms = now_ms
        self._unsynced_snapshots: list[str] = []
        self.wants_flush = False
        self.flush_at_offset = LONG_MAX
        self.reschedule()

    def reschedule(self) -> None:
        """The recovery point has fallen, settings or epochs have changed."""
        unwritten_from = self._leader_epochs.unwritten_from
        self.flush_at_offset = min(
            self._offsets.recovery_point + self._settings.config.flush_messages,
            LONG_MAX if unwritten_from == ALL_WRITTEN else unwritten_from + 1,
        )

    def request_flush(self) -> None:
        """Have the next check of what is due make a plan."""
        self.wants_flush = True

    def segment_closed(self, snapshot: str | None) -> None:
        """A segment is complete, with the producers at its end in the file `snapshot`."""
        if snapshot is not None:
            self._unsynced_snapshots.append(snapshot)
        self.wants_flush = True

    def moved_to(self, directory: str) -> None:
        """The directory of the partition was renamed."""
        self._unsynced_snapshots = [join(directory, name_of(p)) for p in self._unsynced_snapshots]

    # -- Leader epochs -----------------------------------------------------------------------

    def begin_epoch(self, epoch: LeaderEpoch, start_offset: Offset) -> None:
        """Note that a leader epoch begins; its entry becomes durable later (`leader_epochs`)."""
        if self._leader_epochs.assign(epoch, start_offset, later=True):
            self.reschedule()

    @property
    def epochs_due(self) -> bool:
        """Whether records are written in an epoch whose entry may not be on the disk."""
        return self._leader_epochs.unwritten_from < self._offsets.log_end_offset

    def epochs_written(self, written: EpochsToWrite) -> None:
        """A table of leader epochs that was adopted is on the disk."""
        if self._leader_epochs.note_durable(written):
            self.reschedule()

    # -- Plans -------------------------------------------------------------------------------

    def flush_plan(self, up_to: Offset | None = None) -> FlushPlan | None:
        """What to sync for the log to be durable below `up_to`, by default all of it.

        None when that is so already. The driver carries the plan out and calls `mark_flushed`.
        """
        offsets = self._offsets
        end = offsets.log_end_offset
        up_to = end if up_to is None else min(up_to, end)
        if up_to <= offsets.recovery_point:
            self.wants_flush = False
            return None
        if self._leader_epochs.unwritten_from < up_to:
            # Recovery takes epochs from the batches that it reads, and from nowhere else.
            self._leader_epochs.flush_assigned()
            self.reschedule()
        segments = self._segments.since(offsets.recovery_point)
        to_sync = self._files_of(each for each in segments if each.base_offset < up_to)
        names_new = any(not segment.synced_names for segment in segments)
        metadata, directories = self._location.unsynced()
        if not directories and (names_new or self._unsynced_snapshots):
            directories = (self._location.path,)
        self.wants_flush = False
        return FlushPlan(
            up_to,
            (*to_sync, *metadata),
            directories,
            tuple(segments),
            offsets.truncations,
        )

    def close_plan(self, snapshot: str | None) -> ClosePlan:
        """What to sync before the log is closed, once all is written; with that new snapshot."""
        location = self._location
        segments = self._segments.since(self._offsets.recovery_point)
        metadata, directories = location.unsynced()
        snapshots = () if snapshot is None else (location.files.open(snapshot),)
        return ClosePlan(
            location.files,
            (*metadata, *snapshots, *self._files_of(segments)),
            self._leader_epochs.unwritten,
            directories or (location.path,),
        )

    def _files_of(self, segments: Iterable[Segment]) -> list[File]:
        """Their files, and the snapshots that were not synced."""
        files = self._location.files
        to_sync: list[File] = []
        for segment in segments:
            to_sync.extend(segment.files_to_sync())
        to_sync.extend(files.open(p) for p in self._unsynced_snapshots if files.exists(p))
        return to_sync

    def flush_plan_if_due(self, now_ms: int) -> FlushPlan | None:
        """The plan that `flush.messages`, `flush.ms` or a closed segment call for now.

        Leader epochs that are due should be written before: here they are synced at once.
        """
        config, offsets = self._settings.config, self._offsets
        if offsets.log_end_offset >= offsets.recovery_point + config.flush_messages:
            return self.flush_plan()
        if now_ms - self._last_flush_ms >= config.flush_ms:
            return self.flush_plan()
        if self.wants_flush:
            return self.flush_plan(Offset(self._segments.active.base_offset))
        return None

    def mark_flushed(self, plan: FlushPlan, now_ms: int) -> bool:
        """Raise the recovery point after `plan` was carried out; whether it moved."""
        self._last_flush_ms = now_ms
        if parent_of(self._location.path) in plan.directories:
            self._location.note_durable()
        if plan.truncations != self._offsets.truncations:
            return False
        if plan.directories:
            for segment in plan.segments:
                aborts = segment.transaction_index.file  # made by the first abort: since, perhaps
                segment.synced_names = aborts is None or aborts in plan.files
        synced = {file.path for file in plan.files}
        self._unsynced_snapshots = [p for p in self._unsynced_snapshots if p not in synced]
        if self._has_rolled_at(plan) or not self._offsets.advance_recovery_point_to(plan.up_to):
            return False
        self.reschedule()
        return True

    def _has_rolled_at(self, plan: FlushPlan) -> bool:
        """Whether the segment that ends at `up_to` was still active when the plan was made.

        Then the plan may have synced it with the room that the roll has given back since, and once
        the recovery point has passed it no plan would sync it again.
        """
        return self._segments.since(plan.up_to)[0] not in plan.segments
