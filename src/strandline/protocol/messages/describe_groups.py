"""DescribeGroups: state and members of classic groups."""

from __future__ import annotations

from strandline.protocol.declare import (
    STRING,
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


@message("0-6", flexible="5+")
class DescribeGroupsRequest:
    """The groups to describe."""

    groups: list[str] = array(STRING)
    include_authorized_operations: bool = boolean("3+")


@structure
class DescribedGroupMember:
    """A member, with its subscription and assignment as it sent and got them."""

    member_id: str = string()
    group_instance_id: str | None = nullable_string("4+", default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = binary()
    member_assignment: bytes = binary()


@structure
class DescribedGroup:
    """One group."""

    error_code: int = int16()
    error_message: str | None = nullable_string("6+", default=None)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32("3+", default=-0x8000_0000)


@message("0-6", flexible="5+")
class DescribeGroupsResponse:
    """The groups."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup)
