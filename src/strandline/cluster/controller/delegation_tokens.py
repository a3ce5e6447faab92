"""Making, renewing and removing delegation tokens (KIP-48), in Kafka's order of refusals.

As with ACLs any broker decides, and writes under a check of the node's version that it saw. Which
token a request means is found out by the broker, which has the key: it comes here by its id.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from strandline.cluster.controller.decision import Decision, Refusal, fenced
from strandline.cluster.image import ClusterImage, Versioned
from strandline.cluster.store import Create, Delete, Operation, SetData
from strandline.cluster.znodes import TokenNode, token_path
from strandline.errors import ErrorCode
from strandline.types import Principal

NO_SUCH_TOKEN: Final = Refusal(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "There is no such token.")
_NOT_ITS_OWNER: Final = Refusal(
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, "Neither its owner nor one of its renewers asks."
)
_EXPIRED: Final = Refusal(ErrorCode.DELEGATION_TOKEN_EXPIRED, "The token has expired.")
_REMOVED_AT_ONCE_MAX: Final = 100

Outcome = int | Refusal
"""When the token expires now, in milliseconds, or why not."""


def create_token(image: ClusterImage, token: TokenNode) -> Decision[TokenNode]:
    """Make it."""
    del image
    return Decision((token,), (Create(token_path(token.token_id), token.encode()),))


def renew_token(
    image: ClusterImage, token_id: str, asking: Principal, period_ms: int, now_ms: int
) -> Decision[Outcome]:
    """Have it expire `period_ms` from now, within its longest life."""
    stored = image.tokens.get(token_id)
    if stored is None:
        return Decision((NO_SUCH_TOKEN,))
    if stored.value.has_expired(now_ms):
        return Decision((_EXPIRED,))
    if not stored.value.is_of(asking):
        return Decision((_NOT_ITS_OWNER,))
    return _expiring(stored, now_ms + period_ms)


def expire_token(
    image: ClusterImage, token_id: str, asking: Principal, period_ms: int, now_ms: int
) -> Decision[Outcome]:
    """Have it expire `period_ms` from now; below zero it is removed, even if it has expired."""
    stored = image.tokens.get(token_id)
    if stored is None:
        return Decision((NO_SUCH_TOKEN,))
    if not stored.value.is_of(asking):
        return Decision((_NOT_ITS_OWNER,))
    if period_ms < 0:
        return Decision((now_ms,), (_removal(token_id, stored),))
    if stored.value.has_expired(now_ms):
        return Decision((_EXPIRED,))
    return _expiring(stored, now_ms + period_ms)


def remove_expired_tokens(image: ClusterImage, now_ms: int) -> Decision[TokenNode]:
    """What the controller does from time to time. The results are those that go; there may be
    more of them than one multi is to have."""
    expired = [each for _, each in sorted(image.tokens.items()) if each.value.has_expired(now_ms)]
    expired = expired[:_REMOVED_AT_ONCE_MAX]
    operations = [_removal(each.value.token_id, each) for each in expired]
    return Decision(tuple(each.value for each in expired), fenced(image, operations))


def _expiring(stored: Versioned[TokenNode], expires_ms: int) -> Decision[Outcome]:
    token = stored.value
    expires_ms = min(token.lives_until_ms, expires_ms)
    changed = replace(token, expires_ms=expires_ms)
    if changed == token:
        return Decision((expires_ms,))
    write = SetData(token_path(token.token_id), changed.encode(), stored.version)
    return Decision((expires_ms,), (write,))


def _removal(token_id: str, stored: Versioned[TokenNode]) -> Operation:
    return Delete(token_path(token_id), stored.version)
