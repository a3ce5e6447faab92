"""Creating and deleting ACLs.

As Kafka's AclAuthorizer does, any broker writes them: each node under a check of the version that
the decision saw, so that two brokers never overwrite one another, and without a check of the
controller's epoch, which ACLs have nothing to do with.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from strandline.authorization.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from strandline.authorization.authorizer import parse_principal
from strandline.authorization.filters import AclFilter
from strandline.cluster.controller.decision import Decision, Refusal
from strandline.cluster.image import ClusterImage
from strandline.cluster.store import Create, Delete, SetData
from strandline.cluster.store import Operation as StoreOperation
from strandline.cluster.znodes import AclNode, acl_path
from strandline.errors import ErrorCode


def create_acls(image: ClusterImage, bindings: Sequence[AclBinding]) -> Decision[Refusal | None]:
    """Add ACLs; one that exists is no error. A result is why an ACL cannot be."""
    results = tuple(_problem(each) for each in bindings)
    added = [each for each, problem in zip(bindings, results, strict=True) if problem is None]
    changed: dict[ResourcePattern, dict[AclEntry, None]] = {}
    for resource, entry in added:
        entries = changed.get(resource)
        if entries is None:
            entries = changed[resource] = dict.fromkeys(entries_of(image, resource))
        entries[entry] = None
    return Decision(results, _writes(image, {at: tuple(each) for at, each in changed.items()}))


def delete_acls(
    image: ClusterImage,
    filters: Sequence[AclFilter],
    among: Collection[ResourcePattern] | None = None,
) -> Decision[tuple[AclBinding, ...]]:
    """Delete all ACLs that a filter means, of all patterns or of these. A result has those that its
    filter means."""
    results = tuple(tuple(matching_acls(image, each, among)) for each in filters)
    deleted = {binding for result in results for binding in result}
    changed = {
        resource: tuple(
            entry
            for entry in entries_of(image, resource)
            if AclBinding(resource, entry) not in deleted
        )
        for resource in dict.fromkeys(each.resource for result in results for each in result)
    }
    return Decision(results, _writes(image, changed))


def matching_acls(
    image: ClusterImage, wanted: AclFilter, among: Collection[ResourcePattern] | None = None
) -> Iterable[AclBinding]:
    """The ACLs that a filter means, of all patterns or of these, in the order of their patterns."""
    for resource in sorted(image.acls if among is None else among):
        if wanted.matches_resource(resource):
            for entry in entries_of(image, resource):
                if wanted.matches_entry(entry):
                    yield AclBinding(resource, entry)


def entries_of(image: ClusterImage, resource: ResourcePattern) -> tuple[AclEntry, ...]:
    """The ACLs of exactly that pattern."""
    stored = image.acls.get(resource)
    return () if stored is None else stored.value.entries


def _problem(binding: AclBinding) -> Refusal | None:
    resource, entry = binding
    problem = None
    if resource.type is ResourceType.ANY:
        problem = "An ACL is about one type of resource."
    elif resource.pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        problem = "The pattern of an ACL is literal or prefixed."
    elif entry.operation is Operation.ANY:
        problem = "An ACL is about one operation, or about All."
    elif entry.permission not in (Permission.ALLOW, Permission.DENY):
        problem = "An ACL allows or denies."
    elif resource.type is ResourceType.CLUSTER and resource.name != CLUSTER_NAME:
        problem = f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    elif not resource.name:
        problem = "Invalid empty resource name"
    elif not entry.host:
        problem = "The host of an ACL is an address, or * for all."
    else:
        try:
            parse_principal(entry.principal)
        except ValueError as error:
            problem = f"The principal {error}."
    return None if problem is None else Refusal(ErrorCode.INVALID_REQUEST, problem)


def _writes(
    image: ClusterImage, changed: Mapping[ResourcePattern, tuple[AclEntry, ...]]
) -> tuple[StoreOperation, ...]:
    operations: list[StoreOperation] = []
    for resource, entries in changed.items():
        stored = image.acls.get(resource)
        if stored is None:
            operations.append(Create(acl_path(resource), AclNode(resource, entries).encode()))
        elif not entries:
            operations.append(Delete(acl_path(resource), stored.version))
        elif entries != stored.value.entries:
            node = AclNode(resource, entries, stored.value.extra)
            operations.append(SetData(acl_path(resource), node.encode(), stored.version))
    return tuple(operations)
