"""SaslHandshake and SaslAuthenticate of clients that are through already, or need not authenticate.

A client whose session has an end authenticates again on the same connection (KIP-368); everything
else is out of place here and is told so, as by Kafka.
"""

from __future__ import annotations

from strandline.errors import ErrorCode
from strandline.node.request import Request
from strandline.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from strandline.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from strandline.types import Instant


def handshake(request: Request[SaslHandshakeRequest], now: Instant) -> None:
    """Answers SaslHandshake."""
    gate = request.connection.gate
    if gate is not None and gate.may_authenticate_again:
        gate.handshake(request, now)
    else:
        request.reply(SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE))


def authenticate(request: Request[SaslAuthenticateRequest], now: Instant) -> None:
    """Answers SaslAuthenticate, which is for the gate alone."""
    del now
    request.reply(
        SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="SaslAuthenticate request received after successful authentication",
        )
    )
