"""What a client of a listener with SASL has to pass before its requests are anything.

    new ── ApiVersions* ── SaslHandshake ── SaslAuthenticate* ──> authenticated
     │                            ^                                   │ its session ends
     └── anything else, too much, too late: closed                    v
                                  └──────── SaslHandshake ──── to authenticate again (KIP-368)

The gate sits in the place of the connection's fast path, so that a connection that is through, or
never had to, pays nothing. Of a client before it no more is parsed than these three requests, one
at a time, of `sasl.server.max.receive.size` at most, and so many of them, within
`strandline.authentication.timeout.ms`. A failure is answered after
`connection.failed.authentication.delay.ms`, and the connection closed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from strandline.errors import ErrorCode, MalformedFrame
from strandline.node.authentication.mechanisms import (
    Authenticated,
    Exchange,
    Mechanism,
    Refused,
)
from strandline.node.connection import Connection
from strandline.node.outbox import Outbox
from strandline.node.request import Request
from strandline.node.sparing_log import SparingLog
from strandline.node.timers import Timer, Timers
from strandline.protocol.apis import KNOWN, ApiKey
from strandline.protocol.framing import REQUEST_ELEMENTS_MAX, parse_request_header, peek
from strandline.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from strandline.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from strandline.protocol.schema import decode_from
from strandline.types import USER, Instant, Principal

_REQUESTS_MAX: Final = 16
"""Before authentication: more than any mechanism needs."""
_HANDSHAKE_VERSION: Final = 1
"""With 0 tokens would come without headers (KIP-43), which no client in use asks for."""


class Demands(Protocol):
    """What the listener demands."""

    @property
    def mechanisms(self) -> Mapping[str, Mechanism]: ...
    @property
    def reauthentication_ms(self) -> Mapping[str, int]: ...
    @property
    def receive_bytes_max(self) -> int: ...


class Guard(Protocol):
    """What a gate needs of the broker's authentication."""

    timers: Timers
    outbox: Outbox
    failures: SparingLog
    serve: Callable[[Connection, memoryview, Instant], None]

    def count(self, listener: str, mechanism: str, *, failed: bool) -> None: ...
    @property
    def failure_delay_ms(self) -> int: ...
    @property
    def timeout_ms(self) -> int: ...
    @property
    def in_flight_max(self) -> int: ...
    @property
    def frame_bytes_max(self) -> int: ...


