"""ACLs of a cluster: who may do what (see docs/authorization.md). Any broker takes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from strandline.authorization.acls import (
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    of_word,
)
from strandline.authorization.filters import AclFilter
from strandline.client.cluster import ClusterClient
from strandline.client.refusal import check, refusal
from strandline.errors import ErrorCode, ProtocolError
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.create_acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
)
from strandline.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from strandline.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

_Filter = TypeVar("_Filter", DeleteAclsFilter, DescribeAclsRequest)


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """One ACL, in Kafka's words: `Acl("User:alice", "Read", "Topic", "orders")`.

    - `pattern`: "Literal", or "Prefixed" for all names that begin with `resource`; "*" is every one
    - `host`: an address, or "*"
    - `permission`: "Allow", or "Deny", which is stronger
    """

    principal: str
    operation: str
    resource_type: str
    resource: str
    pattern: str = "Literal"
    host: str = "*"
    permission: str = "Allow"

    def binding(self) -> AclBinding:
        """The same as values. Raises `ValueError` for a word that is not known."""
        return AclBinding(
            ResourcePattern(
                of_word(ResourceType, self.resource_type),
                self.resource,
                of_word(PatternType, self.pattern),
            ),
            AclEntry(
                self.principal,
                self.host,
                of_word(Operation, self.operation),
                of_word(Permission, self.permission),
            ),
        )

    @classmethod
    def of(cls, binding: AclBinding) -> Acl:
        """The words of the values."""
        resource, entry = binding
        return cls(
            entry.principal,
            entry.operation.word,
            resource.type.word,
            resource.name,
            resource.pattern.word,
            entry.host,
            entry.permission.word,
        )


class AclAdmin:
    """See the module."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    def create(self, bindings: Iterable[AclBinding]) -> list[ProtocolError | None]:
        """Add ACLs; why each could not be, or None. One that is there is no error."""
        wanted = list(bindings)
        request = CreateAclsRequest(creations=[_creation(each) for each in wanted])

        def ask() -> CreateAclsResponse:
            return self._cluster.any_connection().call(
                ApiKey.CREATE_ACLS, CreateAclsResponse, request
            )

        return [
            None
            if each.error_code == ErrorCode.NONE
            else refusal(each.error_code, each.error_message, f"the ACL {binding}")
            for binding, each in zip(wanted, self._cluster.retry(ask).results, strict=True)
        ]

    def describe(self, wanted: AclFilter) -> list[AclBinding]:
        """The ACLs that a filter means, by resource."""

        def ask() -> DescribeAclsResponse:
            request = _filled(DescribeAclsRequest, wanted)
            response = self._cluster.any_connection().call(
                ApiKey.DESCRIBE_ACLS, DescribeAclsResponse, request
            )
            check(response.error_code, response.error_message, "the ACLs")
            return response

        return [
            AclBinding(
                ResourcePattern(
                    ResourceType(resource.resource_type),
                    resource.resource_name,
                    PatternType(resource.pattern_type),
                ),
                AclEntry(
                    each.principal,
                    each.host,
                    Operation(each.operation),
                    Permission(each.permission_type),
                ),
            )
            for resource in self._cluster.retry(ask).resources
            for each in resource.acls
        ]

    def delete(self, filters: Sequence[AclFilter]) -> list[AclBinding]:
        """Delete all ACLs that one of the filters means, and return them, each once."""
        request = DeleteAclsRequest(filters=[_filled(DeleteAclsFilter, each) for each in filters])

        def ask() -> DeleteAclsResponse:
            response = self._cluster.any_connection().call(
                ApiKey.DELETE_ACLS, DeleteAclsResponse, request
            )
            for result in response.filter_results:
                check(result.error_code, result.error_message, "the ACLs")
                for each in result.matching_acls:
                    check(each.error_code, each.error_message, f"the ACL {_matched(each)}")
            return response

        found = dict.fromkeys(
            _matched(each)
            for result in self._cluster.retry(ask).filter_results
            for each in result.matching_acls
        )
        return list(found)


def _creation(binding: AclBinding) -> AclCreation:
    resource, entry = binding
    return AclCreation(
        resource_type=resource.type,
        resource_name=resource.name,
        resource_pattern_type=resource.pattern,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )


def _filled(message: Callable[..., _Filter], wanted: AclFilter) -> _Filter:
    """A message with a filter in it; both that there are name its fields alike."""
    return message(
        resource_type_filter=wanted.type,
        resource_name_filter=wanted.name,
        pattern_type_filter=wanted.pattern,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission,
    )


def _matched(each: DeleteAclsMatchingAcl) -> AclBinding:
    return AclBinding(
        ResourcePattern(
            ResourceType(each.resource_type), each.resource_name, PatternType(each.pattern_type)
        ),
        AclEntry(
            each.principal, each.host, Operation(each.operation), Permission(each.permission_type)
        ),
    )
