"""SASL mechanisms as a broker's exchanges: a client's messages come in, challenges go out.

A mechanism ends with `Authenticated`, or raises `Refused` with a sentence for the client, which
says nothing of what is known here: a name that there is not is refused as a wrong password is.
Secrets are compared in constant time. This file knows PLAIN and what mechanisms have in common.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from strandline.types import Instant

_TEXT_BYTES_MAX: Final = 4096
"""Of a name or password; Kafka has no limit below that of the request."""


class Refused(Exception):
    """The client is not who it says. The text is for the client."""


@dataclass(frozen=True, slots=True)
class Authenticated:
    """Who the client is. `data` is the broker's last message."""

    name: str
    data: bytes = b""
    expires_ms: int | None = None
    """Wall-clock time at which what the client has shown ends."""
    is_token: bool = False
    """What it has shown is a delegation token."""


class Exchange(Protocol):
    """One authentication by one mechanism."""

    def answer(self, message: bytes, now: Instant) -> bytes | Authenticated:
        """The answer to the client's next message. Raises `Refused`."""


class Mechanism(Protocol):
    """What makes exchanges."""

    def begin(self) -> Exchange:
        """A new exchange."""


def invalid_credentials(mechanism: str) -> Refused:
    """The one sentence for a wrong name, password or proof, in Kafka's words."""
    return Refused(
        "Authentication failed during authentication due to invalid credentials with SASL "
        f"mechanism {mechanism}"
    )


class Plain:
    """PLAIN (RFC 4616): names and passwords of settings."""

    def __init__(self, passwords: Mapping[str, bytes]) -> None:
        self._passwords = passwords

    def begin(self) -> Exchange:
        return self

    def answer(self, message: bytes, now: Instant) -> Authenticated:
        del now
        parts = message.split(b"\0")
        if len(parts) != 3 or not parts[1] or not parts[2] or len(message) > _TEXT_BYTES_MAX:
            raise Refused("Invalid SASL/PLAIN response: expected a name and a password")
        authorization, user, password = parts
        if authorization not in (b"", user):
            raise Refused(
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
        try:
            name = user.decode()
        except UnicodeDecodeError:
            raise invalid_credentials("PLAIN") from None
        expected = self._passwords.get(name)
        # Also compared for a name that there is not: that takes as long.
        is_right = hmac.compare_digest(expected or b"\0", password)
        if expected is None or not is_right:
            raise invalid_credentials("PLAIN")
        return Authenticated(name)
