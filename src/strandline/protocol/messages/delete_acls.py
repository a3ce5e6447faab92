"""DeleteAcls: delete the ACLs that filters mean (KIP-140, KIP-290).

The numbers are those of `authorization.acls`.
"""

from __future__ import annotations

from strandline.protocol.declare import (
    array,
    int8,
    int16,
    int32,
    message,
    nullable_string,
    string,
    structure,
)


@structure
class DeleteAclsFilter:
    """One filter; null and 1 (any) mean all."""

    resource_type_filter: int = int8()
    resource_name_filter: str | None = nullable_string()
    pattern_type_filter: int = int8(default=3)
    principal_filter: str | None = nullable_string()
    host_filter: str | None = nullable_string()
    operation: int = int8()
    permission_type: int = int8()


@message("1-3", flexible="2+")
class DeleteAclsRequest:
    """The filters."""

    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter)


@structure
class DeleteAclsMatchingAcl:
    """An ACL that a filter meant, and what became of it."""

    error_code: int = int16()
    error_message: str | None = nullable_string()
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@structure
class DeleteAclsFilterResult:
    """What became of one filter."""

    error_code: int = int16()
    error_message: str | None = nullable_string()
    matching_acls: list[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl)


@message("1-3", flexible="2+")
class DeleteAclsResponse:
    """What became of each filter, in the order of the request."""

    throttle_time_ms: int = int32()
    filter_results: list[DeleteAclsFilterResult] = array(DeleteAclsFilterResult)
