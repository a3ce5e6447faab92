"""SASL mechanisms as a client's exchanges: the first message, and an answer to each challenge.

This file knows messages of mechanisms. How they travel is known in `authentication`.
"""

from __future__ import annotations

import json
import secrets
from typing import Final, Protocol

from strandline.client.security import scram
from strandline.client.security.settings import Sasl
from strandline.errors import AuthenticationFailed, ErrorCode

_SEPARATOR: Final = "\x01"
_NONCE_BYTES: Final = 24


class Exchange(Protocol):
    """One authentication by one mechanism."""

    def first(self) -> bytes:
        """The first message."""

    def answer(self, challenge: bytes) -> bytes | None:
        """The answer to a challenge, or None if the server owes nothing more.

        Raises `AuthenticationFailed` for a server that is not to be trusted.
        """


class Plain:
    """PLAIN (RFC 4616): name and password as they are, so only TLS keeps them secret."""

    def __init__(self, username: str, password: str) -> None:
        self._message = f"\0{username}\0{password}".encode()

    def first(self) -> bytes:
        return self._message

    def answer(self, challenge: bytes) -> bytes | None:
        del challenge  # empty: the server has accepted
        return None


class Scram:
    """SCRAM-SHA-256 or -512: both sides prove that they know the password, and neither tells it."""

    def __init__(self, sasl: Sasl, password: str, nonce: str | None = None) -> None:
        self._mechanism = sasl.mechanism
        self._password = password
        self._nonce = nonce or secrets.token_urlsafe(_NONCE_BYTES)
        self._bare = scram.client_first_bare(
            sasl.username, self._nonce, is_token=sasl.is_delegation_token
        )
        self._server: scram.ServerFirst | None = None
        self._salted = b""

    def first(self) -> bytes:
        return scram.client_first(self._bare)

    def answer(self, challenge: bytes) -> bytes | None:
        try:
            if self._server is None:
                self._server = server = scram.parse_server_first(challenge, self._nonce)
                self._salted = scram.salted_password(
                    self._mechanism, self._password, server.salt, server.iterations
                )
                return scram.client_final(self._mechanism, self._salted, self._bare, server)
            scram.verify_server_final(
                self._mechanism, self._salted, self._bare, self._server, challenge
            )
        except scram.BadScram as error:
            raise AuthenticationFailed(
                ErrorCode.SASL_AUTHENTICATION_FAILED,
                f"The broker failed {self._mechanism}: {error}.",
            ) from error
        return None


class OauthBearer:
    """OAUTHBEARER (RFC 7628): a token that was had elsewhere."""

    def __init__(self, token: str, extensions: tuple[tuple[str, str], ...] = ()) -> None:
        pairs = "".join(f"{name}={value}{_SEPARATOR}" for name, value in extensions)
        self._message = f"n,,{_SEPARATOR}auth=Bearer {token}{_SEPARATOR}{pairs}{_SEPARATOR}"
        self._refused: str | None = None

    def first(self) -> bytes:
        return self._message.encode()

    def answer(self, challenge: bytes) -> bytes | None:
        if not challenge:
            return None
        if self._refused is None:
            # Why it refuses: the client has to answer with a separator, and gets the refusal then.
            self._refused = reason_in(challenge.decode(errors="replace"))
            return _SEPARATOR.encode()
        raise AuthenticationFailed(
            ErrorCode.SASL_AUTHENTICATION_FAILED,
            f"The broker refused the OAUTHBEARER token: {self._refused}.",
        )


def reason_in(told: str) -> str:
    """What a broker says of a refusal; OAUTHBEARER's is a JSON object (RFC 7628, 3.2.2)."""
    try:
        document = json.loads(told)
    except ValueError:
        return told
    status = document.get("status") if isinstance(document, dict) else None
    return str(status) if status else told
