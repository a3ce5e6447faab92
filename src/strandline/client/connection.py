"""One connection to one broker on a socket: requests out, answers waited for.

This file drives a `channel` by a blocking stream: it reads and writes, waits, and says in sentences
what went wrong. It must not know which broker is asked for what (`cluster.py`) nor retry anything.

Requests may be sent one after the other (`send`) and their answers taken later (`result`). What
ends the connection fails everything that waits on it, with the same error.
"""

from __future__ import annotations

import select
import ssl
from collections.abc import Callable
from random import SystemRandom
from typing import Final, TypeVar

from strandline.client.channel import Channel
from strandline.client.clock import Clock, SystemClock
from strandline.client.pending import Pending, Unfinished
from strandline.client.security import tls
from strandline.client.security.authentication import Authentication
from strandline.client.security.exchanges import exchange_of
from strandline.client.settings import Address, ClientSettings
from strandline.client.stream import Stream, open_stream
from strandline.client.versions import ServedVersions, VersionHandshake
from strandline.errors import ErrorCode, InvariantViolated, MalformedFrame, ProtocolError
from strandline.protocol.apis import Api, ApiKey, api_of
from strandline.protocol.framing import SIZE_BYTES, frame_size
from strandline.protocol.messages.api_versions import ApiVersionsResponse

T = TypeVar("T")

_IN_FLIGHT_MAX: Final = 64
"""Declared limit of `send` without `result`; users of a connection stay far below it."""
_SILENCE_MS: Final = 1000


