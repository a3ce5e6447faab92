"""OAUTHBEARER on the side of the broker (RFC 7628; KIP-255, KIP-768).

    client    n,[a=NAME],^Aauth=Bearer TOKEN^A[NAME=VALUE^A]^A
    server    nothing more, or {"status":"invalid_token"}, upon which the client says ^A

Which tokens are good is told by a `TokenChecker`, which the driver brings: it knows keys. This file
knows the message only.
"""

from __future__ import annotations

import re
from typing import Final, Protocol

from strandline.node.authentication.mechanisms import Authenticated, Exchange, Refused
from strandline.types import Instant

_FIRST: Final = re.compile(
    rb"n,(?:a=([^,\x01]*))?,\x01auth=[Bb]earer +([A-Za-z0-9\-._~+/]+=*)\x01"
    rb"(?:[A-Za-z]+=[ -~\t\r\n]*\x01)*\x01"
)
_REFUSAL: Final = b'{"status":"invalid_token"}'


class BadToken(Exception):
    """A token that is not accepted; the text is for the log and has nothing of the token."""


class TokenChecker(Protocol):
    """The part that knows which tokens are good."""

    def check(self, token: str, now: Instant) -> Authenticated:
        """Who the token is for, and until when. Raises `BadToken`."""


class OauthBearer:
    """The mechanism with its keys."""

    def __init__(self, checker: TokenChecker) -> None:
        self.checker = checker

    def begin(self) -> Exchange:
        return _Exchange(self.checker)


class _Exchange:
    """One authentication."""

    def __init__(self, checker: TokenChecker) -> None:
        self._checker = checker
        self._refused: str | None = None

    def answer(self, message: bytes, now: Instant) -> bytes | Authenticated:
        if self._refused is not None:
            raise Refused(self._refused)
        match = _FIRST.fullmatch(message)
        if match is None:
            raise Refused("Invalid OAUTHBEARER client first message")
        try:
            authenticated = self._checker.check(match[2].decode(), now)
        except BadToken:
            self._refused = _REFUSAL.decode()
            return _REFUSAL
        if match[1] and match[1].decode(errors="replace") != authenticated.name:
            raise Refused(
                "Authentication failed: Client requested an authorization id that is different "
                "from the token's principal name"
            )
        return authenticated