class Gate:
    """See the module."""

    __slots__ = (
        "_authentication",
        "_connection",
        "_exchange",
        "_is_failing",
        "_listener",
        "_mechanism",
        "_requests",
        "_timer",
        "has_passed",
        "is_shut",
    )

    def __init__(self, authentication: Guard, listener: Demands, connection: Connection) -> None:
        self._authentication = authentication
        self._listener = listener
        self._connection = connection
        self._mechanism = ""
        self._exchange: Exchange | None = None
        self._requests = 0
        self._is_failing = False
        self._timer: Timer | None = None
        """The end of the time to authenticate, of the session, or of the delay of a refusal."""
        self.has_passed = False
        """Whether the client has ever authenticated."""
        self.is_shut = False
        """Whether it has to do so first. Then the gate is the fast path of the connection,
        and the node asks it as well before it parses a request on the general way."""

    def shut(self, now: Instant) -> None:
        """Let nothing else through until the client has authenticated."""
        connection = self._connection
        self._shut()
        connection.in_flight_max = 1
        connection.frame_bytes_max = self._listener.receive_bytes_max
        connection.gate = self
        self._time_limit(now)

    @property
    def may_authenticate_again(self) -> bool:
        """Whether the session of the client has an end (KIP-368)."""
        return self.has_passed and self._timer is not None

    def forget(self) -> None:
        """The connection has ended."""
        self._cancel()

    # -- Requests ----------------------------------------------------------------------------

    def maybe_handle(self, frame: memoryview, now: Instant) -> bool:
        """Handle whatever comes: nothing passes by."""
        if self._is_failing or self._connection.closing is not None:
            return True
        try:
            self._handle(frame, now)
        except MalformedFrame as error:
            self._end(str(error))
        return True

    def _handle(self, frame: memoryview, now: Instant) -> None:
        self._requests += 1
        if self._requests > _REQUESTS_MAX:
            raise MalformedFrame("It sent too many requests before it authenticated.")
        key, version, _ = peek(frame)
        if key == ApiKey.API_VERSIONS and self._exchange is None and not self.has_passed:
            self._authentication.serve(self._connection, frame, now)
        elif key == ApiKey.SASL_HANDSHAKE and self._exchange is None:
            self.handshake(self._parsed(frame, key, version), now)
        elif key == ApiKey.SASL_AUTHENTICATE and self._exchange is not None:
            self._authenticate(self._parsed(frame, key, version), self._exchange, now)
        else:
            self._authentication.count(self._connection.listener, self._mechanism, failed=True)
            name = KNOWN[key].name if key in KNOWN else f"a request with key {key}"
            raise MalformedFrame(f"{name} came {self._moment}.")

    @property
    def _moment(self) -> str:
        if self._exchange is not None:
            return "in the middle of an authentication"
        return "after the end of its session" if self.has_passed else "before authentication"

    def _parsed(self, frame: memoryview, key: int, version: int) -> Request[Any]:
        api = KNOWN[key]
        if not api.versions.covers(version):
            raise MalformedFrame(f"Version {version} of {api.name} is not served.")
        header, position = parse_request_header(frame)
        body: object = decode_from(
            api.request_class, version, frame, position, REQUEST_ELEMENTS_MAX
        )[0]
        return Request(
            self._connection,
            self._authentication.outbox,
            api.key,
            version,
            header.correlation_id,
            header.client_id,
            body,
        )

    def handshake(self, request: Request[SaslHandshakeRequest], now: Instant) -> None:
        """The client names its mechanism, for the first time or to authenticate again."""
        wanted = request.body.mechanism
        served = list(self._listener.mechanisms)
        mechanism = self._listener.mechanisms.get(wanted)
        is_other = self.has_passed and wanted != self._mechanism
        if mechanism is None or is_other or request.version < _HANDSHAKE_VERSION:
            response = SaslHandshakeResponse(
                error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=served
            )
            self._refuse(request, response, "its mechanism is not served", now)
            return
        self._mechanism = wanted
        self._exchange = mechanism.begin()
        if self.has_passed:
            self._requests = 0
            self._shut()
            self._time_limit(now)
        request.reply(SaslHandshakeResponse(mechanisms=served))

    def _authenticate(
        self, request: Request[SaslAuthenticateRequest], exchange: Exchange, now: Instant
    ) -> None:
        try:
            answer = exchange.answer(bytes(request.body.auth_bytes), now)
            if isinstance(answer, Authenticated):
                self._check_same(answer)
        except Refused as refused:
            response = SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=str(refused)
            )
            self._refuse(request, response, str(refused), now)
            return
        if not isinstance(answer, Authenticated):
            request.reply(SaslAuthenticateResponse(auth_bytes=answer, error_message=None))
            return
        session_ms = self._pass(answer, now)
        request.reply(
            SaslAuthenticateResponse(
                auth_bytes=answer.data, session_lifetime_ms=session_ms, error_message=None
            )
        )

    def _check_same(self, answer: Authenticated) -> None:
        if self.has_passed and answer.name != self._connection.principal.name:
            raise Refused("Cannot change principals during re-authentication")

    # -- Outcomes ----------------------------------------------------------------------------

    def _pass(self, answer: Authenticated, now: Instant) -> int:
        """Let the client through; returns how long its session lasts, 0 without end."""
        connection, authentication = self._connection, self._authentication
        authentication.count(connection.listener, self._mechanism, failed=False)
        connection.principal = Principal(USER, answer.name)
        connection.has_shown_token = answer.is_token
        self.is_shut = False
        connection.fast_path = None
        connection.in_flight_max = authentication.in_flight_max
        connection.frame_bytes_max = authentication.frame_bytes_max
        self.has_passed = True
        self._exchange = None
        self._cancel()
        session_ms = self._session_ms(answer, now)
        if session_ms is None:
            return 0
        self._timer = authentication.timers.schedule(
            now.monotonic_ms + session_ms, self._session_ended
        )
        return session_ms

    def _session_ms(self, answer: Authenticated, now: Instant) -> int | None:
        """As Kafka: the least of what the setting allows and what the client has shown."""
        limits = []
        if most := self._listener.reauthentication_ms[self._mechanism]:
            limits.append(most)
        if answer.expires_ms is not None:
            limits.append(max(0, answer.expires_ms - now.wall_ms))
        return min(limits, default=None)

    def _session_ended(self, now: Instant) -> None:
        """From now on only a client that authenticates again is served."""
        del now
        self._timer = None
        self._requests = 0
        self._shut()

    def _shut(self) -> None:
        self.is_shut = True
        self._connection.fast_path = self

    def _refuse(self, request: Request[Any], response: object, reason: str, now: Instant) -> None:
        """Answer and close, but not at once: guessing is to be slow."""
        self._authentication.count(self._connection.listener, self._mechanism, failed=True)
        self._authentication.failures.info(
            now.monotonic_ms,
            "Failed authentication of %s on the listener %s with %s: %s",
            self._connection.client_host,
            self._connection.listener,
            self._mechanism or "no mechanism",
            reason,
        )
        self._is_failing = True
        self._shut()
        self._connection.in_flight_max = 0  # nothing more is read
        self._cancel()

        def answer(at: Instant) -> None:
            del at
            self._timer = None
            request.reply(response)
            self._end("it failed to authenticate")

        self._timer = self._authentication.timers.schedule(
            now.monotonic_ms + self._authentication.failure_delay_ms, answer
        )

    def _end(self, reason: str) -> None:
        self._connection.closing = reason
        self._authentication.outbox.flush_later(self._connection)

    # -- Time --------------------------------------------------------------------------------

    def _time_limit(self, now: Instant) -> None:
        self._cancel()
        deadline_ms = now.monotonic_ms + self._authentication.timeout_ms
        self._timer = self._authentication.timers.schedule(deadline_ms, self._too_late)

    def _too_late(self, now: Instant) -> None:
        del now
        self._timer = None
        self._authentication.count(self._connection.listener, self._mechanism, failed=True)
        self._is_failing = True
        self._end("it did not authenticate in time")

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
