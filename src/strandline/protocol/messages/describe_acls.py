"""DescribeAcls: the ACLs that a filter means (KIP-140, KIP-290).

Version 3 knows resources of the type User; the numbers are those of `authorization.acls`.
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


@message("1-3", flexible="2+")
class DescribeAclsRequest:
    """The filter; null and 1 (any) mean all."""

    resource_type_filter: int = int8()
    resource_name_filter: str | None = nullable_string()
    pattern_type_filter: int = int8(default=3)
    principal_filter: str | None = nullable_string()
    host_filter: str | None = nullable_string()
    operation: int = int8()
    permission_type: int = int8()


@structure
class AclDescription:
    """One ACL of a resource."""

    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@structure
class DescribeAclsResource:
    """A pattern with its ACLs."""

    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(default=3)
    acls: list[AclDescription] = array(AclDescription)


@message("1-3", flexible="2+")
class DescribeAclsResponse:
    """The ACLs by pattern."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()
    resources: list[DescribeAclsResource] = array(DescribeAclsResource)
