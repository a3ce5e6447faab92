"""Whom a broker lets in: its listening sockets, and what becomes of clients that are too many.

What is done with connections is the server's business.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from strandline.broker.addresses import plain_peer
from strandline.broker.connection_limits import ConnectionLimits
from strandline.broker.frame_memory import FrameMemory
from strandline.broker.handle_budget import HandleBudget
from strandline.broker.newcomers import Newcomers

log = logging.getLogger(__name__)

_ACCEPTS_PER_ROUND: Final = 64
_ACCEPT_RETRY_S: Final = 0.1
_SENT_AWAY_MAX: Final = 256
"""Clients that are kept for a while before they are sent away; more of them are at once."""
OUT_OF_RESOURCES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class ListenerSocket(NamedTuple):
    """A listening socket and the name of its listener."""

    name: str
    socket: socket.socket


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the server takes, and for how long it keeps idle connections."""

    frame_bytes_max: int
    idle_ms_max: int
    handles: HandleBudget
    """What the process has left for sockets."""
    frames: FrameMemory
    """What it has left for large requests that arrive."""


class Acceptor:
    """Accepts connections on the event loop, from `start` on."""

    def __init__(
        self,
        listeners: Sequence[ListenerSocket],
        handles: HandleBudget,
        limits: ConnectionLimits,
        admit: Callable[[socket.socket, str, str], None],
        make_way: Callable[[], object],
        newcomers: Newcomers,
    ) -> None:
        """`admit` gets each accepted socket, its address and the name of the listener; `make_way`
        closes another connection, as there are too many. `newcomers` watch the listeners."""
        self.is_started = False
        self._listeners = list(listeners)
        self._handles = handles
        self._limits = limits
        self._admit = admit
        self._make_way = make_way
        self._newcomers = newcomers
        self._loop = asyncio.get_running_loop()
        self._retry: asyncio.TimerHandle | None = None
        self._full: dict[ListenerSocket, None] = {}
        """Listeners that accept no more until a connection ends."""
        self._waits: dict[ListenerSocket, asyncio.TimerHandle] = {}
        """Listeners by which connections came too fast."""
        self._sent_away: dict[socket.socket, asyncio.TimerHandle] = {}
        """Clients whose address came too fast, until they are."""

    def start(self) -> None:
        """Accept from now on, or again."""
        self.is_started = True
        for listener in self._listeners:
            listener.socket.setblocking(False)
            self._newcomers.add_reader(listener.socket, self._accept, listener)

    def pause(self) -> None:
        """Leave new connections in the kernel's queue until `start`."""
        for handle in (self._retry, *self._waits.values()):
            if handle is not None:
                handle.cancel()
        self._retry = None
        self._waits.clear()
        self._full.clear()
        for listener in self._listeners:
            self._newcomers.remove_reader(listener.socket)

    def close(self) -> None:
        """Stop accepting connections."""
        self.pause()
        self.is_started = False
        for listener in self._listeners:
            listener.socket.close()
        for accepted, handle in list(self._sent_away.items()):
            handle.cancel()
            self._send_away(accepted)

    def open(self, listener: ListenerSocket) -> None:
        """Accept by that one as well."""
        self._listeners.append(listener)
        if self.is_started:
            listener.socket.setblocking(False)
            self._newcomers.add_reader(listener.socket, self._accept, listener)

    def shut(self, name: str) -> None:
        """Accept no more by the listener of that name."""
        for each in [each for each in self._listeners if each.name == name]:
            self._listeners.remove(each)
            self._full.pop(each, None)
            wait = self._waits.pop(each, None)
            if wait is not None:
                wait.cancel()
            self._newcomers.remove_reader(each.socket)
            each.socket.close()

    def left(self, host: str, listener: str) -> None:
        """A connection of that listener and address has ended."""
        self._limits.left(listener, host)
        self._handles.closed()
        self.look_again()

    def forget(self) -> None:
        """All connections have ended, and those that were still to come in with them."""
        for _ in range(self._limits.forget()):
            self._handles.closed()

    def look_again(self) -> None:
        """There may be room again: a connection has ended, or a setting has changed."""
        full, self._full = self._full, {}
        for each in full:
            self._newcomers.add_reader(each.socket, self._accept, each)

    def _accept(self, listener: ListenerSocket) -> None:
        for _ in range(_ACCEPTS_PER_ROUND):
            if not self._may_accept(listener):
                return
            try:
                accepted, address = listener.socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno not in OUT_OF_RESOURCES:
                    log.warning("Accepting a connection failed: %s", error)
                    return
                if self._handles.make_room():
                    continue
                # The waiting client stays in the kernel's queue; trying again at once would spin.
                log.warning("No connection can be accepted now: %s", error.strerror)
                self.pause()
                self._retry = self._loop.call_later(_ACCEPT_RETRY_S, self.start)
                return
            address = plain_peer(address)
            host = str(address[0])
            self._limits.accepted(listener.name, _now_ms())
            if self._may_enter(accepted, host, address):
                self._handles.opened()
                self._limits.came(listener.name, host)
                if self._limits.must_make_way:
                    self._make_way()
                self._admit(accepted, host, listener.name)
            if self._newcomers.is_slice_over:
                return

    def _may_accept(self, listener: ListenerSocket) -> bool:
        """Whether another client of the listener is looked at; if not, clients wait."""
        setting = self._limits.full(listener.name)
        if setting is not None:
            log.warning("Clients of the listener %s wait: %s is reached", listener.name, setting)
            self._full[listener] = None
            self._newcomers.remove_reader(listener.socket)
            return False
        wait_ms = self._limits.wait_ms(listener.name, _now_ms())
        if wait_ms:
            self._newcomers.remove_reader(listener.socket)
            self._waits[listener] = self._loop.call_later(wait_ms / 1000, self._go_on, listener)
        return not wait_ms

    def _go_on(self, listener: ListenerSocket) -> None:
        del self._waits[listener]
        self._newcomers.add_reader(listener.socket, self._accept, listener)

    def _may_enter(self, accepted: socket.socket, host: str, address: object) -> bool:
        handles = self._handles
        if not handles.may_accept(address):
            log.warning(
                "Connection from %s refused: this process may have no more than %d open files and "
                "sockets (ulimit -n)",
                host,
                handles.limit,
            )
            accepted.close()
            return False
        if self._limits.has_too_many(host):
            log.warning("Connection from %s refused: max.connections.per.ip is reached", host)
            accepted.close()
            return False
        wait_ms = self._limits.address_wait_ms(host, _now_ms())
        if wait_ms:
            log.info("Connection from %s refused: connection_creation_rate is exceeded", host)
            self._keep_waiting(accepted, wait_ms)
            return False
        try:
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            log.info("Connection from %s was gone at once: %s", host, error.strerror)
            accepted.close()
            return False
        return True

    def _keep_waiting(self, accepted: socket.socket, wait_ms: int) -> None:
        """Close a connection later: a client that is sent away at once comes again at once."""
        if len(self._sent_away) >= _SENT_AWAY_MAX:
            accepted.close()
            return
        self._handles.opened()
        self._sent_away[accepted] = self._loop.call_later(wait_ms / 1000, self._send_away, accepted)

    def _send_away(self, accepted: socket.socket) -> None:
        del self._sent_away[accepted]
        accepted.close()
        self._handles.closed()


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
