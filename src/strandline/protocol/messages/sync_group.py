"""SyncGroup: the leader hands in the assignment, every member gets its part."""

from __future__ import annotations

from strandline.protocol.declare import (
    array,
    binary,
    int16,
    int32,
    message,
    nullable_string,
    string,
    structure,
)


@structure
class SyncGroupRequestAssignment:
    """What the leader gives to one member."""

    member_id: str = string()
    assignment: bytes = binary()


@message("0-5", flexible="4+")
class SyncGroupRequest:
    """A member asks for its assignment; the leader brings those of all members."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = nullable_string("3+", default=None)
    protocol_type: str | None = nullable_string("5+", default=None, ignorable=True)
    protocol_name: str | None = nullable_string("5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


@message("0-5", flexible="4+")
class SyncGroupResponse:
    """The member's part."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    protocol_type: str | None = nullable_string("5+", default=None, ignorable=True)
    protocol_name: str | None = nullable_string("5+", default=None, ignorable=True)
    assignment: bytes = binary()
