"""`/delegation_token/tokens/<id>`: delegation tokens (KIP-48), without what is secret of them.

    {"version": 3, "owner": "User%3Aalice", "tokenRequester": "User%3Aroot",
     "renewers": ["User%3Abob"], "issueTimestamp": 1700000000000, "maxTimestamp": 1700604800000,
     "expiryTimestamp": 1700086400000, "tokenId": "..."}

As Kafka's DelegationTokenManager writes them; the first versions had no `tokenRequester`, who was
the owner then. The secret of a token is an HMAC of its id, by a key that only brokers have. Brokers
follow the tree itself: the notifications below `token_changes` are neither written nor read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, unquote

from strandline.cluster.znodes.content import Content, Extra, Json, encoded
from strandline.types import Principal

_ROOT: Final = "/delegation_token"
_TOKENS: Final = f"{_ROOT}/tokens"
TOKEN_SKELETON: Final = (_ROOT, _TOKENS, f"{_ROOT}/token_changes")
"""The empty nodes that tokens need, parents first."""

_VERSION: Final = 3


def token_path(token_id: str) -> str:
    """Where a token lies."""
    return f"{_TOKENS}/{token_id}"


@dataclass(frozen=True, slots=True)
class TokenNode:
    """One token. Times are milliseconds since 1970, of the clock on the wall."""

    token_id: str
    owner: Principal
    """As whom a client is served that shows the token."""
    requester: Principal
    """Who asked for the token."""
    renewers: tuple[Principal, ...]
    issued_ms: int
    expires_ms: int
    """May be renewed."""
    lives_until_ms: int
    """Up to this at most."""
    extra: Extra = field(default_factory=dict)

    def has_expired(self, now_ms: int) -> bool:
        """Whether it is of no use any more."""
        return self.lives_until_ms < now_ms or self.expires_ms < now_ms

    def is_of(self, principal: Principal) -> bool:
        """Whether the principal owns it, or may renew it."""
        return principal == self.owner or principal in self.renewers

    def encode(self) -> bytes:
        renewers: list[Json] = [_escaped(each) for each in self.renewers]
        return encoded(
            {
                "version": _VERSION,
                "owner": _escaped(self.owner),
                "tokenRequester": _escaped(self.requester),
                "renewers": renewers,
                "issueTimestamp": self.issued_ms,
                "maxTimestamp": self.lives_until_ms,
                "expiryTimestamp": self.expires_ms,
                "tokenId": self.token_id,
            },
            self.extra,
        )

    @classmethod
    def decode(cls, token_id: str, data: bytes) -> TokenNode:
        content = Content(token_path(token_id), data)
        content.integer("version")
        if content.text("tokenId") != token_id:
            raise content.malformed("it is about another token")
        owner = _principal(content, content.text("owner"))
        requester = content.optional_text("tokenRequester")
        return cls(
            token_id,
            owner,
            owner if requester is None else _principal(content, requester),
            tuple(_principal(content, each) for each in content.texts("renewers")),
            issued_ms=content.integer("issueTimestamp"),
            expires_ms=content.integer("expiryTimestamp"),
            lives_until_ms=content.integer("maxTimestamp"),
            extra=content.rest(),
        )


def _escaped(principal: Principal) -> str:
    # As Kafka's Sanitizer, which leaves letters, digits, and these three.
    return quote(str(principal), safe="").replace("~", "%7E")


def _principal(content: Content, text: str) -> Principal:
    kind, colon, name = unquote(text).partition(":")
    if not colon or not kind or not name:
        raise content.malformed(f"{text!r} is no principal")
    return Principal(kind, name)
