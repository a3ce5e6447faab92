"""How a member comes from what it owns to what it is to own, step by step.

    its target is another one, or some of it was not free
        something must go, and the member still has it  ->  UNREVOKED, at its former epoch: it is
                                                            told the rest, and gives up
        nothing must go                                 ->  at the target's epoch, it gets what is
                                                            free: UNRELEASED while anything is not,
                                                            else STABLE

A partition is given to one member only when no other one owns it or may still be reading it. A
member has given up what its heartbeat does not report any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from strandline.errors import ErrorCode, ProtocolError
from strandline.groups.consumer.member import ConsumerMember, MemberState
from strandline.groups.consumer.partitions import (
    OwnedPartitions,
    Partitions,
    merged,
    overlaps,
)
from strandline.types import TopicId

Reported: TypeAlias = Sequence[tuple[TopicId, int]] | None
"""The partitions that a member says it owns; None: the same as before."""


@dataclass(frozen=True, slots=True)
class Goal:
    """Where a member is to go."""

    epoch: int
    """Of the target assignment."""
    target: Partitions
    subscribed: frozenset[TopicId]
    """The topics that the member subscribes to, which may be fewer than when the target was
    computed: it must not keep others."""
    is_free: Callable[[TopicId, int], bool]
    """Whether no other member owns a partition, or may still be reading it."""


def check_known(member: ConsumerMember, reported: Reported) -> None:
    """Fence a member whose state was stored by a later Kafka, unless it has given up everything:
    there is no other way on. Raises `ProtocolError`."""
    if member.state is MemberState.UNKNOWN and (reported is None or reported):
        raise ProtocolError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The consumer group member is in an unknown state. The member must abandon all its "
            "partitions and rejoin.",
        )


def reconciled(
    member: ConsumerMember, goal: Goal, reported: Reported, *, subscription_changed: bool
) -> ConsumerMember:
    """The member after the next step, or as it is if it cannot take one."""
    match member.state:
        case MemberState.STABLE:
            if member.epoch != goal.epoch:
                return _next(member, goal, reported)
        case MemberState.UNREVOKED:
            if not _still_has(member.revoking, reported):
                return _next(member, goal, reported)
        case MemberState.UNRELEASED | MemberState.UNKNOWN:
            return _next(member, goal, reported)
    return _narrowed(member, goal, reported) if subscription_changed else member


def _next(member: ConsumerMember, goal: Goal, reported: Reported) -> ConsumerMember:
    kept: dict[TopicId, dict[int, int]] = {}
    leaving: dict[TopicId, dict[int, int]] = {}
    for topic_id, epochs in member.assigned.items():
        wanted = goal.target.get(topic_id, frozenset()) if topic_id in goal.subscribed else ()
        for partition, epoch in epochs.items():
            side = kept if partition in wanted else leaving
            side.setdefault(topic_id, {})[partition] = epoch
    if leaving and _still_has(leaving, reported):
        epoch = goal.epoch if member.state is MemberState.UNKNOWN else member.epoch
        return _unrevoked(member, kept, leaving, epoch)
    is_complete = True
    for topic_id, numbers in goal.target.items():
        if topic_id not in goal.subscribed:
            continue
        for partition in sorted(numbers):
            if partition in kept.get(topic_id, ()):
                continue
            if goal.is_free(topic_id, partition):
                kept.setdefault(topic_id, {})[partition] = goal.epoch
            else:
                is_complete = False
    state = MemberState.STABLE if is_complete else MemberState.UNRELEASED
    return member.advanced(goal.epoch, state, kept)


def _narrowed(member: ConsumerMember, goal: Goal, reported: Reported) -> ConsumerMember:
    """Take away at once what the member does not subscribe to any more."""
    leaving = {t: epochs for t, epochs in member.assigned.items() if t not in goal.subscribed}
    if not leaving:
        return member
    kept = {t: epochs for t, epochs in member.assigned.items() if t in goal.subscribed}
    revoking = merged(member.revoking, leaving)
    if _still_has(revoking, reported):
        return _unrevoked(member, kept, revoking, member.epoch)
    return replace(member, previous_epoch=member.epoch, assigned=kept)


def _unrevoked(
    member: ConsumerMember, kept: OwnedPartitions, revoking: OwnedPartitions, epoch: int
) -> ConsumerMember:
    return replace(
        member,
        epoch=epoch,
        previous_epoch=member.epoch,
        state=MemberState.UNREVOKED,
        assigned=kept,
        revoking=revoking,
    )


def _still_has(revoking: OwnedPartitions, reported: Reported) -> bool:
    return reported is None or overlaps(revoking, reported)
