"""Which ACLs can never match: what no request asks for, from where no client comes."""

from __future__ import annotations

from strandline.addresses import as_connected
from strandline.authorization.acls import (
    OPERATIONS,
    WILDCARD,
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from strandline.cluster.topic_names import name_problem


def why_never(binding: AclBinding) -> str | None:
    """Why an ACL cannot match anything, as a sentence; None if it can. Kafka takes such ACLs, but
    for operations, which `kafka-acls` refuses."""
    resource, entry = binding
    return _no_operation(resource, entry) or _no_host(entry) or _no_topic(resource)


def _no_operation(resource: ResourcePattern, entry: AclEntry) -> str | None:
    known = (Operation.ALL, *OPERATIONS.get(resource.type, ()))
    if entry.operation in known:
        return None
    words = ", ".join(each.word for each in known)
    return (
        f"There is no operation {entry.operation.word} on the resource type "
        f"{resource.type.word}: it has {words}."
    )


def _no_host(entry: AclEntry) -> str | None:
    if entry.host == WILDCARD:
        return None
    try:
        as_connected(entry.host)
    except ValueError:
        return (
            f"The host {entry.host!r} matches no client: brokers compare it with the client's "
            f"address. It is one IP address, or {WILDCARD} for all."
        )
    return None


def _no_topic(resource: ResourcePattern) -> str | None:
    if resource.type is not ResourceType.TOPIC:
        return None
    is_prefix = resource.pattern is PatternType.PREFIXED
    if not is_prefix and resource.name == WILDCARD:
        return None
    # What no name can be may be the beginning of one: "." and "..".
    problem = name_problem(resource.name.lstrip(".") or "x" if is_prefix else resource.name)
    if problem is None:
        return None
    hint = ""
    if WILDCARD in resource.name:
        before = resource.name.partition(WILDCARD)[0]
        hint = (
            f" For all topics that begin with {before!r} say --resource-pattern-type prefixed and "
            f"the name {before!r}."
            if before
            else f" For all topics say the name {WILDCARD!r} and the pattern type literal."
        )
    return f"No topic can match this ACL. {problem}{hint}"
