"""Whom a broker lets in: its listening sockets, and the limits on connections.

This file knows how many connections there are and from which addresses. What is done with them is
the server's business.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from strandline.broker.addresses import plain_peer
from strandline.broker.frame_memory import FrameMemory
from strandline.broker.handle_budget import HandleBudget

log = logging.getLogger(__name__)

_ACCEPTS_PER_ROUND: Final = 64
_ACCEPT_RETRY_S: Final = 0.1
OUT_OF_RESOURCES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class ListenerSocket(NamedTuple):
    """A listening socket and the name of its listener."""

    name: str
    socket: socket.socket


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How many connections the server takes and for how long it keeps idle ones."""

    frame_bytes_max: int
    connections_max: int
    per_address_max: int
    per_address_overrides: Mapping[str, int]
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
        limits: Limits,
        admit: Callable[[socket.socket, str, str], None],
    ) -> None:
        """`admit` gets each accepted socket, its address and the name of the listener."""
        self.is_started = False
        self._listeners = listeners
        self._limits = limits
        self._admit = admit
        self._loop = asyncio.get_running_loop()
        self._retry: asyncio.TimerHandle | None = None
        self._count = 0
        self._addresses: Counter[str] = Counter()

    def start(self) -> None:
        """Accept from now on, or again."""
        self.is_started = True
        for listener in self._listeners:
            listener.socket.setblocking(False)
            self._loop.add_reader(listener.socket, self._accept, listener)

    def pause(self) -> None:
        """Leave whoever comes in the kernel's queue until `start`."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        for listener in self._listeners:
            self._loop.remove_reader(listener.socket)

    def close(self) -> None:
        """Accept nobody any more."""
        self.pause()
        self.is_started = False
        for listener in self._listeners:
            listener.socket.close()

    def left(self, host: str) -> None:
        """A connection from that address has ended."""
        self._count -= 1
        self._limits.handles.closed()
        self._addresses[host] -= 1
        if not self._addresses[host]:
            del self._addresses[host]

    def _accept(self, listener: ListenerSocket) -> None:
        for _ in range(_ACCEPTS_PER_ROUND):
            try:
                accepted, address = listener.socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno not in OUT_OF_RESOURCES:
                    log.warning("Accepting a connection failed: %s", error)
                    return
                if self._limits.handles.make_room():
                    continue
                # The waiting client stays in the kernel's queue; trying again at once would spin.
                log.warning("No connection can be accepted now: %s", error.strerror)
                self.pause()
                self._retry = self._loop.call_later(_ACCEPT_RETRY_S, self.start)
                return
            address = plain_peer(address)
            host = str(address[0])
            if self._may_enter(accepted, host, address):
                self._count += 1
                self._limits.handles.opened()
                self._addresses[host] += 1
                self._admit(accepted, host, listener.name)

    def _may_enter(self, accepted: socket.socket, host: str, address: object) -> bool:
        limits = self._limits
        if not limits.handles.may_accept(address):
            log.warning(
                "Connection from %s refused: this process may have no more than %d open files and "
                "sockets (ulimit -n)",
                host,
                limits.handles.limit,
            )
            accepted.close()
            return False
        if self._count >= limits.connections_max:
            log.warning("Connection from %s refused: max.connections is reached", host)
            accepted.close()
            return False
        if self._addresses[host] >= limits.per_address_overrides.get(host, limits.per_address_max):
            log.warning("Connection from %s refused: max.connections.per.ip is reached", host)
            accepted.close()
            return False
        try:
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            log.info("Connection from %s was gone at once: %s", host, error.strerror)
            accepted.close()
            return False
        return True
