"""kazoo's connection as an event loop wants it: one thread, everything in the order of the wire.

kazoo finds servers, keeps the session alive and renews it; its thread reads the connection. This
file hands over what that thread sees (states, changed paths, answers) to the event loop as one
sequence, because the order means something: a server tells a change before it answers a request
that came after it. kazoo's own queues for watches and for answers would lose that order.

kazoo 2.11 has no persistent watches. Three of its inner methods are used for that, which is why it
is pinned to the digit: `ConnectionHandler._read_watch_event` (what to do with an event that no
one-shot watch waits for), `KazooClient._call` (send a request that has no method of its own), and
`KazooClient._connection`. It decides nothing about the metadata.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol

from kazoo.client import KazooClient
from kazoo.exceptions import (
    ConnectionLoss,
    KazooException,
    OperationTimeoutError,
    SessionExpiredError,
    SessionMovedError,
    WriterNotClosedException,
    ZookeeperError,
)
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import Watch
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.retry import KazooRetry

from strandline.client.security.stores import reason_of
from strandline.cluster.store import SessionId, Zxid

log = logging.getLogger(__name__)
# kazoo reports every step of every attempt to connect; the store says what matters of it.
_kazoo_log = logging.getLogger(f"{__name__}.kazoo")
_kazoo_log.setLevel(logging.ERROR)

RECONNECT_DELAY_S: Final = 0.05
RECONNECT_DELAY_MAX_S: Final = 1.0
HEARTBEAT_S: Final = 0.25

Answered = Callable[[Any, Exception | None, Zxid], None]
"""Called with the answer, or with what went wrong, and the server's last transaction then."""

_BROKEN: Final = "The connection to ZooKeeper broke down."

LOST_ANSWERS: Final = (
    ConnectionLoss,
    OperationTimeoutError,
    SessionExpiredError,
    SessionMovedError,
)
"""Errors after which a request may or may not have been carried out."""


class Request(Protocol):
    """What kazoo's connection can send."""

    @property
    def type(self) -> int:
        """The number of the operation."""

    def serialize(self) -> bytes:
        """The request without its header."""


class Owner(Protocol):
    """Who hears of a session. All calls come on the event loop, in the order of the wire."""

    def connected(self, session: SessionId) -> None:
        """A server serves this session; it is a new one if the number is new."""

    def disconnected(self) -> None:
        """No server can be asked. Requests under way have been answered with an error."""

    def failed(self, reason: str) -> None:
        """kazoo has given up; `ZooKeeperSession.restart` tries again."""

    def changed(self, path: str) -> None:
        """A watched node was made, changed or deleted."""

    def caught_up(self) -> None:
        """Everything that has arrived so far has been told."""


