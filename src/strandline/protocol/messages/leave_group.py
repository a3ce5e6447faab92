"""LeaveGroup: members go, from version 3 several at once (KIP-345)."""

from __future__ import annotations

from strandline.protocol.declare import (
    array,
    int16,
    int32,
    message,
    nullable_string,
    string,
    structure,
)


@structure
class MemberIdentity:
    """A member that goes."""

    member_id: str = string()
    group_instance_id: str | None = nullable_string(default=None)
    reason: str | None = nullable_string("5+", default=None, ignorable=True)


@message("0-5", flexible="4+")
class LeaveGroupRequest:
    """Who goes."""

    group_id: str = string()
    member_id: str = string("0-2")
    members: list[MemberIdentity] = array(MemberIdentity, "3+")


@structure
class MemberResponse:
    """Outcome for one member."""

    member_id: str = string()
    group_instance_id: str | None = nullable_string()
    error_code: int = int16()


@message("0-5", flexible="4+")
class LeaveGroupResponse:
    """Outcome per member."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, "3+")
