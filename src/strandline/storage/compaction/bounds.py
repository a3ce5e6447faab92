"""What of a log can be compacted now, what of it would be worth it, and what bounds it.

This file knows Kafka's rules for choosing (LogCleanerManager, LogToClean, KIP-58, KIP-354). It must
not know how a log is compacted or when.

    log start          first dirty offset          first uncleanable offset          log end
        │ clean: compacted │ cleanable: compacted next    │ uncleanable: not yet         │

The first dirty offset is where the last round ended, as the log directory's checkpoint says. The
first uncleanable one is the base of a segment: of the active one, or of an earlier one in which not
everything is committed, or which is younger than `min.compaction.lag.ms`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from strandline.config.topic import LONG_MAX, TopicConfig
from strandline.storage.batch_scan import header_at
from strandline.storage.log import Log
from strandline.storage.segment import Segment
from strandline.types import NO_TIMESTAMP, Offset


class Bound(StrEnum):
    """What keeps the rest of a log from being compacted."""

    ACTIVE_SEGMENT = "active segment"
    HIGH_WATERMARK = "high watermark"
    LAST_STABLE_OFFSET = "last stable offset"
    MIN_COMPACTION_LAG = "min.compaction.lag.ms"


class Due(StrEnum):
    """Whether a log is to be compacted without being asked, and which rule says so."""

    NOT_COMPACTED = "cleanup.policy"
    NOTHING_CLEANABLE = "nothing cleanable"
    OVERDUE = "max.compaction.lag.ms"
    DIRTY = "above min.cleanable.dirty.ratio"
    CLEAN = "below min.cleanable.dirty.ratio"

    @property
    def is_now(self) -> bool:
        """Whether it is."""
        return self in (Due.OVERDUE, Due.DIRTY)


@dataclass(frozen=True, slots=True)
class CleanableRange:
    """What can be compacted of one log at one moment. Sizes count whole segments, as in Kafka.

    Where the last round ended inside a segment, `clean_bytes` and `cleanable_bytes` both have it.
    """

    first_dirty: Offset
    first_uncleanable: Offset
    bound: Bound
    bound_offset: Offset
    """What the bound itself says: `first_uncleanable` is the base of the segment that holds it."""
    clean_bytes: int
    cleanable_bytes: int
    overdue_ms: int
    """For how long a record has been older than `max.compaction.lag.ms` without compaction; 0 if
    there is none."""
    checkpoint_is_off: bool
    """The checkpoint was below the log start or beyond the log end: `first_dirty` corrects it."""

    @property
    def ratio(self) -> float:
        """The share of cleanable bytes that `min.cleanable.dirty.ratio` is compared with."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def due(self, config: TopicConfig) -> Due:
        """Whether the log is to be compacted without being asked."""
        if not config.is_compacted:
            return Due.NOT_COMPACTED
        if self.cleanable_bytes == 0:
            return Due.NOTHING_CLEANABLE
        if self.overdue_ms > 0:
            return Due.OVERDUE
        return Due.DIRTY if self.ratio > config.min_cleanable_dirty_ratio else Due.CLEAN


def cleanable_range(log: Log, checkpoint: Offset | None, now_ms: int) -> CleanableRange:
    """What can be compacted of the log, given the first dirty offset that was written down.

    Reads a header of each uncompacted segment where a compaction lag is set. Raises `StorageError`.
    """
    start, end = log.log_start_offset, log.log_end_offset
    is_off = checkpoint is not None and not start <= checkpoint <= end
    first_dirty = start if checkpoint is None or is_off else checkpoint
    bound_offset, bound = _bound(log, first_dirty, now_ms)
    first_uncleanable = segment_base(log, max(first_dirty, bound_offset))
    return CleanableRange(
        first_dirty=first_dirty,
        first_uncleanable=first_uncleanable,
        bound=bound,
        bound_offset=bound_offset,
        clean_bytes=sum(s.size for s in log.segments.all if s.base_offset < first_dirty),
        cleanable_bytes=sum(
            segment.size
            for segment in log.segments.since(min(first_dirty, first_uncleanable))
            if segment.base_offset < first_uncleanable
        ),
        overdue_ms=_overdue_ms(log, first_dirty, now_ms),
        checkpoint_is_off=is_off,
    )


def oldest_dirty_ms(log: Log, first_dirty: Offset) -> int | None:
    """The smallest of the timestamps by which uncompacted segments age; None without any."""
    stamps = [_first_timestamp(segment) for segment in dirty_closed_segments(log, first_dirty)]
    return min((stamp for stamp in stamps if stamp > 0), default=None)


def _first_timestamp(segment: Segment) -> int:
    """The largest timestamp in the segment's first batch, by which it ages; -1 without one."""
    if segment.first_timestamp is None and segment.size:
        segment.first_timestamp = header_at(segment.log, 0).max_timestamp
    return NO_TIMESTAMP if segment.first_timestamp is None else segment.first_timestamp


def dirty_closed_segments(log: Log, first_dirty: Offset) -> list[Segment]:
    """The segments that hold something uncompacted, without the active one."""
    return [segment for segment in log.segments.since(first_dirty) if segment is not log.active]


def _bound(log: Log, first_dirty: Offset, now_ms: int) -> tuple[Offset, Bound]:
    bounds = [(Offset(log.active.base_offset), Bound.ACTIVE_SEGMENT)]
    stable = log.last_stable_offset
    if stable < log.high_watermark:
        bounds.append((stable, Bound.LAST_STABLE_OFFSET))
    else:
        bounds.append((log.high_watermark, Bound.HIGH_WATERMARK))
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        for segment in dirty_closed_segments(log, first_dirty):
            newest_ms = segment.largest_timestamp().timestamp
            if newest_ms < 0:
                newest_ms = log.files.modified_ms(segment.log.path)
            if newest_ms > now_ms - lag_ms:
                bounds.append((Offset(segment.base_offset), Bound.MIN_COMPACTION_LAG))
                break
    return min(bounds, key=lambda bound: bound[0])


def segment_base(log: Log, offset: Offset) -> Offset:
    """The base of the segment that holds `offset`: compaction ends between segments."""
    if offset > log.active.base_offset:
        return Offset(log.active.base_offset)
    return Offset(log.segments.since(offset)[0].base_offset)


def _overdue_ms(log: Log, first_dirty: Offset, now_ms: int) -> int:
    lag_ms = log.config.max_compaction_lag_ms
    if lag_ms >= LONG_MAX:
        return 0
    oldest = oldest_dirty_ms(log, first_dirty)
    return 0 if oldest is None else max(0, now_ms - lag_ms - oldest)
