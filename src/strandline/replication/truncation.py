"""Where the logs of a leader and of a follower part, and how far the follower must go back.

This file knows both sides of the question: the leader answers where a leader epoch ends in its log
(`divergence`), and the follower makes an offset of that answer (`truncation_target`). It must not
know logs or requests. Theory (KIP-101, KIP-279, KIP-320): two logs agree up to the end of the
latest epoch that both have, and neither length nor high watermark says which that is. Each round
takes at least one epoch away from the follower, or is the last (I-20).
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from strandline.errors import ErrorCode, ProtocolError
from strandline.replication.policies import DEFAULT, Policies, TruncateBy
from strandline.types import NO_EPOCH, NO_OFFSET, LeaderEpoch, Offset


class EpochHistory(Protocol):
    """The leader epochs of one replica's log."""

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        """The largest epoch up to `epoch` and where it ends; (`NO_EPOCH`, `NO_OFFSET`) unknown."""


class EpochEnd(NamedTuple):
    """A leader epoch, and the offset behind the last record that was written in it."""

    epoch: LeaderEpoch
    end_offset: Offset


class Target(NamedTuple):
    """Where to truncate to; unless `is_final`, the leader is to be asked again after that."""

    offset: Offset
    is_final: bool


def divergence(
    last_fetched_epoch: LeaderEpoch,
    fetch_offset: Offset,
    *,
    log_start_offset: Offset,
    history: EpochHistory,
) -> EpochEnd | None:
    """The leader's side: None when the follower may go on at `fetch_offset`, else how far its log
    can be the same. The caller must then neither send records nor note the fetch.

    Raises `ProtocolError` OFFSET_OUT_OF_RANGE when this log says nothing about that epoch or
    starts behind the offset.
    """
    if last_fetched_epoch == NO_EPOCH:
        return None
    epoch, end_offset = history.end_offset_for_epoch(last_fetched_epoch)
    if end_offset == NO_OFFSET or epoch == NO_EPOCH:
        raise ProtocolError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"The log does not know leader epoch {last_fetched_epoch}.",
        )
    if fetch_offset < log_start_offset:
        raise ProtocolError(ErrorCode.OFFSET_OUT_OF_RANGE, f"The log starts at {log_start_offset}.")
    if epoch < last_fetched_epoch or end_offset < fetch_offset:
        return EpochEnd(epoch, end_offset)
    return None


def truncation_target(
    leader_epoch: LeaderEpoch,
    end_offset: Offset,
    *,
    history: EpochHistory,
    high_watermark: Offset,
    log_end_offset: Offset,
    policies: Policies = DEFAULT,
) -> Target:
    """The follower's side: what to do when the leader says that `leader_epoch` ends there.

    `history`, `high_watermark` and `log_end_offset` are the follower's own. The target never lies
    beyond `log_end_offset`; truncating to the end itself still drops epochs without records
    (KAFKA-10706).
    """
    if end_offset == NO_OFFSET:
        # A leader without epochs, from before 0.11: nothing better is known.
        return Target(high_watermark, True)
    limit = min(end_offset, log_end_offset)
    if leader_epoch == NO_EPOCH or policies.truncate_by is TruncateBy.LEADER_EPOCH_ONCE:
        return Target(limit, True)
    own_epoch, own_end = history.end_offset_for_epoch(leader_epoch)
    if own_end == NO_OFFSET:
        return Target(limit, True)
    if own_epoch == leader_epoch:
        return Target(min(own_end, limit), True)
    # The leader has an epoch that is missing here: everything behind the one before it may differ,
    # and only the next answer, about that earlier epoch, can tell (KIP-279).
    return Target(min(own_end, log_end_offset), False)


def first_truncation(
    latest_epoch: LeaderEpoch,
    *,
    high_watermark: Offset,
    log_end_offset: Offset,
    policies: Policies = DEFAULT,
) -> Target | None:
    """What a replica that begins to follow must cut off before it fetches; None for nothing.

    Its first fetch shows where the logs part, so usually nothing. A log without any leader epoch
    cannot be compared and goes back to its high watermark.
    """
    if policies.truncate_by is TruncateBy.HIGH_WATERMARK or latest_epoch == NO_EPOCH:
        return Target(high_watermark, True) if high_watermark < log_end_offset else None
    return None
