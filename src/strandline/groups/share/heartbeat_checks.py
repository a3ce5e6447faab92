"""What is wrong with a heartbeat of a member of a share group (KIP-932), in Kafka's words."""

from __future__ import annotations

from typing import Final

from strandline.errors import ErrorCode, ProtocolError
from strandline.groups.share.image import ShareMember
from strandline.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

JOINING_EPOCH: Final = 0
LEAVING_EPOCH: Final = -1
_MEMBER_ID_LENGTH_MAX: Final = 36
"""That of a UUID."""


def check_member_id(member_id: str | None) -> str:
    """The id, unless it is missing or too long. Raises `ProtocolError` (INVALID_REQUEST)."""
    if not member_id or len(member_id) > _MEMBER_ID_LENGTH_MAX:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "Invalid member id in the request.")
    return member_id


def check(request: ShareGroupHeartbeatRequest) -> None:
    """Refuse a request that makes no sense. Raises `ProtocolError`."""
    check_member_id(request.member_id)
    problem = None
    if not request.group_id.strip():
        problem = "GroupId can't be empty."
    elif not request.member_id.strip():
        problem = "MemberId can't be empty."
    elif request.rack_id is not None and not request.rack_id.strip():
        problem = "RackId can't be empty."
    elif request.member_epoch == JOINING_EPOCH and not request.subscribed_topic_names:
        problem = "SubscribedTopicNames must be set in first request."
    elif request.member_epoch < LEAVING_EPOCH:
        problem = "MemberEpoch is invalid."
    if problem is not None:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, problem)


def check_epoch(member: ShareMember, epoch: int) -> None:
    """Fence a member that is not where the group knows it to be, nor one step behind."""
    if epoch in (member.epoch, member.previous_epoch):
        return
    size = "greater" if epoch > member.epoch else "smaller"
    raise ProtocolError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The share group member has a {size} member epoch ({epoch}) than the one known by the "
        f"group coordinator ({member.epoch}). The member must abandon all its partitions and "
        f"rejoin.",
    )
