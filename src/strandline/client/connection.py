"""One connection to one broker: requests out, answers in the order of the requests.

This file knows frames, correlation ids and versions. It must not know which broker is asked for
what (`cluster.py`) nor retry anything.

Theory: a broker answers the requests of a connection in their order. Requests may therefore be
sent one after the other (`send`) and their answers taken later (`result`); what waits is a queue.
An answer that does not come in time, is no answer to the oldest request, or cannot be read makes
the whole connection worthless, because nothing that follows could be told apart: it is closed, and
everything that waits on it fails with the same error.
"""

from __future__ import annotations

import select
import socket
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from strandline import __version__
from strandline.client.clock import Clock, SystemClock
from strandline.client.refusal import refusal
from strandline.client.settings import Address, ClientSettings
from strandline.errors import ErrorCode, InvariantViolated, MalformedFrame, ProtocolError
from strandline.protocol.apis import PRIVATE, Api, ApiKey, api_of
from strandline.protocol.framing import (
    SIZE_BYTES,
    frame_size,
    parse_response_header,
    request_frame,
)
from strandline.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from strandline.protocol.schema import decode
from strandline.protocol.versions import VersionRange

T = TypeVar("T")

_CORRELATION_MAX: Final = 2**31 - 1
_IN_FLIGHT_MAX: Final = 64
"""Declared limit of `send` without `result`; users of a connection stay far below it."""
_SILENCE_MS: Final = 1000


class Pending:
    """A request that was sent. `Connection.result` gives its answer."""

    __slots__ = ("api", "correlation_id", "error", "response", "sent_ms", "version")

    def __init__(self, api: Api, version: int, correlation_id: int, sent_ms: int) -> None:
        self.api = api
        self.version = version
        self.correlation_id = correlation_id
        self.sent_ms = sent_ms
        self.response: object | None = None
        self.error: ProtocolError | MalformedFrame | None = None

    @property
    def is_done(self) -> bool:
        """Whether `result` will not wait."""
        return self.response is not None or self.error is not None