class ZooKeeperSession:
    """A connection to an ensemble. Belongs to the event loop that runs when it is made."""

    def __init__(
        self,
        hosts: str,
        owner: Owner,
        *,
        session_timeout_ms: int,
        auth_data: Sequence[tuple[str, str]] = (),
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`hosts` as in `zookeeper.connect`, `auth_data` schemes with what shows who this is, `tls`
        how connections are encrypted; None: not.

        Raises `ValueError` if the hosts are none.
        """
        self._loop = asyncio.get_running_loop()
        self._owner = owner
        self._arrived: deque[Callable[[], None]] = deque()
        self._is_scheduled = False
        self._is_closing = False
        self._client = client = KazooClient(
            hosts=hosts,
            timeout=session_timeout_ms / 1000,
            handler=_Handler(),
            auth_data=list(auth_data) or None,
            connection_retry=KazooRetry(
                max_tries=-1, delay=RECONNECT_DELAY_S, max_delay=RECONNECT_DELAY_MAX_S
            ),
            logger=_kazoo_log,
        )
        client.handler.connect_timeout_s = session_timeout_ms / 1000 / len(client.hosts)
        client.handler.tls = tls
        client.handler.heartbeat_s = min(HEARTBEAT_S, session_timeout_ms / 1000 / 6)
        plain = client._connection
        client._connection = _WatchingConnection(
            client, plain.retry_sleeper, logger=plain.logger, sasl_options=plain.sasl_options
        )
        client._connection.changed = lambda path: self._post(partial(owner.changed, path))
        client.add_listener(self._state_changed)

    @property
    def chroot(self) -> str:
        """Where the nodes of this store hang; empty or without a slash at its end."""
        return str(self._client.chroot)

    def start(self) -> None:
        """Connect, and keep connected."""
        self._client.start_async()

    def restart(self) -> None:
        """Start again after `failed`."""
        if self._is_closing:
            return
        try:
            self._client.start_async()
        except WriterNotClosedException:
            self._owner.failed(_BROKEN)  # Its thread hangs; perhaps not for ever.

    def ask(self, request: Request, answered: Answered) -> None:
        """Send a request; the answer comes in its place among what the server tells."""
        self._client._call(request, _Reply(self, answered))

    async def close(self) -> None:
        """End the session at the server, if one can be reached, and the thread."""
        self._is_closing = True
        await self._loop.run_in_executor(None, self._stop)

    def _stop(self) -> None:
        try:
            self._client.stop()
            self._client.close()
        except WriterNotClosedException:
            log.warning("The connection to ZooKeeper hangs; its session ends by its timeout.")

    def _state_changed(self, state: str) -> None:
        """kazoo's listener, in its thread."""
        client = self._client
        if state == KazooState.CONNECTED:
            session = SessionId(client.client_id[0])
            self._post(partial(self._owner.connected, session))
            return
        self._post(self._owner.disconnected)
        if client.client_state == KeeperState.AUTH_FAILED:
            self._post(partial(self._owner.failed, "ZooKeeper does not accept the credentials."))
        elif client.client_state == KeeperState.CLOSED and not self._is_closing:
            self._post(partial(self._owner.failed, _BROKEN))

    def _answered(self, answered: Answered, value: Any, error: Exception | None) -> None:
        self._post(partial(answered, value, error, Zxid(self._client.last_zxid)))

    def _post(self, event: Callable[[], None]) -> None:
        """Hand something over to the event loop; from any thread."""
        self._arrived.append(event)
        if self._is_scheduled:
            return
        self._is_scheduled = True
        try:
            self._loop.call_soon_threadsafe(self._hand_over)
        except RuntimeError:
            if not self._loop.is_closed():
                raise  # A closed loop needs no callback: the store has stopped.

    def _hand_over(self) -> None:
        # First: a post from now on schedules the next round, even if this one takes it.
        self._is_scheduled = False
        for _ in range(len(self._arrived)):
            event = self._arrived.popleft()
            try:
                event()
            except Exception:
                # A bug of ours must not take what belongs to others with it.
                log.exception("What ZooKeeper told could not be taken in")
        self._owner.caught_up()


def is_definite(error: Exception) -> bool:
    """Whether a request that failed so has certainly not been carried out."""
    return isinstance(error, ZookeeperError) and not isinstance(error, LOST_ANSWERS)


def sentence(error: Exception) -> str:
    """What went wrong, for people."""
    detail = f": {error}" if str(error) else ""
    kind = "ZooKeeper answered" if isinstance(error, KazooException) else "There was"
    return f"{kind} {type(error).__name__}{detail}"


class _Reply:
    """Where kazoo puts the outcome of a request. Only the first one counts."""

    __slots__ = ("_answered", "_session")

    def __init__(self, session: ZooKeeperSession, answered: Answered) -> None:
        self._session = session
        self._answered: Answered | None = answered

    def set(self, value: Any = None) -> None:
        self._done(value, None)

    def set_exception(self, error: Exception) -> None:
        self._done(None, error)

    def _done(self, value: Any, error: Exception | None) -> None:
        answered, self._answered = self._answered, None
        if answered is not None:
            self._session._answered(answered, value, error)


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no annotations
    """kazoo's threads without the two that would call back: nothing is left to them."""

    connect_timeout_s: float
    heartbeat_s: float
    tls: ssl.SSLContext | None = None

    def start(self) -> None:
        self._running = True

    def stop(self) -> None:
        self._running = False

    def create_connection(self, *args: Any, timeout: float, **kwargs: Any) -> Any:
        """One server that does not answer must not use up the time of the whole session."""
        limit_s = min(timeout, self.connect_timeout_s)
        sock = super().create_connection(*args, timeout=limit_s, **kwargs)
        if self.tls is None:
            return sock
        # kazoo's own TLS takes certificates from PEM files only, and has no time limit.
        sock.settimeout(limit_s)
        try:
            return self.tls.wrap_socket(sock, server_hostname=kwargs["hostname"])
        except OSError as error:
            sock.close()
            log.warning(
                "The TLS handshake with ZooKeeper at %s failed: %s",
                kwargs["hostname"],
                reason_of(error),
            )
            raise

    def select(self, readable: list[Any], *args: Any) -> Any:
        """kazoo waits for an event or its time to send a heartbeat, less a random part of 0.4 s.

        In a session of a second or two nothing would be left of that time, and a heartbeat that is
        not answered within a few milliseconds would count as lost.
        """
        # What OpenSSL has decrypted already does not show at the socket.
        full = [each for each in readable if isinstance(each, ssl.SSLSocket) and each.pending()]
        if full:
            return full, [], []
        *others, timeout_s = args
        if len(readable) > 1:
            timeout_s = max(timeout_s, self.heartbeat_s)
        return super().select(readable, *others, timeout_s)


class _WatchingConnection(ConnectionHandler):  # type: ignore[misc]  # kazoo has no annotations
    """A connection on which every watch event counts, whatever kazoo knows of watches."""

    changed: Callable[[str], None]

    def _read_watch_event(self, buffer: bytes, offset: int) -> None:
        watch, _ = Watch.deserialize(buffer, offset)
        self.changed(self.client.unchroot(watch.path))