class Connection:
    """See the module. Made by `Connection.open`; usable until `close` or the first error."""

    def __init__(
        self, stream: Stream, address: Address, settings: ClientSettings, clock: Clock
    ) -> None:
        self.address = address
        self.on_silence: Callable[[ProtocolError], None] = _nothing_told
        """Told about once a second that `result` waits for an answer, for a person who waits."""
        self.closed = False
        self.left_ms: Callable[[], int | None] = lambda: None
        """How long `call` may wait, for a user whose time is short; None: as long as it takes."""
        self._stream = stream
        self._is_plain = settings.security.tls is None
        self._settings = settings
        self._clock = clock
        self._served = ServedVersions(f"broker at {address}", {})
        self._channel: Channel[Pending] = Channel(settings.client_id, _IN_FLIGHT_MAX)
        self._frame = bytearray(SIZE_BYTES)
        self._filled = 0
        self._in_body = False
        self._unfinished = Unfinished()
        """What `call` has asked, and could not wait for."""
        self._greeting: tuple[VersionHandshake, Pending] | None = None
        """The first request, and what to make of its answer."""
        self._authenticates_again_ms: int | None = None
        """From when on the next request is preceded by another authentication (KIP-368)."""

    @classmethod
    def open(
        cls,
        address: Address,
        settings: ClientSettings | None = None,
        clock: Clock | None = None,
    ) -> Connection:
        """Connect, agree on versions and authenticate.

        Raises `ProtocolError` (NETWORK_EXCEPTION), `AuthenticationFailed`, and `InvalidSetting` if
        a certificate or a secret is not where the settings say.
        """
        connection = cls.begin(address, settings or ClientSettings(), clock or SystemClock())
        connection.is_open_within(None)
        return connection

    @classmethod
    def begin(cls, address: Address, settings: ClientSettings, clock: Clock) -> Connection:
        """Connect, and no more: `is_open_within` does the rest of `open`. Raises as that."""
        return cls(open_stream(address, settings), address, settings, clock)

    def is_open_within(self, wait_ms: int | None) -> bool:
        """Agree on versions and authenticate. False if the broker has not said anything within the
        time: to be called again. Raises as `open`, and is closed then."""
        try:
            if not self._negotiate(wait_ms):
                return False
            self._authenticate()
        except BaseException:
            self.close()
            raise
        return True

    # -- Requests ----------------------------------------------------------------------------

    def call(
        self,
        key: ApiKey,
        expected: type[T],
        request: object | Callable[[int], object],
        *,
        highest: int | None = None,
        timeout_ms: int | None = None,
    ) -> T:
        """Send a request and wait for its answer, see `send` and `result`. With `left_ms` it raises
        `ProtocolError` (REQUEST_TIMED_OUT) after so long; a call that asks the same waits on."""
        left_ms = self.left_ms()
        if left_ms is None:
            pending = self.send(key, request, highest=highest, timeout_ms=timeout_ms)
            return self.result(pending, expected)
        version = self.version_for(key, highest)
        message = request(version) if callable(request) else request
        pending = self._unfinished.take(key, version, message) or self.send(
            key, message, highest=highest, timeout_ms=timeout_ms
        )
        if not self.has_come(pending, left_ms):
            self._unfinished.put(pending)
            raise self.silence(pending)
        return self.result(pending, expected)

    def send(
        self,
        key: ApiKey,
        request: object | Callable[[int], object],
        *,
        highest: int | None = None,
        timeout_ms: int | None = None,
    ) -> Pending:
        """Send a request in the newest version that both sides know, up to `highest`.

        Its answer may take the request timeout, or `timeout_ms`. `request` may be a function that
        makes the message for the agreed version. Raises `ProtocolError`: UNSUPPORTED_VERSION if
        there is no common one, or NETWORK_EXCEPTION.
        """
        self._maybe_authenticate_again()
        version = self.version_for(key, highest)
        message = request(version) if callable(request) else request
        return self._send(api_of(key), version, message, timeout_ms)

    def send_unanswered(self, key: ApiKey, request: object, *, highest: int | None = None) -> None:
        """Send a request that the broker does not answer: a produce with acks 0."""
        self._maybe_authenticate_again()
        version = self.version_for(key, highest)
        self._send(api_of(key), version, request, is_answered=False)

    def result(self, pending: Pending, expected: type[T]) -> T:
        """The answer to a request; waits for it until its time is up.

        Raises `ProtocolError` when the connection fails first: REQUEST_TIMED_OUT or
        NETWORK_EXCEPTION, after which it is unknown whether the request was carried out; and
        `MalformedFrame` when what came is no answer.
        """
        while not pending.is_done:
            left_ms = max(0, pending.deadline - self._clock.monotonic_ms())
            if self._advance(min(left_ms, _SILENCE_MS)):
                continue
            if left_ms > _SILENCE_MS:
                self.on_silence(self.silence(pending))
            else:
                self._fail(
                    ProtocolError(
                        ErrorCode.REQUEST_TIMED_OUT,
                        f"The broker at {self.address} did not answer {pending.api.name} within "
                        f"{pending.deadline - pending.sent_ms} ms.",
                    )
                )
        if pending.error is not None:
            raise pending.error
        if not isinstance(pending.response, expected):
            raise InvariantViolated(f"{pending.response!r} is not a {expected.__name__}.")
        return pending.response

    def has_come(self, pending: Pending, wait_ms: int) -> bool:
        """Whether `result` will not wait; waits so long for that."""
        until_ms = self._clock.monotonic_ms() + wait_ms
        while not pending.is_done:
            now_ms = self._clock.monotonic_ms()
            left_ms = max(0, min(until_ms, pending.deadline) - now_ms)
            if not self._advance(left_ms) and not left_ms:
                return now_ms >= pending.deadline
        return True

    def silence(self, pending: Pending) -> ProtocolError:
        """What to tell of a request that is not answered yet."""
        return ProtocolError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"The broker at {self.address} has not answered {pending.api.name} yet.",
        )

    def take_arrived(self) -> None:
        """Read what has arrived without waiting for more; errors show in the pending requests."""
        while self._channel.in_flight and self._advance(0):
            continue

    def notice_end(self) -> None:
        """See whether the broker has hung up while it was asked nothing: a request without an
        answer (acks 0) would be lost unnoticed."""
        if not self.closed and not self._channel.in_flight:
            self._advance(0)

    @property
    def in_flight(self) -> int:
        """Requests whose answers have not come."""
        return self._channel.in_flight

    def fileno(self) -> int:
        """For `select`: readable when an answer, or the end of the connection, has come."""
        return self._stream.fileno()

    def close(self) -> None:
        """Close the socket; what waits fails."""
        self._fail(
            ProtocolError(
                ErrorCode.NETWORK_EXCEPTION, f"The connection to {self.address} was closed."
            )
        )

    # -- Versions ----------------------------------------------------------------------------

    @property
    def served(self) -> ServedVersions:
        """What the broker serves."""
        return self._served

    def serves(self, key: ApiKey) -> bool:
        """Whether there is a version of the API that both sides know."""
        return self._served.serves(key)

    def version_for(self, key: ApiKey, highest: int | None = None) -> int:
        """The newest version that both sides know. Raises ProtocolError (UNSUPPORTED_VERSION)."""
        return self._served.newest(key, highest)

    def _negotiate(self, wait_ms: int | None = None) -> bool:
        """Whether it is done within the time. None: until the broker answers, or its time is up."""
        served = None
        with tls.first_answer(is_plain=self._is_plain):
            while served is None:
                handshake, pending = self._greeting = self._greeting or self._greet(
                    VersionHandshake(f"broker at {self.address}")
                )
                if wait_ms is not None and not self.has_come(pending, wait_ms):
                    return False
                served = handshake.answered(self.result(pending, ApiVersionsResponse))
                self._greeting = None if served is not None else self._greet(handshake)
        self._served = served
        return True

    def _greet(self, handshake: VersionHandshake) -> tuple[VersionHandshake, Pending]:
        api = api_of(ApiKey.API_VERSIONS)
        return handshake, self._send(api, handshake.version, handshake.request)

    # -- Authentication ----------------------------------------------------------------------

    def _authenticate(self) -> None:
        sasl = self._settings.security.sasl
        if sasl is None:
            return
        self._authenticates_again_ms = None
        exchange = exchange_of(self._settings.security, sasl)
        started_ms = self._clock.monotonic_ms()
        broker = f"broker at {self.address}"
        authentication = Authentication(broker, sasl.mechanism, exchange, self._served)
        while (step := authentication.next) is not None:
            api = api_of(step.key)
            pending = self._send(api, step.version, step.request)
            authentication.answered(self.result(pending, api.response_class))
        again_after_ms = authentication.again_after_ms(SystemRandom())
        if again_after_ms is not None:
            self._authenticates_again_ms = started_ms + again_after_ms

    def _maybe_authenticate_again(self) -> None:
        """Before a request whose session is about to end: the broker would hang up on it."""
        due_ms = self._authenticates_again_ms
        if due_ms is None or self.closed or self._clock.monotonic_ms() < due_ms:
            return
        while self._channel.in_flight and self._advance(self._settings.request_timeout_ms):
            continue  # the broker takes nothing else while it authenticates
        self._authenticate()

    # -- Bytes -------------------------------------------------------------------------------

    def _send(
        self,
        api: Api,
        version: int,
        message: object,
        timeout_ms: int | None = None,
        *,
        is_answered: bool = True,
    ) -> Pending:
        if self.closed:
            raise ProtocolError(
                ErrorCode.NETWORK_EXCEPTION, f"The connection to {self.address} is closed."
            )
        if timeout_ms is None:
            timeout_ms = self._settings.request_timeout_ms
        pending = Pending(api, version, message, self._clock.monotonic_ms(), timeout_ms)
        pending.is_answered = is_answered
        self._channel.ask(pending)
        chunks = self._channel.next_frame()
        if chunks is None:
            raise InvariantViolated(f"{_IN_FLIGHT_MAX} requests wait on one connection.")
        try:
            data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
            self._stream.write(data, self._settings.request_timeout_ms / 1000)
        except OSError as error:
            self._fail(self._broken(error.strerror or str(error)))
            raise self._broken(error.strerror or str(error)) from error
        except BaseException:
            self._fail(self._broken("it was interrupted amid a request"))  # half of it may be sent
            raise
        return pending

    def _advance(self, wait_ms: int) -> bool:
        """Read until a frame is complete or the connection failed; False if `wait_ms` passed.

        Afterwards nothing has come that a poll of the socket would not see.
        """
        deadline_ms = self._clock.monotonic_ms() + wait_ms
        has_frame = False
        while True:
            try:
                if not self._stream.is_waiting:
                    if has_frame:
                        return True
                    left_ms = max(0, deadline_ms - self._clock.monotonic_ms())
                    # poll, not select: descriptors above 1023 are fine with it.
                    poller = select.poll()
                    poller.register(self._stream.fileno(), select.POLLIN)
                    if not poller.poll(left_ms):
                        return False
                received = self._stream.read_into(memoryview(self._frame)[self._filled :])
            except ssl.SSLError as error:
                # With TLS 1.3 a certificate is refused after the handshake.
                self._fail(tls.failed(self.address, error))
                return True
            except OSError as error:
                self._fail(self._broken(error.strerror or str(error)))
                return True
            if received is None:
                continue
            if not received:
                self._fail(self._broken("the broker closed the connection"))
                return True
            self._filled += received
            if self._filled < len(self._frame):
                continue
            try:
                has_frame |= self._finish_part()
            except ProtocolError as error:
                self._fail(error)
                return True
            except MalformedFrame as error:
                self._fail(MalformedFrame(f"The broker at {self.address} sent no answer: {error}"))
                return True

    def _finish_part(self) -> bool:
        """Go from a size to its frame, or take in a whole frame; whether it was the latter."""
        self._filled = 0
        if not self._in_body:
            alert = tls.alert(self.address, self._frame) if self._is_plain else None
            if alert is not None:
                raise alert
            size = frame_size(self._frame, 0, self._settings.response_bytes_max)
            if size < SIZE_BYTES:
                raise MalformedFrame(f"A frame of {size} bytes is too short.")
            self._frame = bytearray(size)
            self._in_body = True
            return False
        frame = memoryview(self._frame)
        self._frame = bytearray(SIZE_BYTES)
        self._in_body = False
        pending, response = self._channel.received(frame)
        pending.response = response
        return True

    def _broken(self, reason: str) -> ProtocolError:
        return ProtocolError(
            ErrorCode.NETWORK_EXCEPTION, f"The connection to {self.address} broke: {reason}."
        )

    def _fail(self, error: ProtocolError | MalformedFrame) -> None:
        """Close for good; everything that waits fails with `error`."""
        self.closed = True
        self._stream.close()
        for pending, _ in self._channel.end(error.args[0]):
            pending.error = error


def _nothing_told(error: ProtocolError) -> None:
    """For a user that waits for no person."""
