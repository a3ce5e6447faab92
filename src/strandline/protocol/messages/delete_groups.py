"""DeleteGroups: forget groups that have no members."""

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


@message("0-2", flexible="2+")
class DeleteGroupsRequest:
    """The groups to forget."""

    groups_names: list[str] = array(STRING)


@structure
class DeletableGroupResult:
    """Outcome for one group."""

    group_id: str = string()
    error_code: int = int16()


@message("0-2", flexible="2+")
class DeleteGroupsResponse:
    """Outcome per group."""

    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
