"""`/kafka-acl/<type>/<name>` and `/kafka-acl-extended/prefixed/<type>/<name>`: ACLs by pattern.

    {"version": 1, "acls": [{"principal": "User:alice", "permissionType": "Allow",
                             "operation": "Read", "host": "*"}]}

As Kafka's AclAuthorizer writes them (`kafka.zk.ZkAclStore`). Names lie in the path as they are;
what cannot be in a path (a slash, control characters) is percent-encoded, and so is `%`. Brokers
follow the tree itself: the notifications below `/kafka-acl-changes` are neither written nor read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar
from urllib.parse import quote, unquote

from strandline.authorization.acls import (
    RESOURCE_TYPES,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    of_word,
)
from strandline.cluster.znodes.content import DOTS, Content, Extra, Json, encoded

LITERAL_ROOT: Final = "/kafka-acl"
_EXTENDED_ROOT: Final = "/kafka-acl-extended"
PREFIXED_ROOT: Final = f"{_EXTENDED_ROOT}/prefixed"

ACL_SKELETON: Final = (
    LITERAL_ROOT,
    *(f"{LITERAL_ROOT}/{kind.word}" for kind in RESOURCE_TYPES),
    "/kafka-acl-changes",
    _EXTENDED_ROOT,
    "/kafka-acl-extended-changes",
    PREFIXED_ROOT,
    *(f"{PREFIXED_ROOT}/{kind.word}" for kind in RESOURCE_TYPES),
)
"""The empty nodes that ACLs need, parents first."""

_VERSION: Final = 1
_ROOTS: Final = {PatternType.LITERAL: LITERAL_ROOT, PatternType.PREFIXED: PREFIXED_ROOT}
_WORDS: Final = {kind.word: kind for kind in RESOURCE_TYPES}
_Word = TypeVar("_Word", Operation, Permission)


def acl_path(resource: ResourcePattern) -> str:
    """Where the ACLs of a pattern lie."""
    return f"{_ROOTS[resource.pattern]}/{resource.type.word}/{_escaped(resource.name)}"


def resource_of(pattern: PatternType, kind: str, name: str) -> ResourcePattern | None:
    """The pattern of a node below the root of that kind of pattern; None: of no known type."""
    found = _WORDS.get(kind)
    return None if found is None else ResourcePattern(found, unquote(name), pattern)


@dataclass(frozen=True, slots=True)
class AclNode:
    """The ACLs of one pattern, each once."""

    resource: ResourcePattern
    entries: tuple[AclEntry, ...]
    extra: Extra = field(default_factory=dict)

    @property
    def path(self) -> str:
        return acl_path(self.resource)

    def encode(self) -> bytes:
        entries: list[Json] = [
            {
                "principal": entry.principal,
                "permissionType": entry.permission.word,
                "operation": entry.operation.word,
                "host": entry.host,
            }
            for entry in self.entries
        ]
        return encoded({"version": _VERSION, "acls": entries}, self.extra)

    @classmethod
    def decode(cls, resource: ResourcePattern, data: bytes) -> AclNode:
        content = Content(acl_path(resource), data)
        content.integer("version")
        entries = dict.fromkeys(_entry(content, each) for each in content.objects("acls"))
        return cls(resource, tuple(entries), content.rest())


def _entry(content: Content, values: Mapping[str, Json]) -> AclEntry:
    match values:
        case {
            "principal": str(principal),
            "host": str(host),
            "operation": str(operation),
            "permissionType": str(permission),
        }:
            return AclEntry(
                principal,
                host,
                _word(content, Operation, operation),
                _word(content, Permission, permission),
            )
        case _:
            raise content.malformed("an ACL lacks its principal, host, operation or permissionType")


def _word(content: Content, kind: type[_Word], text: str) -> _Word:
    try:
        word = of_word(kind, text)
    except ValueError as error:
        raise content.malformed(str(error).rstrip(".")) from None
    if word.name == "ANY":
        raise content.malformed(f"{text!r} is for filters only")
    return word


def _escaped(name: str) -> str:
    if name in DOTS:
        return DOTS[name]
    return "".join(quote(each, safe="") if _is_unfit(each) else each for each in name)


def _is_unfit(character: str) -> bool:
    """Whether ZooKeeper does not take the character in a path, or it marks an encoded one."""
    return (
        character in "/%"
        or character < " "
        or "\x7f" <= character <= "\x9f"
        or "\ud800" <= character <= "\uf8ff"
        or character >= "\ufff0"
    )
