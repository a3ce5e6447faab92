"""Connections that are quiet: they end after `connections.max.idle.ms`, or when another comes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from strandline.broker.transport import Transport
from strandline.node.connection import Connection
from strandline.node.effects import ConnectionId

_SWEEPS: Final = 10
"""Looks in the time that a connection may be quiet."""


class IdleConnections:
    """See the module."""

    def __init__(
        self,
        transports: Mapping[ConnectionId, Transport[Connection]],
        idle_ms_max: int,
        now_ms: Callable[[], int],
    ) -> None:
        self._transports = transports
        self._idle_ms_max = idle_ms_max
        self._now_ms = now_ms
        self._next: asyncio.TimerHandle | None = None

    def watch(self) -> None:
        """Look from now on, until `stop`."""
        if self._idle_ms_max > 0:
            loop = asyncio.get_running_loop()
            self._next = loop.call_later(max(1.0, self._idle_ms_max / 1000 / _SWEEPS), self._sweep)

    def stop(self) -> None:
        """Look no more."""
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def make_way(self, is_spared: Callable[[str], bool]) -> bool:
        """Close the connection that was used least lately, of a listener that is not spared."""
        others = (each for each in self._transports.values() if not is_spared(_listener(each)))
        idlest = min(others, key=lambda each: each.last_active_ms, default=None)
        if idlest is None:
            return False
        idlest.close("max.connections is reached, and another broker came")
        return True

    def _sweep(self) -> None:
        oldest_ms = self._now_ms() - self._idle_ms_max
        for transport in list(self._transports.values()):
            if transport.last_active_ms < oldest_ms and not transport.connection.slots:
                transport.close("connections.max.idle.ms has passed")
        self.watch()


def _listener(transport: Transport[Connection]) -> str:
    return transport.connection.listener
