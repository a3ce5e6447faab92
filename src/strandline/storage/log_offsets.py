"""The offsets of one partition's log, and which of them a checkpoint still has to be told.

This file knows the rules that tie the offsets together, and is the only one that writes them. It
must not know segments, files or producers.
"""

from __future__ import annotations

from typing import Final

from strandline.errors import InvariantViolated
from strandline.types import Offset, TopicPartition

START: Final = Offset(0)


class LogOffsets:
    """Where a log starts, is committed, is durable and ends.

    - `log_start_offset <= high_watermark <= log_end_offset` (I-01). The start moves by retention,
      DeleteRecords and truncation; the high watermark by the partition's leader or follower, and
      down by truncation only (I-10); the end by appends and truncation.
    - `recovery_point <= log_end_offset`: everything below it is durable (I-07). It moves up when a
      flush plan was carried out, and down by truncation.
    - `recovery_point_fell`, `log_start_fell`, `high_watermark_fell`: the log directory must write
      that checkpoint before the next append: by an older one, records of later would be taken for
      synced, deleted or committed. Cleared by `checkpoints_written`.
    - `log_start_saved <= log_start_offset`: where the log starts after a crash at this moment. Only
      from here on may a client be told that records are deleted. `raised` is where a start that is
      to be saved is noted; the logs of a node share it (`note_raised_starts_in`).
    - `truncations`: how often records were removed from the end, or the log was given up. What
      was found or planned under another count does not hold any more.
    """

    __slots__ = (
        "high_watermark",
        "high_watermark_fell",
        "log_end_offset",
        "log_start_fell",
        "log_start_offset",
        "log_start_saved",
        "raised",
        "recovery_point",
        "recovery_point_fell",
        "topic_partition",
        "truncations",
    )

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.log_start_offset = START
        self.log_start_saved = START
        self.high_watermark = START
        self.log_end_offset = START
        self.recovery_point = START
        self.recovery_point_fell = False
        self.log_start_fell = False
        self.high_watermark_fell = False
        self.raised: dict[LogOffsets, None] = {}
        self.truncations = 0

    @property
    def needs_checkpoint(self) -> bool:
        """Whether a checkpoint must be written before the next append."""
        return self.recovery_point_fell or self.log_start_fell or self.high_watermark_fell

    # -- Loading -----------------------------------------------------------------------------

    def load(self, log_start_offset: Offset, end: Offset, recovery_point: Offset) -> None:
        """Take what recovery found. The high watermark comes from `restore_high_watermark`."""
        self.log_end_offset = end
        self.log_start_offset = log_start_offset
        self.log_start_saved = log_start_offset
        self.recovery_point = recovery_point

    def restore_high_watermark(self, offset: Offset) -> Offset:
        """Take the high watermark from a checkpoint, clamped to the log; returns what it is now."""
        self.high_watermark = max(self.log_start_offset, min(offset, self.log_end_offset))
        return self.high_watermark

    # -- Up ----------------------------------------------------------------------------------

    def advance_end_to(self, offset: Offset) -> None:
        """Records in front of `offset` were appended."""
        self.log_end_offset = offset

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
        return True

    def advance_start_to(self, offset: Offset) -> bool:
        """Raise the log start, which is then due to be saved; returns whether it moved."""
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.raised[self] = None
        return True

    def advance_recovery_point_to(self, offset: Offset) -> bool:
        """Everything below `offset` is durable; returns whether that is new."""
        if offset <= self.recovery_point:
            return False
        self.recovery_point = offset
        return True

    # -- Down --------------------------------------------------------------------------------

    def begin_truncation(self) -> None:
        """Records are about to go from the end: what was found or planned before is void."""
        self.truncations += 1

    def supersede(self, other: LogOffsets) -> None:
        """These are the offsets of the partition from now on, and no longer those of `other`: what
        was found or planned for either is void."""
        self.truncations = max(self.truncations, other.truncations) + 1
        self.raised = other.raised
        other.begin_truncation()

    def move_start_to(self, offset: Offset) -> None:
        """Lower it with the end, or raise it where the log begins anew beyond its end."""
        if offset < self.log_start_offset:
            self.log_start_fell = True
            self.log_start_saved = min(self.log_start_saved, offset)
        elif offset > self.log_start_offset:
            self.raised[self] = None
        self.log_start_offset = offset

    def lower_high_watermark_to(self, offset: Offset) -> None:
        """Follow the end of the log down, or its start up."""
        self.high_watermark_fell = self.high_watermark_fell or offset < self.high_watermark
        self.high_watermark = offset

    def end_at(self, offset: Offset) -> None:
        """The log ends at `offset` now; nothing beyond it is durable."""
        self.log_end_offset = offset
        self._lower_recovery_point_to(offset)

    def _lower_recovery_point_to(self, offset: Offset) -> None:
        if offset < self.recovery_point:
            self.recovery_point = offset
            self.recovery_point_fell = True

    # -- Checkpoints -------------------------------------------------------------------------

    def note_raised_starts_in(self, raised: dict[LogOffsets, None]) -> None:
        """Where to note from now on that the log start was raised and is to be saved."""
        self.raised = raised

    def start_saved(self) -> None:
        """The checkpoint of log starts has the present one."""
        self.log_start_saved = self.log_start_offset

    def checkpoints_written(self) -> None:
        """The checkpoints have every offset that had fallen."""
        self.recovery_point_fell = self.log_start_fell = self.high_watermark_fell = False

    def check(self) -> None:
        """Raise `InvariantViolated` unless the offsets are in order (I-01)."""
        if not 0 <= self.log_start_offset <= self.high_watermark <= self.log_end_offset:
            raise InvariantViolated(
                f"{self.topic_partition}: start {self.log_start_offset}, high watermark "
                f"{self.high_watermark} and end {self.log_end_offset} are out of order.",
                invariant="I-01",
            )
        if self.recovery_point > self.log_end_offset:
            raise InvariantViolated(
                f"{self.topic_partition}: the recovery point {self.recovery_point} is beyond the "
                f"end {self.log_end_offset}.",
                invariant="I-07",
            )
