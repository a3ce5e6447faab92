"""SaslAuthenticate: one step of an authentication, whose bytes only the mechanism reads."""

from __future__ import annotations

from strandline.protocol.declare import (
    binary,
    int16,
    int64,
    message,
    nullable_string,
)


@message("0-2", flexible="2+")
class SaslAuthenticateRequest:
    """The client's next bytes."""

    auth_bytes: bytes = binary()


@message("0-2", flexible="2+")
class SaslAuthenticateResponse:
    """The broker's next bytes, and how long the session lasts once it stands."""

    error_code: int = int16()
    error_message: str | None = nullable_string()
    auth_bytes: bytes = binary()
    session_lifetime_ms: int = int64("1+", ignorable=True)
