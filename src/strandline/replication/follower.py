"""What the answer to a fetch means for the replica that follows.

This file knows the decision for one partition in one answer (replication specification 1.5). It
must not know logs, links or sessions: the caller carries the action out. Order matters to it: a log
that has diverged is cut first, and that answer's watermarks are not applied (KAFKA-14704); else the
records come first, then the high watermark, then the log start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from strandline.errors import ErrorCode
from strandline.replication.policies import DEFAULT, Policies
from strandline.replication.truncation import (
    EpochEnd,
    EpochHistory,
    Target,
    truncation_target,
)
from strandline.types import LeaderEpoch, Offset


class Asked(NamedTuple):
    """What the fetch asked for, for one partition."""

    offset: Offset
    leader_epoch: LeaderEpoch


class FetchAnswer(NamedTuple):
    """What the leader answered for one partition; the records themselves do not matter here."""

    error_code: ErrorCode
    high_watermark: Offset
    log_start_offset: Offset
    diverging: EpochEnd | None
    has_records: bool


class Followed(NamedTuple):
    """The replica as it is when the answer arrives; `latest_epoch` is that of its records."""

    leader_epoch: LeaderEpoch
    latest_epoch: LeaderEpoch
    log_end_offset: Offset
    high_watermark: Offset
    history: EpochHistory


@dataclass(frozen=True, slots=True)
class Append:
    """Append the records, if any; then follow these offsets with `follower_high_watermark`."""

    high_watermark: Offset
    log_start_offset: Offset


@dataclass(frozen=True, slots=True)
class Truncate:
    """Truncate, then fetch again from the log's end, wherever that is then (D-08)."""

    target: Target


@dataclass(frozen=True, slots=True)
class TruncateFully:
    """Drop everything, and go on with an empty log that starts at `start_offset` (KAFKA-9491).

    So does a log that ends there whose records cannot be compared any more: see `judge`.
    """

    start_offset: Offset


@dataclass(frozen=True, slots=True)
class AskOffsets:
    """Ask the leader where its log starts and ends, then see `out_of_range_step`."""


@dataclass(frozen=True, slots=True)
class BackOff:
    """Leave the partition alone for `replica.fetch.backoff.ms`, then fetch again."""

    error_code: ErrorCode


@dataclass(frozen=True, slots=True)
class Wait:
    """The leader is in a later epoch: fetch again only when the metadata tells of it."""


@dataclass(frozen=True, slots=True)
class Continue:
    """Nothing to do: fetch again from the log's end."""


@dataclass(frozen=True, slots=True)
class Ignore:
    """The answer belongs to a question that is no longer the current one."""


Action = Append | Truncate | TruncateFully | AskOffsets | BackOff | Wait | Ignore

_ASK_OFFSETS = AskOffsets()
_WAIT = Wait()
_IGNORE = Ignore()
_CONTINUE = Continue()


def judge(
    answer: FetchAnswer, asked: Asked, replica: Followed, *, policies: Policies = DEFAULT
) -> Action:
    """What to do about `answer`. Late answers and duplicates end here (F-28).

    Where the leader's log starts, nothing is left of what this log could be compared with. So if it
    is to go on there, only its high watermark vouches for its records, its producers and their
    transactions; without that it starts over (note 0049).
    """
    if asked.offset != replica.log_end_offset or asked.leader_epoch != replica.leader_epoch:
        return _IGNORE
    code = answer.error_code
    if code == ErrorCode.NONE:
        start = answer.log_start_offset
        may_start_over = policies.starts_over and replica.high_watermark < start
        if answer.diverging is None:
            if (
                may_start_over
                and replica.log_end_offset == start
                and replica.latest_epoch < replica.leader_epoch
            ):
                return TruncateFully(start)
            return Append(answer.high_watermark, start)
        target = truncation_target(
            answer.diverging.epoch,
            answer.diverging.end_offset,
            history=replica.history,
            high_watermark=replica.high_watermark,
            log_end_offset=replica.log_end_offset,
            policies=policies,
        )
        if may_start_over and target.offset <= start:
            return TruncateFully(start)
        return Truncate(target)
    if code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return _ASK_OFFSETS
    if code == ErrorCode.FENCED_LEADER_EPOCH:
        return _WAIT
    return BackOff(code)


def follower_high_watermark(
    leader_high_watermark: Offset, log_start_offset: Offset, log_end_offset: Offset
) -> Offset:
    """What a follower may call committed: the leader's word, as far as its own log goes.

    It may be lower than before: a new leader starts with what it knew as a follower.
    """
    return max(log_start_offset, min(leader_high_watermark, log_end_offset))


def out_of_range_step(
    leader_end: Offset, leader_start: Offset, log_end_offset: Offset
) -> Truncate | TruncateFully | Continue:
    """How to go on after OFFSET_OUT_OF_RANGE, given where the leader's log starts and ends.

    Never fatal (KAFKA-7414). If the leader's log has meanwhile grown over this one's end, going on
    is right: with epochs the next fetch finds out whether the logs agree.
    """
    if leader_end < log_end_offset:
        return Truncate(Target(leader_end, True))
    if leader_start > log_end_offset:
        return TruncateFully(leader_start)
    return _CONTINUE


def restart_offset(
    base_offset: Offset,
    last_offset: Offset,
    *,
    log_start_offset: Offset,
    log_end_offset: Offset,
    leader_start_offset: Offset,
) -> Offset | None:
    """Where the log must start over for the first batch that the leader sends; None if it is not
    for this reason that the batch does not fit.

    After DeleteRecords a leader's log may start inside a batch. A follower that goes on there gets
    the whole batch, which starts below its end (KAFKA-6975). If it has no records, or only such as
    the leader has deleted, it is to drop everything, go on at the returned offset with a log start
    of `log_end_offset`, and append then.
    """
    has_none = log_start_offset == log_end_offset or log_end_offset <= leader_start_offset
    if has_none and base_offset < log_end_offset <= last_offset:
        return base_offset
    return None
