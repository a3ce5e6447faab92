"""All rules, and the handler that asks one before it goes on."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from strandline.node.authorization import (
    cluster,
    groups,
    metadata,
    records,
    share_groups,
    tokens,
    topics,
    transactions,
)
from strandline.node.authorization.authority import Authority
from strandline.node.authorization.rule import Rule
from strandline.node.request import Handler, Request
from strandline.protocol.apis import ApiKey
from strandline.types import Instant

RULES: Final[Mapping[ApiKey, Rule]] = MappingProxyType(
    {
        **records.RULES,
        **metadata.RULES,
        **topics.RULES,
        **groups.RULES,
        **share_groups.RULES,
        **transactions.RULES,
        **tokens.RULES,
        **cluster.RULES,
    }
)


def guarded(api_key: int, handler: Handler, authority: Authority) -> Handler:
    """The handler behind its rule. Raises `KeyError` for an API without one: nothing is served
    that it was not decided about."""
    guard = RULES[ApiKey(api_key)].guard
    if guard is None:
        return handler

    def handle(request: Request[Any], now: Instant) -> None:
        if guard(authority.access(request, now), request):
            handler(request, now)

    return handle
