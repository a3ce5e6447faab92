"""A log that a start has found: where it lies, and what the directory's tables say of it."""

from __future__ import annotations

from dataclasses import dataclass

from strandline.types import NO_OFFSET, Offset, TopicPartition


@dataclass(frozen=True, slots=True)
class LogToLoad:
    """One partition found on disk and what the checkpoints say of it (0 where they are silent)."""

    topic_partition: TopicPartition
    directory: str
    recovery_point: Offset
    log_start_offset: Offset
    high_watermark: Offset
    needs_recovery: bool
    """The last shutdown was not clean: segments from the recovery point on must be scanned."""
    cleaned_to: Offset = NO_OFFSET
    """Compaction has come so far; `NO_OFFSET` if it was never there."""
    is_future: bool = False
    """It is a copy of a log in another log directory, whose place it is to take."""
