"""What the permission of one API is: a guard that asks, and what it asks, for people."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

from strandline.authorization.acls import Operation, ResourceType
from strandline.errors import ErrorCode
from strandline.node.authorization.authority import Access
from strandline.node.request import Request

Guard: TypeAlias = Callable[[Access, Request[Any]], bool]
"""Whether the handler is to go on. The guard may take out of the request what is not allowed and
say so in the answer (`Request.amend`); if it returns false it has answered."""

_Item = TypeVar("_Item")

MESSAGES: Final = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
}
"""Kafka's sentences (`org.apache.kafka.common.protocol.Errors`)."""


@dataclass(frozen=True, slots=True)
class Need:
    """One permission. `answer` is the code without it; None: the resource is left out."""

    operation: Operation
    resource: ResourceType
    answer: ErrorCode | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """The permissions of one API; no guard and no needs: everyone may ask it."""

    guard: Guard | None
    needs: tuple[Need, ...] = ()


def split(
    items: Iterable[_Item], is_allowed: Callable[[_Item], bool]
) -> tuple[list[_Item], list[_Item]]:
    """Those that are allowed, and those that are not."""
    allowed: list[_Item] = []
    denied: list[_Item] = []
    for item in items:
        (allowed if is_allowed(item) else denied).append(item)
    return allowed, denied


def with_refused(
    request: Request[Any], refused: list[_Item], where: Callable[[Any], list[_Item]]
) -> bool:
    """Have the handler go on with what is left of the request, and its answer end with what was
    refused: `where` finds the list in the response. Returns true, as a guard does then."""

    def amend(response: Any) -> None:
        where(response).extend(refused)

    request.amend = amend
    return True
