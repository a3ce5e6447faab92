"""Why a log is compacted, or not yet, and how far: what `bounds` decided, as a document.

This file knows how to say what a rule means, and when time alone changes it. It must not know which
logs are compacted.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum

from strandline.config.topic import LONG_MAX
from strandline.storage.compaction.bounds import (
    Bound,
    CleanableRange,
    Due,
    cleanable_range,
    dirty_closed_segments,
    oldest_dirty_ms,
    segment_base,
)
from strandline.storage.log import Log
from strandline.storage.segment import Segment
from strandline.types import Offset


class State(StrEnum):
    """What compaction thinks of a segment."""

    CLEAN = "clean"
    DIRTY = "dirty"
    """It is compacted with the next round."""
    UNCLEANABLE = "uncleanable"
    ACTIVE = "active"


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """One segment. `end_offset` is exclusive; times are wall-clock milliseconds."""

    base_offset: int
    end_offset: int
    size_bytes: int
    newest_ms: int
    """The largest timestamp in it, -1 without one."""
    state: State
    why: str
    """A sentence."""
    until_ms: int | None
    """When time alone makes it cleanable."""


@dataclass(frozen=True, slots=True)
class CompactionFacts:
    """What compaction thinks of a log at one moment."""

    is_compacted: bool
    range: CleanableRange
    min_ratio: float
    why_bound: str
    """Which rule ends the cleanable part."""
    is_due: bool
    why_due: str
    due_at_ms: int | None
    """When time alone makes a log due that is not."""
    segments: tuple[SegmentFacts, ...]

    def to_json(self) -> dict[str, object]:
        """For documents."""
        found = self.range
        return {
            "is_compacted": self.is_compacted,
            "first_dirty_offset": found.first_dirty,
            "first_uncleanable_offset": found.first_uncleanable,
            "bound": found.bound.value,
            "bound_offset": found.bound_offset,
            "why_bound": self.why_bound,
            "clean_bytes": found.clean_bytes,
            "cleanable_bytes": found.cleanable_bytes,
            "dirty_ratio": found.ratio,
            "min_cleanable_dirty_ratio": self.min_ratio,
            "is_due": self.is_due,
            "why_due": self.why_due,
            "due_at_ms": self.due_at_ms,
            "segments": [{**asdict(each), "state": each.state.value} for each in self.segments],
        }


def compaction_facts(log: Log, checkpoint: Offset | None, now_ms: int) -> CompactionFacts:
    """What a cleaner that looks at the log at `now_ms` would do, and why.

    Looks at the newest timestamp of every segment, which may read its time index.
    """
    config = log.config
    found = cleanable_range(log, checkpoint, now_ms)
    due = found.due(config)
    return CompactionFacts(
        config.is_compacted,
        found,
        config.min_cleanable_dirty_ratio,
        why_bound(log, found),
        due.is_now,
        why_due(log, found, due),
        _due_at_ms(log, found, now_ms) if config.is_compacted and not due.is_now else None,
        tuple(_segment(log, index, found) for index in range(len(log.segments))),
    )


def _segment(log: Log, index: int, found: CleanableRange) -> SegmentFacts:
    segment = log.segments.all[index]
    bases = log.segments.base_offsets
    end = bases[index + 1] if index + 1 < len(bases) else log.log_end_offset
    state, why = _state(log, segment, end, found)
    lag_ms = log.config.min_compaction_lag_ms
    waits = state is State.UNCLEANABLE and lag_ms > 0
    newest_ms = segment.largest_timestamp().timestamp
    return SegmentFacts(
        segment.base_offset,
        end,
        segment.size,
        newest_ms,
        state,
        why,
        newest_ms + lag_ms if waits else None,
    )


def _state(log: Log, segment: Segment, end: int, found: CleanableRange) -> tuple[State, str]:
    if segment is log.active:
        return State.ACTIVE, "It is being written to; it is closed by segment.bytes or segment.ms."
    if end <= found.first_dirty:
        return State.CLEAN, f"All below offset {found.first_dirty} is compacted."
    if segment.base_offset >= found.first_uncleanable:
        return State.UNCLEANABLE, why_bound(log, found)
    return State.DIRTY, "It has not been compacted since it was written."


def why_bound(log: Log, found: CleanableRange) -> str:
    """Which rule ends the cleanable part, as a sentence."""
    lag_ms = log.config.min_compaction_lag_ms
    match found.bound:
        case Bound.ACTIVE_SEGMENT:
            return f"The active segment begins at offset {found.bound_offset}."
        case Bound.HIGH_WATERMARK:
            return f"The high watermark is {found.bound_offset}: what follows may be truncated."
        case Bound.LAST_STABLE_OFFSET:
            return f"A transaction that began at offset {found.bound_offset} is not decided."
        case Bound.MIN_COMPACTION_LAG:
            return (
                f"The segment at offset {found.bound_offset} has records younger than "
                f"min.compaction.lag.ms={lag_ms}."
            )


def why_due(log: Log, found: CleanableRange, due: Due) -> str:
    """Why the log is to be compacted now, or is not, as a sentence."""
    config = log.config
    match due:
        case Due.NOT_COMPACTED:
            return "cleanup.policy has no compact."
        case Due.NOTHING_CLEANABLE:
            return "Nothing is cleanable."
        case Due.OVERDUE:
            lag_ms = config.max_compaction_lag_ms
            return (
                f"A record has been older than max.compaction.lag.ms={lag_ms} "
                f"for {found.overdue_ms} ms."
            )
        case Due.DIRTY | Due.CLEAN:
            relation = "exceeds" if due is Due.DIRTY else "does not exceed"
            least = config.min_cleanable_dirty_ratio
            return (
                f"The dirty ratio {found.ratio:.3f} {relation} min.cleanable.dirty.ratio={least}."
            )


def _due_at_ms(log: Log, found: CleanableRange, now_ms: int) -> int | None:
    """When the log becomes due if nothing is written and nothing else changes."""
    config = log.config
    segments = dirty_closed_segments(log, found.first_dirty)
    # In the segment that holds the last stable offset not everything is decided.
    committed_to = segment_base(log, log.last_stable_offset)
    committed = [s for s in segments if s.base_offset < committed_to]
    times: list[int] = []
    if committed and config.max_compaction_lag_ms < LONG_MAX:
        oldest = oldest_dirty_ms(log, found.first_dirty)
        times += [] if oldest is None else [oldest + config.max_compaction_lag_ms + 1]
    cleanable, at_ms = 0, now_ms
    for segment in committed:
        newest_ms = segment.largest_timestamp().timestamp
        at_ms = max(at_ms, newest_ms + config.min_compaction_lag_ms)
        cleanable += segment.size
        if cleanable / (found.clean_bytes + cleanable) > config.min_cleanable_dirty_ratio:
            times.append(at_ms)
            break
    return min(times, default=None)
