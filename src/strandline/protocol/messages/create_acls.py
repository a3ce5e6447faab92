"""CreateAcls: add ACLs (KIP-140, KIP-290). The numbers are those of `authorization.acls`."""

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
class AclCreation:
    """One ACL."""

    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8(default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@message("1-3", flexible="2+")
class CreateAclsRequest:
    """The ACLs to add."""

    creations: list[AclCreation] = array(AclCreation)


@structure
class AclCreationResult:
    """What became of one."""

    error_code: int = int16()
    error_message: str | None = nullable_string()


@message("1-3", flexible="2+")
class CreateAclsResponse:
    """What became of each, in the order of the request."""

    throttle_time_ms: int = int32()
    results: list[AclCreationResult] = array(AclCreationResult)
