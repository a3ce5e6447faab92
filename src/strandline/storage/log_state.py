"""What one partition's log consists of, its offsets, and how its segments begin and end.

This file knows the parts of a log and the rules that tie their offsets together. It must not know
how batches are judged (`log_append`), found (`log_read`) or dropped (`log_cut`); those add their
methods to this state, and `log.Log` is all of them.

Everything runs in the node's thread. Only what a `FlushPlan` names is synced by another one.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Final, NamedTuple

from strandline.config.topic import LONG_MAX, TopicConfig
from strandline.errors import ErrorCode, InvariantViolated, ProtocolError, StorageError
from strandline.records.rules import AppendRules
from strandline.storage.files import File, Files, NoRoom
from strandline.storage.flush_plan import FlushPlan
from strandline.storage.leader_epochs import ALL_WRITTEN, EpochsToWrite, LeaderEpochs
from strandline.storage.producer_state import ProducerStates
from strandline.storage.recovery_report import RecoveryReport
from strandline.storage.segment import Segment
from strandline.storage.segments import Segments
from strandline.types import NO_TOPIC_ID, LeaderEpoch, Offset, TopicPartition

START: Final = Offset(0)


class Bookmark(NamedTuple):
    """A batch boundary at which a read has ended, good while `cuts` is what it was."""

    segment: Segment
    position: int
    cuts: int


class LogState:
    """The parts and offsets of a log.

    - `log_start_offset <= high_watermark <= log_end_offset` (I-01). The start moves by retention,
      DeleteRecords and truncation; the high watermark by the partition's leader or follower; the
      end by appends and truncation.
    - `recovery_point`: everything below it is durable (I-07). Moved up by `mark_flushed`, down by
      truncation. When `recovery_point_fell`, `log_start_fell` or `high_watermark_fell` is set, the
      log directory must write that checkpoint before the next append, and then clears it: by an
      older one, records of later would be taken for synced, deleted or committed.
    - `log_start_saved <= log_start_offset`: where the log starts after a crash at this moment. Only
      from here on may anybody be told that records are deleted. Moved by whoever writes the log
      start checkpoint. `raised` is where the log notes that this is due; logs share it.
    - `wants_flush`: `flush_plan` is due, because a segment was closed or `flush.messages` reached,
      or records were written in an epoch whose entry is not on the disk yet.
    - `flush_at_offset`: with which end of the log that is so.
    - `failure`: why the log takes no more appends; set once, when a write could not be taken back.
    """

    __slots__ = (
        "active",
        "bookmarks",
        "client_rules",
        "closed",
        "config",
        "coordinator_rules",
        "cuts",
        "directory",
        "failure",
        "files",
        "flush_at_offset",
        "high_watermark",
        "high_watermark_fell",
        "keeps_batches",
        "last_flush_ms",
        "leader_epochs",
        "log_end_offset",
        "log_start_fell",
        "log_start_offset",
        "log_start_saved",
        "may_reload",
        "producers",
        "raised",
        "random",
        "recovery_point",
        "recovery_point_fell",
        "recovery_report",
        "segment_bytes",
        "segments",
        "topic_id",
        "topic_partition",
        "unsynced_snapshots",
        "wants_flush",
    )

    def __init__(
        self,
        files: Files,
        directory: str,
        topic_partition: TopicPartition,
        leader_epochs: LeaderEpochs,
        producers: ProducerStates,
    ) -> None:
        self.files = files
        self.directory = directory
        self.topic_partition = topic_partition
        self.topic_id = NO_TOPIC_ID
        self.leader_epochs = leader_epochs
        self.producers = producers
        self.segments = Segments()
        self.recovery_report = RecoveryReport()
        self.random = Random(0)  # noqa: S311 -- spreads rolls in time; replaced by the caller's
        self.log_start_offset = START
        self.log_start_saved = START
        self.raised: dict[LogState, None] = {}
        self.log_end_offset = START
        self.high_watermark = START
        self.recovery_point = START
        self.recovery_point_fell = False
        self.log_start_fell = False
        self.high_watermark_fell = False
        self.failure: str | None = None
        self.may_reload = False
        """Whether it failed because an operation broke off for want of something: the files are as
        after a crash, and may be loaded again."""
        self.closed = False
        self.cuts = 0
        self.bookmarks: dict[int, Bookmark] = {}
        self.wants_flush = False
        self.last_flush_ms = 0
        self.flush_at_offset = LONG_MAX
        self.unsynced_snapshots: list[str] = []
        self.update_config(TopicConfig())
        self.active: Segment

    @property
    def last_stable_offset(self) -> Offset:
        """Where `read_committed` readers stop: the high watermark, or an undecided transaction."""
        unstable = self.producers.first_unstable_offset
        if unstable is None or unstable >= self.high_watermark:
            return self.high_watermark
        return max(unstable, self.log_start_offset)

    @property
    def has_fallen(self) -> bool:
        """Whether a checkpoint must be written before the next append."""
        return self.recovery_point_fell or self.log_start_fell or self.high_watermark_fell

    @property
    def size_bytes(self) -> int:
        """Bytes of all batches on disk, those below the log start included."""
        return self.segments.size_bytes

    def update_config(self, config: TopicConfig) -> None:
        """Follow settings of the topic, or new ones, from the next append on."""
        self.config = config
        self.client_rules = AppendRules.for_topic(config)
        self.keeps_batches = self.client_rules.keeps_batches
        self.coordinator_rules = AppendRules.for_topic(config, allow_control=True)
        self.segment_bytes = config.segment_bytes
        self._set_flush_offset()
        if len(self.segments):
            self.active.follow(config)

    # -- Offsets -----------------------------------------------------------------------------

    def advance_high_watermark_to(self, offset: Offset) -> bool:
        """Raise the high watermark; returns whether it moved. Never lowers it (I-10)."""
        if offset <= self.high_watermark:
            return False
        if offset > self.log_end_offset:
            raise InvariantViolated(
                f"{self.topic_partition}: the high watermark cannot be {offset}, the log ends at "
                f"{self.log_end_offset}."
            )
        self.high_watermark = offset
        if self.producers.first_unstable_offset is not None:
            self.producers.acknowledge_to(offset)
        return True

    def restore_high_watermark(self, offset: Offset) -> Offset:
        """Take the high watermark from a checkpoint, clamped to the log; returns what it is now."""
        self.high_watermark = max(self.log_start_offset, min(offset, self.log_end_offset))
        self.producers.acknowledge_to(self.high_watermark)
        return self.high_watermark

    def delete_records_to(self, offset: Offset) -> bool:
        """Raise the log start, so that older records are gone; returns whether it moved.

        Raises `ProtocolError` OFFSET_OUT_OF_RANGE beyond the high watermark. Segments that are
        wholly below the start go with the next `drop_below_start`.
        """
        if offset > self.high_watermark:
            raise ProtocolError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Records of {self.topic_partition} cannot be deleted up to offset {offset}: the "
                f"high watermark is {self.high_watermark}.",
            )
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.raised[self] = None
        self.leader_epochs.truncate_from_start(offset)
        self.producers.advance_log_start_to(offset)
        return True

    # -- Leader epochs -----------------------------------------------------------------------

    def begin_epoch(self, epoch: LeaderEpoch, start_offset: Offset) -> None:
        """Note that a leader epoch begins; its entry becomes durable later (`leader_epochs`)."""
        if self.leader_epochs.assign(epoch, start_offset, later=True):
            self._set_flush_offset()

    @property
    def epochs_due(self) -> bool:
        """Whether records are written in an epoch whose entry may not be on the disk."""
        return self.leader_epochs.unwritten_from < self.log_end_offset

    def epochs_written(self, written: EpochsToWrite) -> None:
        """A table of leader epochs that was adopted is on the disk."""
        if self.leader_epochs.note_durable(written):
            self._set_flush_offset()

    # -- Segments ----------------------------------------------------------------------------

    def roll(self, now_ms: int, base_offset: Offset | None = None) -> Segment:
        """Close the active segment and begin a new one; returns the active segment.

        An empty active segment that starts where the new one would stays. After a `StorageError`
        everything is as before.
        """
        old = self.active
        base = self.log_end_offset if base_offset is None else base_offset
        if old.size == 0 and old.base_offset == base:
            return old
        if base < self.log_end_offset:
            raise InvariantViolated(
                f"{self.topic_partition}: a segment cannot start at {base}, the log ends at "
                f"{self.log_end_offset}."
            )
        if not old.synced_names:
            # A disk that keeps names in any order must not keep the new one and lose this one.
            self.files.sync_directory(self.directory)
            old.synced_names = True
        new = Segment.create(self.files, self.directory, base, self.config)
        try:
            snapshot = self.producers.take_snapshot(base, sync=False)
            old.close_indexes()
            if self.config.preallocate:
                old.trim_log()
        except StorageError:
            old.reopen_indexes(self.config)
            self._discard(new)
            raise
        old.become_closed()
        if snapshot is not None:
            self.unsynced_snapshots.append(snapshot)
        self.segments.add(new)
        self.start_segment(new, now_ms)
        self.wants_flush = True
        return new

    def _discard(self, segment: Segment) -> None:
        try:
            segment.discard()
        except StorageError as error:
            # Its name stands for offsets that the old segment would go on to fill.
            self.fail(str(error), error)

    def start_segment(self, segment: Segment, now_ms: int) -> None:
        """Make the last segment the active one."""
        jitter_max = min(self.config.segment_jitter_ms, self.config.segment_ms)
        jitter_ms = self.random.randrange(jitter_max) if jitter_max > 0 else 0
        segment.start_clock(self.config, now_ms, jitter_ms)
        self.active = segment

    def roll_if_time_due(self, now_ms: int) -> bool:
        """Close the active segment if its first record is older than `segment.ms`.

        Kafka does this only with the next append; a log that is not written to would keep its
        last segment from compaction and retention for ever.
        """
        active = self.active
        due_ms = min(active.roll_at_timestamp, active.roll_at_ms)
        if self.failure is not None or active.size == 0 or now_ms <= due_ms:
            return False
        self.roll(now_ms)
        return True

    # -- Durability --------------------------------------------------------------------------

    def flush_plan(self, up_to: Offset | None = None) -> FlushPlan | None:
        """What to sync for the log to be durable below `up_to`, by default all of it.

        None when that is so already. The driver carries the plan out and calls `mark_flushed`.
        """
        up_to = self.log_end_offset if up_to is None else min(up_to, self.log_end_offset)
        if up_to <= self.recovery_point:
            self.wants_flush = False
            return None
        if self.leader_epochs.unwritten_from < up_to:
            # Recovery takes epochs from the batches that it reads, and from nowhere else.
            self.leader_epochs.flush_assigned()
            self._set_flush_offset()
        segments = self.segments.since(self.recovery_point)
        files: list[File] = []
        for segment in segments:
            if segment.base_offset < up_to:
                files.extend(segment.files_to_sync())
        files.extend(self.files.open(p) for p in self.unsynced_snapshots if self.files.exists(p))
        names_new = any(not segment.synced_names for segment in segments)
        self.wants_flush = False
        return FlushPlan(
            up_to,
            tuple(files),
            (self.directory,) if names_new or self.unsynced_snapshots else (),
            tuple(segments),
            self.cuts,
        )

    def flush_plan_if_due(self, now_ms: int) -> FlushPlan | None:
        """The plan that `flush.messages`, `flush.ms` or a closed segment call for now.

        Leader epochs that are due should be written before: here they are synced at once.
        """
        if self.log_end_offset >= self.recovery_point + self.config.flush_messages:
            return self.flush_plan()
        if now_ms - self.last_flush_ms >= self.config.flush_ms:
            return self.flush_plan()
        if self.wants_flush:
            return self.flush_plan(Offset(self.active.base_offset))
        return None

    def mark_flushed(self, plan: FlushPlan, now_ms: int) -> bool:
        """Raise the recovery point after `plan` was carried out; whether it moved.

        A plan from before a truncation is void: what it synced may have been replaced since.
        """
        self.last_flush_ms = now_ms
        if plan.cuts != self.cuts:
            return False
        if plan.directories:
            for segment in plan.segments:
                segment.synced_names = True
        synced = {file.path for file in plan.files}
        self.unsynced_snapshots = [p for p in self.unsynced_snapshots if p not in synced]
        if plan.up_to <= self.recovery_point:
            return False
        self.recovery_point = plan.up_to
        self._set_flush_offset()
        return True

    def _set_flush_offset(self) -> None:
        unwritten_from = self.leader_epochs.unwritten_from
        self.flush_at_offset = min(
            self.recovery_point + self.config.flush_messages,
            LONG_MAX if unwritten_from == ALL_WRITTEN else unwritten_from + 1,
        )

    # -- Checks ------------------------------------------------------------------------------

    def fail(self, reason: str, cause: StorageError | None = None) -> None:
        """Take no more appends: what is on disk and what is in memory may differ (KAFKA-10778)."""
        if self.failure is None:
            self.failure = reason
            self.may_reload = isinstance(cause, NoRoom)

    def check_usable(self) -> None:
        """Raise `StorageError` when the log failed or was closed."""
        if self.failure is not None:
            raise StorageError(f"The log of {self.topic_partition} failed: {self.failure}")
        if self.closed:
            raise StorageError(f"The log of {self.topic_partition} is closed.")

    def check(self) -> None:
        """Raise `InvariantViolated` unless offsets and segments agree (I-01, I-02, I-06)."""
        if not 0 <= self.log_start_offset <= self.high_watermark <= self.log_end_offset:
            raise InvariantViolated(
                f"{self.topic_partition}: start {self.log_start_offset}, high watermark "
                f"{self.high_watermark} and end {self.log_end_offset} are out of order."
            )
        bases = self.segments.base_offsets
        if not bases or bases[-1] > self.log_end_offset or self.segments.last is not self.active:
            raise InvariantViolated(f"{self.topic_partition}: the active segment is not the last.")
        if any(low >= high for low, high in pairwise(bases)):
            raise InvariantViolated(f"{self.topic_partition}: segments are out of order: {bases}.")
        if self.recovery_point > self.log_end_offset:
            raise InvariantViolated(
                f"{self.topic_partition}: the recovery point {self.recovery_point} is beyond the "
                f"end {self.log_end_offset}."
            )
        self.leader_epochs.check()
        self.producers.check_invariants()
