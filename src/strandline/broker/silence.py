"""How long the other end of a connection has said nothing, in time that this process lived through.

Theory: a process that was stopped for a minute and goes on must not conclude from its clock that
its peer is dead: what the peer said meanwhile waits in the socket, unread. So ticks are counted,
not seconds; the time of a stop is one tick, however long it was, and a peer is silent if so many
ticks have passed without a word. Knows the clock of the event loop and no socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Silence:
    """Begins when it is made; belongs to the running event loop."""

    def __init__(
        self,
        timeout_s: float,
        ticks: int,
        on_silent: Callable[[], None],
        on_tick: Callable[[], None] | None = None,
    ) -> None:
        """`on_silent` is called once, after so many ticks within `timeout_s` without `heard`;
        `on_tick` at each of the others."""
        self._tick_s = timeout_s / ticks
        self._ticks = ticks
        self._on_silent = on_silent
        self._on_tick = on_tick
        self._silent_ticks = 0
        self._timer: asyncio.TimerHandle | None = None
        self._wait()

    def heard(self) -> None:
        """The other end has said something."""
        self._silent_ticks = 0

    def stop(self) -> None:
        """Call nothing any more. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._tick_s, self._tick)

    def _tick(self) -> None:
        self._silent_ticks += 1
        if self._silent_ticks >= self._ticks:
            self._timer = None
            self._on_silent()
            return
        self._wait()
        if self._on_tick is not None:
            self._on_tick()