class Connection:
    """See the module. Made by `Connection.open`; usable until `close` or the first error."""

    def __init__(
        self, sock: socket.socket, address: Address, settings: ClientSettings, clock: Clock
    ) -> None:
        self.address = address
        self.on_silence: Callable[[ProtocolError], None] = _nothing_told
        """Told about once a second that `result` waits for an answer, for a person who waits."""
        self.closed = False
        self._socket = sock
        self._settings = settings
        self._clock = clock
        self._served: Mapping[int, VersionRange] = {}
        self._waiting: deque[Pending] = deque()
        self._next_correlation_id = 0
        self._frame = bytearray(SIZE_BYTES)
        self._filled = 0
        self._in_body = False

    @classmethod
    def open(
        cls,
        address: Address,
        settings: ClientSettings | None = None,
        clock: Clock | None = None,
        on_silence: Callable[[ProtocolError], None] | None = None,
    ) -> Connection:
        """Connect and agree on versions. Raises `ProtocolError` (NETWORK_EXCEPTION)."""
        settings = settings or ClientSettings()
        try:
            sock = socket.create_connection(address, settings.connect_timeout_ms / 1000)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            raise ProtocolError(
                ErrorCode.NETWORK_EXCEPTION,
                f"Cannot connect to {address}: {error.strerror or error}.",
            ) from error
        connection = cls(sock, address, settings, clock or SystemClock())
        if on_silence is not None:
            connection.on_silence = on_silence
        try:
            connection._negotiate()
        except BaseException:
            connection.close()
            raise
        return connection

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
        """Send a request and wait for its answer, see `send` and `result`."""
        pending = self.send(key, request, highest=highest)
        return self.result(pending, expected, timeout_ms=timeout_ms)

    def send(
        self,
        key: ApiKey,
        request: object | Callable[[int], object],
        *,
        highest: int | None = None,
    ) -> Pending:
        """Send a request in the newest version that both sides know, up to `highest`.

        `request` may be a function that makes the message for the agreed version. Raises
        `ProtocolError`: UNSUPPORTED_VERSION if there is no common one, or NETWORK_EXCEPTION.
        """
        version = self.version_for(key, highest)
        message = request(version) if callable(request) else request
        return self._send(api_of(key), version, message)

    def send_unanswered(self, key: ApiKey, request: object, *, highest: int | None = None) -> None:
        """Send a request that the broker does not answer: a produce with acks 0."""
        version = self.version_for(key, highest)
        self._send(api_of(key), version, request)
        self._waiting.pop()

    def result(self, pending: Pending, expected: type[T], *, timeout_ms: int | None = None) -> T:
        """The answer to a request; waits for it up to the request timeout.

        Raises `ProtocolError` when the connection fails first: REQUEST_TIMED_OUT or
        NETWORK_EXCEPTION, after which it is unknown whether the request was carried out; and
        `MalformedFrame` when what came is no answer.
        """
        if timeout_ms is None:
            timeout_ms = self._settings.request_timeout_ms
        deadline_ms = pending.sent_ms + timeout_ms
        while not pending.is_done:
            left_ms = max(0, deadline_ms - self._clock.monotonic_ms())
            if self._advance(min(left_ms, _SILENCE_MS)):
                continue
            if left_ms > _SILENCE_MS:
                self.on_silence(self.silence(pending))
            else:
                self._fail(
                    ProtocolError(
                        ErrorCode.REQUEST_TIMED_OUT,
                        f"The broker at {self.address} did not answer {pending.api.name} within "
                        f"{timeout_ms} ms.",
                    )
                )
        if pending.error is not None:
            raise pending.error
        if not isinstance(pending.response, expected):
            raise InvariantViolated(f"{pending.response!r} is not a {expected.__name__}.")
        return pending.response

    def silence(self, pending: Pending) -> ProtocolError:
        """What to tell of a request that is not answered yet."""
        return ProtocolError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"The broker at {self.address} has not answered {pending.api.name} yet.",
        )

    def take_arrived(self) -> None:
        """Read what has arrived without waiting for more; errors show in the pending requests."""
        while self._waiting and self._advance(0):
            continue

    @property
    def in_flight(self) -> int:
        """Requests whose answers have not come."""
        return len(self._waiting)

    def fileno(self) -> int:
        """For `select`: readable when an answer, or the end of the connection, has come."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the socket; what waits fails."""
        self._fail(
            ProtocolError(
                ErrorCode.NETWORK_EXCEPTION, f"The connection to {self.address} was closed."
            )
        )

    # -- Versions ----------------------------------------------------------------------------

    def serves(self, key: ApiKey) -> bool:
        """Whether there is a version of the API that both sides know."""
        return not self._common(key, None).empty

    def version_for(self, key: ApiKey, highest: int | None = None) -> int:
        """The newest version that both sides know. Raises ProtocolError (UNSUPPORTED_VERSION)."""
        common = self._common(key, highest)
        if common.empty:
            served = self._served.get(key)
            theirs = "not at all" if served is None else f"in versions {served}"
            raise ProtocolError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"The broker at {self.address} serves {api_of(key).name} {theirs}; this client "
                f"speaks {api_of(key).versions}.",
            )
        return common.highest

    def _common(self, key: ApiKey, highest: int | None) -> VersionRange:
        served = self._served.get(key)
        if served is None and key in PRIVATE:
            served = api_of(key).versions
        if served is None:
            return VersionRange(0, -1)
        common = served.overlap(api_of(key).versions)
        return common if highest is None else common.overlap(VersionRange(0, highest))

    def _negotiate(self) -> None:
        """Ask for the broker's versions, at first in our newest one (KIP-511)."""
        api = api_of(ApiKey.API_VERSIONS)
        request = ApiVersionsRequest(
            client_software_name="strandline", client_software_version=__version__
        )
        version = api.versions.highest
        response = self._ask_versions(api, version, request)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            # The broker is older: its answer names the versions that it has, or is too old for it.
            named = {each.api_key: each.max_version for each in response.api_keys}
            version = min(named.get(api.key, 0), version)
            response = self._ask_versions(api, version, request)
        if response.error_code != ErrorCode.NONE:
            raise refusal(response.error_code, None, f"the broker at {self.address}")
        self._served = {
            each.api_key: VersionRange(each.min_version, each.max_version)
            for each in response.api_keys
        }

    def _ask_versions(
        self, api: Api, version: int, request: ApiVersionsRequest
    ) -> ApiVersionsResponse:
        pending = self._send(api, version, request)
        return self.result(pending, ApiVersionsResponse)

    # -- Bytes -------------------------------------------------------------------------------

    def _send(self, api: Api, version: int, message: object) -> Pending:
        if self.closed:
            raise ProtocolError(
                ErrorCode.NETWORK_EXCEPTION, f"The connection to {self.address} is closed."
            )
        if len(self._waiting) >= _IN_FLIGHT_MAX:
            raise InvariantViolated(f"{_IN_FLIGHT_MAX} requests wait on one connection.")
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & _CORRELATION_MAX
        chunks: list[Any] = request_frame(
            api, version, correlation_id, self._settings.client_id, message
        )
        pending = Pending(api, version, correlation_id, self._clock.monotonic_ms())
        self._waiting.append(pending)
        try:
            self._socket.settimeout(self._settings.request_timeout_ms / 1000)
            self._socket.sendall(chunks[0] if len(chunks) == 1 else b"".join(chunks))
        except OSError as error:
            self._fail(self._broken(error.strerror or str(error)))
            raise self._broken(error.strerror or str(error)) from error
        return pending

    def _advance(self, wait_ms: int) -> bool:
        """Read until a frame is complete or the connection failed; False if `wait_ms` passed."""
        deadline_ms = self._clock.monotonic_ms() + wait_ms
        while True:
            left_ms = max(0, deadline_ms - self._clock.monotonic_ms())
            try:
                # poll, not select: descriptors above 1023 are fine with it.
                poller = select.poll()
                poller.register(self._socket, select.POLLIN)
                if not poller.poll(left_ms):
                    return False
                received = self._socket.recv_into(memoryview(self._frame)[self._filled :])
            except OSError as error:
                self._fail(self._broken(error.strerror or str(error)))
                return True
            if not received:
                self._fail(self._broken("the broker closed the connection"))
                return True
            self._filled += received
            if self._filled < len(self._frame):
                continue
            try:
                if self._finish_part():
                    return True
            except MalformedFrame as error:
                self._fail(error)
                return True

    def _finish_part(self) -> bool:
        """Go from a size to its frame, or take in a whole frame; whether it was the latter."""
        self._filled = 0
        if not self._in_body:
            size = frame_size(self._frame, 0, self._settings.response_bytes_max)
            if size < SIZE_BYTES:
                raise MalformedFrame(f"The broker at {self.address} sent a frame of {size} bytes.")
            self._frame = bytearray(size)
            self._in_body = True
            return False
        frame = memoryview(self._frame)
        self._frame = bytearray(SIZE_BYTES)
        self._in_body = False
        self._take_in(frame)
        return True

    def _take_in(self, frame: memoryview) -> None:
        if not self._waiting:
            raise MalformedFrame(f"The broker at {self.address} sent an answer to no request.")
        pending = self._waiting[0]
        correlation_id, position = parse_response_header(frame, pending.api, pending.version)
        if correlation_id != pending.correlation_id:
            raise MalformedFrame(
                f"The broker at {self.address} answered request {correlation_id} where "
                f"{pending.correlation_id} was expected."
            )
        pending.response = _decode(pending, frame, position)
        self._waiting.popleft()

    def _broken(self, reason: str) -> ProtocolError:
        return ProtocolError(
            ErrorCode.NETWORK_EXCEPTION, f"The connection to {self.address} broke: {reason}."
        )

    def _fail(self, error: ProtocolError | MalformedFrame) -> None:
        """Close for good; everything that waits fails with `error`."""
        self.closed = True
        self._socket.close()
        while self._waiting:
            self._waiting.popleft().error = error


def _nothing_told(error: ProtocolError) -> None:
    """For a user that waits for no person."""


def _decode(pending: Pending, frame: memoryview, position: int) -> object:
    api, version = pending.api, pending.version
    if api.key is ApiKey.API_VERSIONS:
        # A broker that does not know the version answers in version 0 (KIP-511).
        number = int.from_bytes(frame[position : position + 2], "big", signed=True)
        if number == ErrorCode.UNSUPPORTED_VERSION:
            version = 0
    return decode(api.response_class, version, frame, position)
