"""One connection to one broker on an event loop: a `channel` over an asyncio transport.

What ends the connection fails everything that waits on it, with the same error. It must not know
which broker is asked for what, nor retry anything.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from random import SystemRandom
from typing import Final, TypeVar, cast

from strandline.client.aio.outflow import Outflow
from strandline.client.channel import Channel, Request, Unsendable
from strandline.client.security import tls
from strandline.client.security.authentication import Authentication
from strandline.client.security.exchanges import exchange_of
from strandline.client.security.settings import Sasl
from strandline.client.settings import Address, ClientSettings
from strandline.client.versions import ServedVersions, VersionHandshake
from strandline.errors import (
    ErrorCode,
    InvalidSetting,
    InvariantViolated,
    MalformedFrame,
    ProtocolError,
)
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
        self.outflow = Outflow()
        """How far what was sent has gone out."""
        self._is_plain = settings.security.tls is None
        self._settings = settings
        self._served = ServedVersions(f"broker at {address}", {})
        self._channel: Channel[_Asked] = Channel(settings.client_id, _IN_FLIGHT_MAX)
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._alarm: asyncio.TimerHandle | None = None
        self._again: asyncio.TimerHandle | asyncio.Task[None] | None = None
        """Until another authentication is due (KIP-368), and that authentication itself."""
        self._is_authenticating = False
        self._idle: asyncio.Future[None] | None = None

    @classmethod
    async def open(cls, address: Address, settings: ClientSettings) -> Connection:
        """Connect, agree on versions and authenticate.

        Raises `ProtocolError` (NETWORK_EXCEPTION), `AuthenticationFailed`, and `InvalidSetting` if
        a certificate or a secret is not where the settings say.
        """
        connection = cls(address, settings)
        try:
            await connection._connect()
            await connection._negotiate()
            if settings.security.sasl is not None:
                await connection._authenticate(settings.security.sasl)
        except BaseException:
            connection.close()
            raise
        return connection

    async def _connect(self) -> None:
        wanted = self._settings.security.tls
        context = None if wanted is None else await asyncio.to_thread(tls.context_of, wanted)
        host, port = self.address
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._settings.connect_timeout_ms / 1000):
                await loop.create_connection(
                    lambda: self,
                    host,
                    port,
                    ssl=context,
                    server_hostname=None if context is None else host,
                )
        except ssl.SSLError as error:
            raise tls.failed(self.address, error) from error
        except (OSError, TimeoutError) as error:
            reason = getattr(error, "strerror", None) or str(error) or "timed out"
            raise ProtocolError(
                ErrorCode.NETWORK_EXCEPTION, f"Cannot connect to {self.address}: {reason}."
            ) from error

    async def _negotiate(self) -> None:
        handshake = VersionHandshake(f"broker at {self.address}")
        served = None
        api = api_of(ApiKey.API_VERSIONS)
        with tls.first_answer(is_plain=self._settings.security.tls is None):
            while served is None:
                asked = self._ask(api, handshake.version, handshake.request)
                served = handshake.answered(cast("ApiVersionsResponse", await asked.future))
        self._served = served

    async def _authenticate(self, sasl: Sasl) -> None:
        """The others' requests wait meanwhile: the broker takes nothing else."""
        loop = asyncio.get_running_loop()
        self._is_authenticating = True
        if self._channel.in_flight:
            self._idle = loop.create_future()
            await self._idle
        # A token endpoint may take its time; SCRAM takes milliseconds.
        exchange = await asyncio.to_thread(exchange_of, self._settings.security, sasl)
        started = loop.time()
        broker = f"broker at {self.address}"
        authentication = Authentication(broker, sasl.mechanism, exchange, self._served)
        while (step := authentication.next) is not None:
            asked = self._ask(api_of(step.key), step.version, step.request, is_first=True)
            authentication.answered(await asked.future)
        self._is_authenticating = False
        again_after_ms = authentication.again_after_ms(SystemRandom())
        if again_after_ms is not None:
            due = started + again_after_ms / 1000
            self._again = loop.call_at(due, self._authenticate_again, sasl)
        self._write()

    def _authenticate_again(self, sasl: Sasl) -> None:
        async def again() -> None:
            try:
                await self._authenticate(sasl)
            except (ProtocolError, InvalidSetting) as error:
                self._fail(
                    error
                    if isinstance(error, ProtocolError)
                    else ProtocolError(ErrorCode.NETWORK_EXCEPTION, str(error))
                )

        self._again = asyncio.get_running_loop().create_task(again())

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
        self.outflow.has_unanswered = True
        asked = self._ask(api_of(key), version, request, is_answered=False)
        if asked.future.done():
            asked.future.result()

    def _ask(
        self,
        api: Api,
        version: int,
        message: object,
        timeout_ms: int | None = None,
        *,
        is_answered: bool = True,
        is_first: bool = False,
    ) -> _Asked:
        if self.closed:
            raise ProtocolError(
                ErrorCode.NETWORK_EXCEPTION, f"The connection to {self.address} is closed."
            )
        if timeout_ms is None:
            timeout_ms = self._settings.request_timeout_ms
        asked = _Asked(api, version, message, timeout_ms)
        asked.is_answered = is_answered
        if is_first:
            self._channel.ask_first(asked)
            self._write_one()
        else:
            self._channel.ask(asked)
            self._write()
        self._set_alarm()
        return asked

    def _write(self) -> None:
        while not self._is_authenticating and self._write_one():
            continue

    def _write_one(self) -> bool:
        try:
            chunks = None if self._transport is None else self._channel.next_frame()
        except Unsendable as error:
            future = cast("_Asked", error.request).future
            future.set_exception(error)
            future.exception()  # a request that is not waited for any more may fail
            return True
        if self._transport is None or chunks is None:
            return False
        self._transport.write(b"".join(chunks))
        return True

    # -- What the transport says (`asyncio.Protocol`) ----------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = cast("asyncio.Transport", transport)
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def pause_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self.outflow.pause()

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self.outflow.resume()

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self._received += data
        alert = tls.alert(self.address, self._received) if self._is_plain else None
        if alert is not None:
            self._fail(alert)
            return
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
        if self._idle is not None and not self._channel.in_flight and not self._idle.done():
            self._idle.set_result(None)
        self._write()
        self._set_alarm()

    def _is_whole(self) -> bool:
        """Whether a frame has come as a whole, or its size is no size."""
        size = int.from_bytes(self._received[:4], "big", signed=True)
        is_size = 0 <= size <= self._settings.response_bytes_max
        return len(self._received) >= 4 + size if is_size else len(self._received) >= 4

    def connection_lost(self, error: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self.outflow.end()
        if isinstance(error, ssl.SSLError):
            self._fail(tls.failed(self.address, error))
            return
        reason = "the broker closed the connection" if error is None else str(error)
        if isinstance(error, OSError) and error.strerror:
            reason = error.strerror
        self._fail(
            ProtocolError(
                ErrorCode.NETWORK_EXCEPTION, f"The connection to {self.address} broke: {reason}."
            )
        )

    # -- Ends --------------------------------------------------------------------------------

    async def finish(self) -> None:
        """As `close`, but first let out what was sent and is not answered, for at most the time of
        a request: it counts as delivered."""
        try:
            if self._transport is not None and not self.closed and self.outflow.has_unanswered:
                self.closed = True  # nothing new comes behind it
                async with asyncio.timeout(self._settings.request_timeout_ms / 1000):
                    await self.outflow.finish(self._transport)
        except TimeoutError:
            return  # the broker does not take it
        finally:
            self.close()

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
        if self._again is not None:
            self._again.cancel()
            self._again = None
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
