"""SaslHandshake: choose the mechanism of an authentication."""

from __future__ import annotations

from strandline.protocol.declare import (
    STRING,
    array,
    int16,
    message,
    string,
)


@message("0-1")
class SaslHandshakeRequest:
    """The mechanism that the client wants."""

    mechanism: str = string()


@message("0-1")
class SaslHandshakeResponse:
    """The mechanisms that the broker has."""

    error_code: int = int16()
    mechanisms: list[str] = array(STRING)
