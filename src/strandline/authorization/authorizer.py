"""The decision whether a principal may do something, from the ACLs that there are.

Theory (`StandardAuthorizer`): a super user may do everything. Otherwise every ACL counts whose
pattern covers the resource, whose principal is this one or everyone, and whose host is this one or
every host. One that denies the operation, or all, decides. Without one, an ACL that allows the
operation decides, or one that allows an operation which implies it: DESCRIBE comes with READ,
WRITE, DELETE and ALTER, DESCRIBE_CONFIGS with ALTER_CONFIGS; denials imply nothing. Without any the
answer is no, but for a resource that no ACL covers: `allow.everyone.if.no.acl.found` decides.
Hosts are compared as addresses, however an ACL writes them; Kafka compares their texts.

Finding the patterns that cover a name takes one look-up per length that prefixes have, and
decisions are remembered until ACLs change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from strandline.addresses import as_connected_if_any
from strandline.authorization.acls import (
    EVERYONE,
    OPERATIONS,
    WILDCARD,
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from strandline.types import Principal

IMPLY_DESCRIBE: Final = frozenset(
    {Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
)
IMPLY_DESCRIBE_CONFIGS: Final = frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS})
_IMPLIED: Final = {
    Operation.DESCRIBE: IMPLY_DESCRIBE,
    Operation.DESCRIBE_CONFIGS: IMPLY_DESCRIBE_CONFIGS,
}
_REMEMBERED_MAX: Final = 10_000
_REMEMBERED_LENGTH_MAX: Final = 249
"""No topic has a longer name. Clients may ask about names of 32 KiB."""

Entries = Mapping[ResourcePattern, tuple[AclEntry, ...]]
"""All ACLs, by the pattern that they are about."""


class Verdict(NamedTuple):
    """Whether something is allowed, and what decided it."""

    is_allowed: bool
    reason: str
    is_by_acl: bool = False
    """One ACL has decided it, which the reason names."""


_SUPER_USER: Final = Verdict(True, "it is one of super.users")
_NO_ACL_ALLOWS: Final = Verdict(False, "no ACL allows it")
_OPEN: Final = Verdict(True, "no ACL covers it, and allow.everyone.if.no.acl.found is true")
_CLOSED: Final = Verdict(False, "no ACL covers it")


def allows(entry: AclEntry, operation: Operation) -> bool:
    """Whether an entry that allows something allows this."""
    if entry.operation is Operation.ALL:
        return True
    implied = _IMPLIED.get(operation)
    return entry.operation is operation if implied is None else entry.operation in implied


class Authorizer:
    """All ACLs, found by resource. `generation` changes whenever a decision may have changed."""

    def __init__(
        self, *, super_users: frozenset[Principal], allow_everyone_if_no_acl_found: bool
    ) -> None:
        self._super_users = super_users
        self._no_acl = _OPEN if allow_everyone_if_no_acl_found else _CLOSED
        self._entries: dict[ResourcePattern, tuple[AclEntry, ...]] = {}
        self._prefix_lengths: dict[ResourceType, Counter[int]] = {}
        self._remembered: dict[tuple[Principal, str, Operation, ResourceType, str], Verdict] = {}
        self.generation = 0

    def replace(self, resource: ResourcePattern, entries: tuple[AclEntry, ...]) -> None:
        """The ACLs of that pattern are these now; none means that there are no more."""
        self._forget()
        known = self._entries.pop(resource, None)
        is_prefix = resource.pattern is PatternType.PREFIXED
        lengths = self._prefix_lengths.setdefault(resource.type, Counter()) if is_prefix else None
        if known is not None and lengths is not None:
            lengths[len(resource.name)] -= 1
            lengths += Counter()  # drops the lengths that no prefix has any more
        if entries:
            self._entries[resource] = entries
            if lengths is not None:
                lengths[len(resource.name)] += 1

    def replace_all(self, entries: Entries) -> None:
        """Begin anew with these ACLs."""
        self._forget()
        self._entries.clear()
        self._prefix_lengths.clear()
        for resource, each in entries.items():
            self.replace(resource, each)

    def _forget(self) -> None:
        self.generation += 1
        self._remembered.clear()

    def authorize(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> Verdict:
        """Whether the principal may do that to the resource, asking from that address."""
        key = (principal, host, operation, kind, name)
        if len(name) > _REMEMBERED_LENGTH_MAX:
            return self._decide(*key)
        verdict = self._remembered.get(key)
        if verdict is None:
            if len(self._remembered) >= _REMEMBERED_MAX:
                self._remembered.clear()
            verdict = self._remembered[key] = self._decide(*key)
        return verdict

    def is_super_user(self, principal: Principal) -> bool:
        """Whether the principal may do everything."""
        return principal in self._super_users

    def operations(
        self, principal: Principal, host: str, kind: ResourceType, name: str
    ) -> frozenset[Operation]:
        """All operations of the type that the principal may do to the resource (KIP-430)."""
        return frozenset(
            each
            for each in OPERATIONS[kind]
            if self.authorize(principal, host, each, kind, name).is_allowed
        )

    def authorize_by_type(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceType
    ) -> Verdict:
        """Whether there is a resource of the type to which the principal may do that (KIP-679).

        As in Kafka implications do not count: the operation itself is allowed, or all are.
        """
        if principal in self._super_users:
            return _SUPER_USER
        allowed: set[ResourcePattern] = set()
        denied: set[ResourcePattern] = set()
        for resource, entries in self._entries.items():
            if resource.type is not kind:
                continue
            for entry in entries:
                if _is_about(entry, principal, host) and entry.operation in (
                    operation,
                    Operation.ALL,
                ):
                    is_allowed = entry.permission is Permission.ALLOW
                    (allowed if is_allowed else denied).add(resource)
        everything = ResourcePattern(kind, WILDCARD)
        if everything in denied:
            return Verdict(False, f"it is denied {operation.word} of every {kind.word}")
        if self._no_acl.is_allowed or everything in allowed:
            return Verdict(True, f"it may {operation.word} some {kind.word}")
        for each in allowed:
            if each not in denied and not any(
                deny.pattern is PatternType.PREFIXED and each.name.startswith(deny.name)
                for deny in denied
            ):
                return Verdict(True, f"it may {operation.word} some {kind.word}")
        return Verdict(False, f"no ACL allows it {operation.word} of any {kind.word}")

    def covering(self, kind: ResourceType, name: str) -> Iterator[ResourcePattern]:
        """The patterns with ACLs that cover a resource."""
        entries = self._entries
        for literal in dict.fromkeys((name, WILDCARD)):
            resource = ResourcePattern(kind, literal)
            if resource in entries:
                yield resource
        for length in self._prefix_lengths.get(kind, ()):
            resource = ResourcePattern(kind, name[:length], PatternType.PREFIXED)
            if length <= len(name) and resource in entries:
                yield resource

    def _decide(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> Verdict:
        if principal in self._super_users:
            return _SUPER_USER
        verdict = self._no_acl
        allowed: AclBinding | None = None
        for resource in self.covering(kind, name):
            verdict = _NO_ACL_ALLOWS
            for entry in self._entries[resource]:
                if not _is_about(entry, principal, host):
                    continue
                if entry.permission is Permission.DENY:
                    if entry.operation in (operation, Operation.ALL):
                        sentence = f"an ACL denies it: {AclBinding(resource, entry)}"
                        return Verdict(False, sentence, is_by_acl=True)
                elif allowed is None and allows(entry, operation):
                    allowed = AclBinding(resource, entry)
        if allowed is None:
            return verdict
        return Verdict(True, f"an ACL allows it: {allowed}", is_by_acl=True)


def _is_about(entry: AclEntry, principal: Principal, host: str) -> bool:
    return entry.principal in (EVERYONE, str(principal)) and (
        entry.host == WILDCARD or as_connected_if_any(entry.host) == host
    )


def parse_super_users(text: str) -> frozenset[Principal]:
    """`User:alice;User:bob`. Raises `ValueError` naming the part that is not `type:name`."""
    return frozenset(parse_principal(part) for part in _parts(text))


def parse_principal(text: str) -> Principal:
    """A principal from `type:name`. Raises `ValueError`."""
    kind, colon, name = text.partition(":")
    if not colon or not kind or not name:
        raise ValueError(f"{text!r} is not of the form User:name")
    return Principal(kind, name)


def _parts(text: str) -> Iterable[str]:
    return filter(None, (part.strip() for part in text.split(";")))
