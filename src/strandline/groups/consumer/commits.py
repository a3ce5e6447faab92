"""Who may commit and read offsets of a consumer group, and when.

A member commits with its epoch. An older epoch than the member's is accepted for the partitions
that the member has had since then: its client may not have heard of the newer one yet (KIP-1251).
"""

from __future__ import annotations

from collections.abc import Iterable

from strandline.errors import ErrorCode, ProtocolError
from strandline.groups.consumer.group import ConsumerGroup
from strandline.groups.consumer.member import ConsumerMember
from strandline.groups.requests import NO_GENERATION, NO_MEMBER_ID
from strandline.types import NO_TOPIC_ID, TopicId

_MEMBER_EPOCH_SINCE = 9
"""The version of OffsetCommit that knows member epochs."""


def check_commit(
    group: ConsumerGroup,
    member_id: str,
    epoch: int,
    version: int,
    partitions: Iterable[tuple[TopicId, int]],
) -> None:
    """Refuse an OffsetCommit by someone who may not. Raises `ProtocolError`."""
    if epoch < 0 and not group.members:
        return  # an administrator, or a consumer that manages its partitions itself
    member = group.member(member_id)
    if not member.is_classic and version < _MEMBER_EPOCH_SINCE:
        raise ProtocolError(
            ErrorCode.UNSUPPORTED_VERSION,
            "OffsetCommit version 9 or above must be used by members using the consumer group "
            "protocol.",
        )
    _check_epoch(member, epoch, partitions)


def check_transactional_commit(
    group: ConsumerGroup,
    member_id: str,
    instance_id: str | None,
    epoch: int,
    partitions: Iterable[tuple[TopicId, int]],
) -> None:
    """Refuse a TxnOffsetCommit for a member that is not there any more, or not in that epoch.
    Raises `ProtocolError`."""
    if epoch < 0 and not group.members:
        return
    if epoch == NO_GENERATION and member_id == NO_MEMBER_ID and instance_id is None:
        return
    try:
        _check_epoch(group.member(member_id), epoch, partitions)
    except ProtocolError as refusal:
        if refusal.code is ErrorCode.STALE_MEMBER_EPOCH:
            # Producers know the errors of the classic protocol only.
            raise ProtocolError(ErrorCode.ILLEGAL_GENERATION, refusal.message) from None
        raise


def check_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> None:
    """Refuse an OffsetFetch by a member that the durable group does not have, or has in another
    epoch. Raises `ProtocolError`."""
    if member_id is None and epoch < 0:
        return
    member = group.durable.members.get(member_id or NO_MEMBER_ID)
    if member is None:
        raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
    if epoch != member.epoch:
        raise _stale(member, f"The epoch {epoch} is not the member's, {member.epoch}.")


def _check_epoch(
    member: ConsumerMember, epoch: int, partitions: Iterable[tuple[TopicId, int]]
) -> None:
    if epoch == member.epoch:
        return
    if epoch > member.epoch:
        raise _stale(member, f"The epoch {epoch} is newer than the member's, {member.epoch}.")
    for topic_id, partition in partitions:
        had_since = member.assigned.get(topic_id, {}).get(partition)
        if had_since is None:
            had_since = member.revoking.get(topic_id, {}).get(partition)
        if topic_id == NO_TOPIC_ID or had_since is None or epoch < had_since:
            raise _stale(
                member, f"The member did not own partition {partition} of {topic_id} at {epoch}."
            )


def _stale(member: ConsumerMember, reason: str) -> ProtocolError:
    code = ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH
    return ProtocolError(code, reason)
