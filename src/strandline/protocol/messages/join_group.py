"""JoinGroup: enter a group's next generation and wait for the others."""

from __future__ import annotations

from strandline.protocol.declare import (
    array,
    binary,
    boolean,
    int16,
    int32,
    message,
    nullable_string,
    string,
    structure,
)


@structure
class JoinGroupRequestProtocol:
    """An assignor that the member supports, with what it tells the leader."""

    name: str = string()
    metadata: bytes = binary()


@message("0-9", flexible="6+")
class JoinGroupRequest:
    """A member wants in. An empty member id asks for a new one (KIP-394)."""

    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string()
    group_instance_id: str | None = nullable_string("5+", default=None)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = nullable_string("8+", default=None, ignorable=True)


@structure
class JoinGroupResponseMember:
    """A member, told to the leader only."""

    member_id: str = string()
    group_instance_id: str | None = nullable_string("5+", default=None, ignorable=True)
    metadata: bytes = binary()


@message("0-9", flexible="6+")
class JoinGroupResponse:
    """The generation that was formed and who leads it."""

    throttle_time_ms: int = int32("2+", ignorable=True)
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = nullable_string("7+", default=None, ignorable=True)
    protocol_name: str | None = nullable_string(nullable="7+")
    leader: str = string()
    skip_assignment: bool = boolean("9+")
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)
