"""How far what was written to a transport has gone out.

This file knows asyncio's flow control. It must not know what is written.

Theory: asyncio takes any amount and keeps what the socket does not take yet; an abort throws that
away. For a request that is answered this is no loss, as its answer lacks. One without an answer
(acks 0) is known to be on its way only by this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Outflow:
    """See the module; the protocol of the transport tells it what it is told."""

    def __init__(self) -> None:
        self.is_paused = False
        """Whether the other side takes no more at the moment."""
        self.has_unanswered = False
        """Whether something was written that is not answered."""
        self._when_free: set[Callable[[], None]] = set()
        self._freed: asyncio.Future[None] | None = None
        self._ended: asyncio.Future[None] | None = None
        self._has_ended = False

    def call_when_free(self, callback: Callable[[], None]) -> None:
        """Call this once, when the other side takes more again, or the connection has ended."""
        self._when_free.add(callback)

    def pause(self) -> None:
        """The transport keeps more than it should."""
        self.is_paused = True

    def resume(self) -> None:
        """The transport has got rid of it."""
        self.is_paused = False
        waiting, self._when_free = self._when_free, set()
        for callback in waiting:
            callback()
        if self._freed is not None and not self._freed.done():
            self._freed.set_result(None)

    def end(self) -> None:
        """The connection has ended: nothing more goes out."""
        self._has_ended = True
        self.resume()
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    async def finish(self, transport: asyncio.Transport) -> None:
        """Wait until all that was written has gone out, then close the transport."""
        loop = asyncio.get_running_loop()
        self._freed, self._ended = loop.create_future(), loop.create_future()
        transport.set_write_buffer_limits(high=0)  # it tells at once whether it keeps anything
        if self.is_paused and not self._has_ended:
            await self._freed
        transport.close()
        if not self._has_ended:
            await self._ended
