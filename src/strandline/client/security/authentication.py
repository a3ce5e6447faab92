"""The requests by which a connection authenticates (KIP-43, KIP-152), and again (KIP-368).

    SaslHandshake(mechanism) ──> SaslAuthenticate(bytes) ──> ... ──> a session of so many ms

Requests come out and answers go in; a driver carries them, one at a time. This file must not know
sockets. What a mechanism says is known in `mechanisms`.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

from strandline.client.security.mechanisms import Exchange, reason_in
from strandline.client.versions import ServedVersions
from strandline.errors import (
    AuthenticationFailed,
    ErrorCode,
    InvariantViolated,
    ProtocolError,
)
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from strandline.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

_AGAIN_AFTER: Final = (0.85, 0.95)
"""The part of a session's lifetime after which a client authenticates again, drawn as Kafka's."""


@dataclass(frozen=True, slots=True)
class Step:
    """The next request."""

    key: ApiKey
    version: int
    request: object


class Authentication:
    """One authentication of one connection to `broker`, which sentences name."""

    def __init__(
        self, broker: str, mechanism: str, exchange: Exchange, served: ServedVersions
    ) -> None:
        """Raises `AuthenticationFailed` if the broker does not know SASL."""
        self._broker = broker
        self._mechanism = mechanism
        self._exchange = exchange
        try:
            handshake = served.newest(ApiKey.SASL_HANDSHAKE)
            self._version = served.newest(ApiKey.SASL_AUTHENTICATE)
        except ProtocolError as error:
            raise AuthenticationFailed(ErrorCode.ILLEGAL_SASL_STATE, error.message) from error
        self.next: Step | None = Step(
            ApiKey.SASL_HANDSHAKE, handshake, SaslHandshakeRequest(mechanism=mechanism)
        )
        """What to send; None when the connection is authenticated."""
        self.session_ms = 0
        """How long the session lasts, once it stands; 0 if it has no end."""

    def answered(self, response: object) -> None:
        """Take the answer to `next`. Raises `AuthenticationFailed`, or what may be tried again."""
        match response:
            case SaslHandshakeResponse():
                self._check_mechanism(response)
                self._authenticate(self._exchange.first())
            case SaslAuthenticateResponse():
                self._take(response)
            case _:
                raise InvariantViolated(f"{response!r} answers no step of an authentication.")

    def again_after_ms(self, random: Random) -> int | None:
        """After how much of the session to authenticate again; None if it has no end."""
        return int(self.session_ms * random.uniform(*_AGAIN_AFTER)) if self.session_ms > 0 else None

    def _check_mechanism(self, response: SaslHandshakeResponse) -> None:
        if response.error_code == ErrorCode.NONE:
            return
        code = ErrorCode(response.error_code)
        served = ", ".join(sorted(response.mechanisms)) or "none"
        if code is ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            told = f"does not serve {self._mechanism}; its mechanisms are {served}"
        elif code is ErrorCode.ILLEGAL_SASL_STATE:
            told = "expects no authentication: its listener has no SASL"
        else:
            told = f"answered {code.name} to SaslHandshake"
        raise AuthenticationFailed(code, f"The {self._broker} {told}.")

    def _take(self, response: SaslAuthenticateResponse) -> None:
        if response.error_code != ErrorCode.NONE:
            code = ErrorCode(response.error_code)
            told = reason_in(response.error_message or code.name).rstrip(".")
            sentence = f"The {self._broker} refused {self._mechanism}: {told}."
            if code in (ErrorCode.SASL_AUTHENTICATION_FAILED, ErrorCode.ILLEGAL_SASL_STATE):
                raise AuthenticationFailed(code, sentence)
            raise ProtocolError(code, sentence)
        answer = self._exchange.answer(response.auth_bytes)
        if answer is None:
            self.next = None
            self.session_ms = response.session_lifetime_ms
        else:
            self._authenticate(answer)

    def _authenticate(self, message: bytes) -> None:
        request = SaslAuthenticateRequest(auth_bytes=message)
        self.next = Step(ApiKey.SASL_AUTHENTICATE, self._version, request)
