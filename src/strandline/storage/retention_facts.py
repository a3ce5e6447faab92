"""Why each segment of a log is still there: the rules of `retention`, told instead of followed.

This file knows what retention would do at a moment, segment by segment, which rule says so, and
when time alone changes that. It changes nothing. That it agrees with what retention really does is
tested; it must not decide anything by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import Enum

from strandline.storage.log import Log


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
    below = log.retention.segments_below_start
    excess = log.size_bytes - log.config.retention_bytes
    by_size = log.config.retention_bytes >= 0
    kept_by: int | None = None
    for index, segment in enumerate(log.segments.all):
        excess -= segment.size
        by_size = by_size and excess >= 0
        newest_ms = log.retention.newest_ms(index)
        until_ms: int | None = None
        if log.config.deletes_old_segments and log.config.retention_ms >= 0:
            until_ms = newest_ms + log.config.retention_ms + 1
        if index < below:
            goes, rule, why = True, Rule.BELOW_START, "it is wholly below the log start"
        else:
            goes, rule, why = _judge(log, index, until_ms, now_ms, by_size=by_size)
        if goes and kept_by is not None:
            goes, rule = False, Rule.OLDER_STAYS
            why = f"the older segment at {kept_by} stays, and only the oldest may go"
        if not goes:
            kept_by = segment.base_offset if kept_by is None else kept_by
            by_size = False
        yield SegmentFate(
            segment.base_offset,
            log.retention.upper_bound(index),
            segment.size,
            newest_ms,
            index + 1 == len(log.segments),
            goes,
            rule,
            None if goes else until_ms,
            why,
        )


def _judge(
    log: Log, index: int, until_ms: int | None, now_ms: int, *, by_size: bool
) -> tuple[bool, Rule, str]:
    """Whether a segment that is not below the start would go if all before it did, and why."""
    config = log.config
    if not config.deletes_old_segments:
        policy = ",".join(sorted(config.cleanup_policies)) or "(empty)"
        return False, Rule.POLICY, f"cleanup.policy={policy} does not delete by age or size"
    if not log.retention.may_drop(index):
        if log.segments.all[index].size == 0:
            return False, Rule.EMPTY_ACTIVE, "it is the empty active segment"
        return (
            False,
            Rule.NOT_COMMITTED,
            f"it reaches beyond the high watermark {log.high_watermark}",
        )
    if by_size:
        return True, Rule.SIZE, f"retention.bytes={config.retention_bytes} remain without it"
    if until_ms is not None:
        if now_ms >= until_ms:
            return True, Rule.AGE, f"its newest record is older than {_setting(log)}"
        return False, Rule.AGE, f"its newest record is not older than {_setting(log)}"
    if config.retention_bytes >= 0:
        return False, Rule.SIZE, f"fewer than retention.bytes={config.retention_bytes} would remain"
    return False, Rule.NOTHING_SET, "neither retention.ms nor retention.bytes limits the log"


def _setting(log: Log) -> str:
    return f"retention.ms={log.config.retention_ms}"
