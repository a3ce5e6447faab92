"""One connection to one broker on an event loop: a `channel` over an asyncio transport.

What ends the connection fails everything that waits on it, with the same error. It must not know
which broker is asked for what, nor retry anything.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final, TypeVar, cast

from strandline.client.channel import Channel, Request
from strandline.client.settings import Address, ClientSettings
from strandline.client.versions import ServedVersions, VersionHandshake
from strandline.errors import ErrorCode, InvariantViolated, MalformedFrame, ProtocolError
from strandline.protocol.apis import Api, ApiKey, api_of
from strandline.protocol.framing import split_frames
from strandline.protocol.messages.api_versions import ApiVersionsResponse

T = TypeVar("T")

_IN_FLIGHT_MAX: Final = 64


def now_ms() -> int:
    """The event loop's time."""
    return int(asyncio.get_running_loop().time() * 1000)


class _Asked(Request):
    """A request, and where its answer goes."""

    __slots__ = ("future", "timeout_ms")

    def __init__(self, api: Api, version: int, message: object, timeout_ms: int) -> None:
        super().__init__(api, version, message, now_ms() + timeout_ms)
        self.timeout_ms = timeout_ms
        self.future: asyncio.Future[object] = asyncio.get_running_loop().create_future()


class Connection(asyncio.Protocol):
    """See the module. Made by `Connection.open`; usable until `close` or the first error."""

    def __init__(self, address: Address, settings: ClientSettings) -> None:
        self.address = address
        self.closed = False
        self._settings = settings
        self._served = ServedVersions(f"broker at {address}", {})
        self._channel: Channel[_Asked] = Channel(settings.client_id, _IN_FLIGHT_MAX)
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._alarm: asyncio.TimerHandle | None = None

    @classmethod
    async def open(cls, address: Address, settings: ClientSettings) -> Connection:
        """Connect and agree on versions. Raises `ProtocolError` (NETWORK_EXCEPTION)."""
        connection = cls(address, settings)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(settings.connect_timeout_ms / 1000):
                await loop.create_connection(lambda: connection, address.host, address.port)
        except (OSError, TimeoutError) as error:
            reason = getattr(error, "strerror", None) or str(error) or "timed out"
            raise ProtocolError(
                ErrorCode.NETWORK_EXCEPTION, f"Cannot connect to {address}: {reason}."
            ) from error
        try:
            await connection._negotiate()
        except BaseException:
            connection.close()
            raise
        return connection

    async def _negotiate(self) -> None:
        handshake = VersionHandshake(f"broker at {self.address}")
        served = None
        while served is None:
            api = api_of(ApiKey.API_VERSIONS)
            asked = self._ask(api, handshake.version, handshake.request)
            served = handshake.answered(cast("ApiVersionsResponse", await asked.future))
        self._served = served

    # -- Requests ----------------------------------------------------------------------------

    @property
    def served(self) -> ServedVersions:
        """The versions that the broker serves."""
        return self._served

    @property
    def in_flight(self) -> int:
        """Requests that are sent and not answered."""
        return self._channel.in_flight

    async def call(
        self,
        key: ApiKey,
        expected: type[T],
        request: object | Callable[[int], object],
        *,
        highest: int | None = None,
        timeout_ms: int | None = None,
    ) -> T:
        """Send a request and wait for its answer.

        Raises `ProtocolError`: UNSUPPORTED_VERSION, REQUEST_TIMED_OUT or NETWORK_EXCEPTION; after
        the latter two it is unknown whether the request was carried out.
        """
        response = await self.send(key, request, highest=highest, timeout_ms=timeout_ms)
        if not isinstance(response, expected):
            raise InvariantViolated(f"{response!r} is not a {expected.__name__}.")
        return response

    def send(
        self,
        key: ApiKey,
        request: object | Callable[[int], object],
        *,
        highest: int | None = None,
        timeout_ms: int | None = None,
    ) -> asyncio.Future[object]:
        """Send a request; the future has its answer, or the error of `call`."""
        version = self._served.newest(key, highest)
        message = request(version) if callable(request) else request
        return self._ask(api_of(key), version, message, timeout_ms).future

    def send_unanswered(self, key: ApiKey, request: object, *, highest: int | None = None) -> None:
        """Send a request that the broker does not answer: a produce with acks 0."""
        version = self._served.newest(key, highest)
        self._ask(api_of(key), version, request, is_answered=False)

    def _ask(
        self,
        api: Api,
        version: int,
        message: object,
        timeout_ms: int | None = None,
        *,
        is_answered: bool = True,
    ) -> _Asked:
        if self.closed:
            raise ProtocolError(
                ErrorCode.NETWORK_EXCEPTION, f"The connection to {self.address} is closed."
            )
        if timeout_ms is None:
            timeout_ms = self._settings.request_timeout_ms
        asked = _Asked(api, version, message, timeout_ms)
        asked.is_answered = is_answered
        self._channel.ask(asked)
        self._write()
        self._set_alarm()
        return asked

    def _write(self) -> None:
        while self._transport is not None and (chunks := self._channel.next_frame()) is not None:
            self._transport.write(b"".join(chunks))

    # -- What the transport says (`asyncio.Protocol`) ----------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = cast("asyncio.Transport", transport)
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self._received += data
        received = bytes(self._received) if self._is_whole() else b""
        try:
            frames, end = split_frames(
                memoryview(received), frame_bytes_max=self._settings.response_bytes_max
            )
            for frame in frames:
                asked, answer = self._channel.received(frame)
                if not asked.future.done():
                    asked.future.set_result(answer)
        except MalformedFrame as error:
            self._fail(
                ProtocolError(
                    ErrorCode.NETWORK_EXCEPTION,
                    f"The broker at {self.address} sent no answer: {error}",
                )
            )
            return
        del self._received[:end]
        self._write()
        self._set_alarm()

    def _is_whole(self) -> bool:
        """Whether a frame has come as a whole, or its size is no size."""
        size = int.from_bytes(self._received[:4], "big", signed=True)
        is_size = 0 <= size <= self._settings.response_bytes_max
        return len(self._received) >= 4 + size if is_size else len(self._received) >= 4

    def connection_lost(self, error: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        reason = "the broker closed the connection" if error is None else str(error)
        if isinstance(error, OSError) and error.strerror:
            reason = error.strerror
        self._fail(
            ProtocolError(
                ErrorCode.NETWORK_EXCEPTION, f"The connection to {self.address} broke: {reason}."
            )
        )

    # -- Ends --------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the socket; what waits fails."""
        self._fail(
            ProtocolError(
                ErrorCode.NETWORK_EXCEPTION, f"The connection to {self.address} was closed."
            )
        )

    def _fail(self, error: ProtocolError) -> None:
        self.closed = True
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        for asked, _ in self._channel.end(error.message):
            if not asked.future.done():
                asked.future.set_exception(error)
                asked.future.exception()  # a request that is not waited for any more may fail
        if self._transport is not None:
            self._transport.abort()

    def _set_alarm(self) -> None:
        """One timer for the request that is due first."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        due = self._channel.first_due()
        if due is not None:
            loop = asyncio.get_running_loop()
            self._alarm = loop.call_at(due.deadline / 1000, self._overdue, due)

    def _overdue(self, asked: _Asked) -> None:
        self._alarm = None
        self._fail(
            ProtocolError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"The broker at {self.address} did not answer {asked.api.name} within "
                f"{asked.timeout_ms} ms.",
            )
        )
