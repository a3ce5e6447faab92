"""Filters of ACLs, as DescribeAcls and DeleteAcls have them.

Source: `org.apache.kafka.common.resource.ResourcePatternFilter`,
`org.apache.kafka.common.acl.AccessControlEntryFilter`.
"""

from __future__ import annotations

from typing import NamedTuple

from strandline.authorization.acls import (
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)


class AclFilter(NamedTuple):
    """Which ACLs are meant; None and ANY mean all."""

    type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern: PatternType = PatternType.ANY
    """MATCH takes a name for that of a resource: every pattern that covers it is meant."""
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def matches(self, binding: AclBinding) -> bool:
        """Whether the ACL is meant."""
        return self.matches_resource(binding.resource) and self.matches_entry(binding.entry)

    def matches_resource(self, resource: ResourcePattern) -> bool:
        """Whether ACLs of the pattern are meant."""
        if self.type not in (ResourceType.ANY, resource.type):
            return False
        if self.pattern not in (PatternType.ANY, PatternType.MATCH, resource.pattern):
            return False
        if self.name is None:
            return True
        if self.pattern is PatternType.MATCH:
            return resource.covers(self.name)
        return self.name == resource.name

    def matches_entry(self, entry: AclEntry) -> bool:
        """Whether ACLs of this entry are meant."""
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (Operation.ANY, entry.operation)
            and self.permission in (Permission.ANY, entry.permission)
        )


def exactly(binding: AclBinding) -> AclFilter:
    """The filter that means this ACL, and no other."""
    resource, entry = binding
    return AclFilter(
        *resource,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission=entry.permission,
    )
