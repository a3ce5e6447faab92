"""ACLs as values: a pattern of resources, and who is allowed or denied which operation on them.

The numbers are those on the wire, the words those of `kafka-acls` and of Kafka's znodes.
Source: `org.apache.kafka.common.resource`, `org.apache.kafka.common.acl`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple, TypeVar

WILDCARD: Final = "*"
"""As the name of a literal pattern: every resource of the type. As a host: every host."""

EVERYONE: Final = "User:*"
"""The principal of an ACL that is about all principals."""

CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the only resource of the type CLUSTER."""


class _Named(IntEnum):
    """Numbers with the names that Kafka writes: `TRANSACTIONAL_ID` is `TransactionalId`."""

    @property
    def word(self) -> str:
        """The name as Kafka's znodes have it."""
        return "".join(part.capitalize() for part in self.name.split("_"))


class ResourceType(_Named):
    """What an ACL is about."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Named):
    """How the name of a pattern is meant. ANY and MATCH occur in filters only."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(_Named):
    """What is done to a resource. ALL occurs in ACLs only, ANY in filters only."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(_Named):
    """Whether an ACL allows or denies. ANY occurs in filters only."""

    ANY = 1
    DENY = 2
    ALLOW = 3


RESOURCE_TYPES: Final = tuple(each for each in ResourceType if each is not ResourceType.ANY)
"""Those that an ACL can have."""

OPERATIONS: Final = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DESCRIBE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DESCRIBE,
        Operation.DELETE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
        Operation.ALTER,
        Operation.DESCRIBE,
    ),
    ResourceType.TRANSACTIONAL_ID: (
        Operation.DESCRIBE,
        Operation.WRITE,
        Operation.TWO_PHASE_COMMIT,
    ),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}
"""The operations that there are on each type (`kafka.security.authorizer.AclEntry`)."""


class ResourcePattern(NamedTuple):
    """The resources that ACLs are about."""

    type: ResourceType
    name: str
    pattern: PatternType = PatternType.LITERAL

    def covers(self, name: str) -> bool:
        """Whether a resource of this type and that name is meant."""
        if self.pattern is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, WILDCARD)


class AclEntry(NamedTuple):
    """Who is allowed or denied what, from where. `principal` is `User:name`, or `EVERYONE`."""

    principal: str
    host: str
    operation: Operation
    permission: Permission


class AclBinding(NamedTuple):
    """One ACL."""

    resource: ResourcePattern
    entry: AclEntry

    def __str__(self) -> str:
        resource, entry = self
        verb = "may" if entry.permission is Permission.ALLOW else "may not"
        at = "" if entry.host == WILDCARD else f" from {entry.host}"
        return (
            f"{entry.principal} {verb} {entry.operation.word}{at}: {resource.type.word} "
            f"{resource.pattern.word.lower()} {resource.name!r}"
        )


_Word = TypeVar("_Word", bound=_Named)


def of_word(kind: type[_Word], word: str) -> _Word:
    """The value of a word in any of Kafka's spellings. Raises `ValueError` with the ones known."""
    wanted = word.replace("_", "").replace("-", "").lower()
    for each in kind:
        if each.word.lower() == wanted:
            return each
    known = ", ".join(each.word for each in kind)
    raise ValueError(f"{word!r} is not one of {known}.")
