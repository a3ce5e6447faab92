"""ListGroups: the groups that one broker coordinates."""

from __future__ import annotations

from strandline.protocol.declare import (
    STRING,
    array,
    int16,
    int32,
    message,
    string,
    structure,
)


@message("0-5", flexible="3+")
class ListGroupsRequest:
    """Filters; empty ones let everything pass."""

    states_filter: list[str] = array(STRING, "4+")
    types_filter: list[str] = array(STRING, "5+")


@structure
class ListedGroup:
    """One group."""

    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string("4+", ignorable=True)
    group_type: str = string("5+", ignorable=True)


@message("0-5", flexible="3+")
class ListGroupsResponse:
    """The groups."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)
