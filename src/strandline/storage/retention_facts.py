"""Why each segment of a log is still there: the fates that `retention` gives, as a document.

This file knows how to say what a rule means for a segment, and when time alone changes that. It
must not know the rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from strandline.storage.log import Log
from strandline.storage.retention import Rule


@dataclass(frozen=True, slots=True)
class SegmentFate:
    """One segment. `end_offset` is exclusive; times are wall-clock milliseconds."""

    base_offset: int
    end_offset: int
    size_bytes: int
    newest_ms: int
    """By what it ages; for one without timestamps, when it was last written."""
    is_active: bool
    goes: bool
    """With the next round of retention."""
    rule: Rule
    until_ms: int | None
    """When time alone will let it go, if its elders do not hold it back."""
    why: str
    """A sentence."""

    def to_json(self) -> dict[str, object]:
        """For documents; the rule by its name."""
        return {**asdict(self), "rule": self.rule.value}


@dataclass(frozen=True, slots=True)
class RetentionFacts:
    """What retention thinks of a log at one moment."""

    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    size_bytes: int
    retention_ms: int
    retention_bytes: int
    policy: str
    segments: tuple[SegmentFate, ...]

    @property
    def goes_next(self) -> tuple[SegmentFate, ...]:
        """What the next round would take."""
        return tuple(each for each in self.segments if each.goes)

    @property
    def goes_at_ms(self) -> int | None:
        """When the oldest segment that stays may go by time alone."""
        return next((each.until_ms for each in self.segments if not each.goes), None)

    def to_json(self) -> dict[str, object]:
        """For documents."""
        going = self.goes_next
        return {
            "log_start_offset": self.log_start_offset,
            "high_watermark": self.high_watermark,
            "log_end_offset": self.log_end_offset,
            "size_bytes": self.size_bytes,
            "retention_ms": self.retention_ms,
            "retention_bytes": self.retention_bytes,
            "cleanup_policy": self.policy,
            "goes_next": {
                "segments": len(going),
                "bytes": sum(each.size_bytes for each in going),
                "from_offset": self.log_start_offset if going else None,
                "to_offset": going[-1].end_offset if going else None,
            },
            "next_change_ms": self.goes_at_ms,
            "segments": [each.to_json() for each in self.segments],
        }


def retention_facts(log: Log, now_ms: int) -> RetentionFacts:
    """What a round of retention at `now_ms` would do. Looks at the newest timestamp of every
    segment, which may read its time index."""
    config = log.config
    return RetentionFacts(
        log.log_start_offset,
        log.high_watermark,
        log.log_end_offset,
        log.size_bytes,
        config.retention_ms,
        config.retention_bytes,
        ",".join(sorted(config.cleanup_policies)),
        tuple(_fates(log, now_ms)),
    )


def _fates(log: Log, now_ms: int) -> Iterator[SegmentFate]:
    config = log.config
    ages = config.deletes_old_segments and config.retention_ms >= 0
    kept_by: int | None = None
    for index, (goes, rule) in log.retention.fates(now_ms):
        segment = log.segments.all[index]
        newest_ms = log.retention.newest_ms(index)
        until_ms = newest_ms + config.retention_ms + 1 if ages and not goes else None
        yield SegmentFate(
            segment.base_offset,
            log.retention.upper_bound(index),
            segment.size,
            newest_ms,
            index + 1 == len(log.segments),
            goes,
            rule,
            until_ms,
            _why(log, rule, goes=goes, kept_by=kept_by),
        )
        if not goes and kept_by is None:
            kept_by = segment.base_offset


def _why(log: Log, rule: Rule, *, goes: bool, kept_by: int | None) -> str:
    """The rule in a sentence; `kept_by` is the oldest segment that stays, if there is an older."""
    config = log.config
    match rule:
        case Rule.BELOW_START:
            return "it is wholly below the log start"
        case Rule.POLICY:
            policy = ",".join(sorted(config.cleanup_policies)) or "(empty)"
            return f"cleanup.policy={policy} does not delete by age or size"
        case Rule.EMPTY_ACTIVE:
            return "it is the empty active segment"
        case Rule.NOT_COMMITTED:
            return f"it reaches beyond the high watermark {log.high_watermark}"
        case Rule.SIZE if goes:
            return f"retention.bytes={config.retention_bytes} remain without it"
        case Rule.SIZE:
            return f"fewer than retention.bytes={config.retention_bytes} would remain"
        case Rule.AGE:
            older = "older" if goes else "not older"
            return f"its newest record is {older} than retention.ms={config.retention_ms}"
        case Rule.OLDER_STAYS:
            return f"the older segment at {kept_by} stays, and only the oldest may go"
        case Rule.NOTHING_SET:
            return "neither retention.ms nor retention.bytes limits the log"
