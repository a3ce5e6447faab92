"""Clients that are accepted, and in a flood all that are new: served in slices between the others.

The event loop calls whatever is ready, and a round of it lasts as long as all of that takes. Floods
of connections, or of frames that are none, would so be in front of every request of a client that
is served already. Sockets that listen, and while there is a flood (`Suspects`) those of new
clients, are therefore watched by a selector of their own, which the loop sees as one descriptor. Of
what is ready there a slice is done in a round of the loop, one step at a time: a client is
accepted, or one frame handled. The rest waits, in its order, for the next rounds. In a flood slices
are short, and come last in their round.

    loop ── the sockets of known clients
         └─ the selector of newcomers ── listening sockets, new connections ──> a slice per round

A client is known after its first answer, or when it has authenticated if it has to. Not so if
connections of the same user, or of the same address where there are no users, were lately ended for
what they sent: it stays here. This file knows sockets and time; what is done with them is the
server's business.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections import deque
from collections.abc import Callable
from selectors import EVENT_READ
from typing import Any, Final

from strandline.broker.socket_calls import Callback, Calls, SocketCalls

_SLICE_NS: Final = 500_000
"""No step begins after that."""
_SLICE_OF_FLOODS_NS: Final = 50_000
_FLOOD: Final = 8
_FLOOD_MS: Final = 60_000
"""So many connections that were ended for what they sent, within that time."""
_SUSPECTED_AFTER: Final = 8
_SUSPECTED_FOR_MS: Final = 60_000
_SUSPECTS_MAX: Final = 1024


class Newcomers(SocketCalls):
    """See the module. Made on the event loop that it belongs to; a `Readiness`."""

    def __init__(self, is_flooded: Callable[[], bool], before: Callback) -> None:
        """`before` is called before each slice: what others still wait for is done then."""
        self._is_flooded = is_flooded
        self._before = before
        self._end_ns = 0
        self._loop = asyncio.get_running_loop()
        self._selector = selectors.DefaultSelector()
        self._ready: deque[tuple[Calls, int]] = deque()
        """What is to be done, in this order, unless it is given up before: the callbacks of a
        socket, and which of them."""
        self._next: asyncio.TimerHandle | None = None
        """The slice of the next round, if something is left for it."""
        self._is_paused = True
        self.resume()

    def pause(self) -> None:
        """Call nothing until `resume`."""
        self._is_paused = True
        self._loop.remove_reader(self._descriptor)
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def resume(self) -> None:
        """Go on. Idempotent."""
        if self._is_paused:
            self._is_paused = False
            self._loop.add_reader(self._descriptor, self._look)
            self._go_on_soon()

    def close(self) -> None:
        """Call nothing any more. Idempotent."""
        if self._selector.get_map() is not None:
            self.pause()
            self._selector.close()
        self._ready.clear()

    def later(self, callback: Callback) -> None:
        """Call that when it is its turn."""
        self._ready.append(({EVENT_READ: callback}, EVENT_READ))
        self._go_on_soon()

    @property
    def is_slice_over(self) -> bool:
        """Whether what is called has to leave the rest of its work for another time."""
        return time.monotonic_ns() >= self._end_ns

    def _watch(self, fd: Any, event: int, callback: Callback | None) -> None:
        key = self._selector.get_map().get(fd)
        calls: Calls = {} if key is None else key.data
        if callback is not None:
            calls[event] = callback
        elif calls.pop(event, None) is None:
            return
        events = sum(calls)
        if key is None:
            self._selector.register(fd, events, calls)
        elif not events:
            self._selector.unregister(fd)
        elif events != key.events:
            self._selector.modify(fd, events, calls)

    # -- Slices ------------------------------------------------------------------------------

    @property
    def _descriptor(self) -> int:
        return self._selector.fileno()

    def _look(self) -> None:
        """Some are ready."""
        if self._is_flooded():
            self._take_slice_last()
        elif self._next is None:
            self._slice()

    def _go_on(self) -> None:
        self._next = None
        self._slice()

    def _go_on_soon(self) -> None:
        if self._ready and not self._is_paused:
            self._take_slice_last()

    def _take_slice_last(self) -> None:
        if self._next is None:
            # The loop looks at its timers after the sockets that are ready.
            self._next = self._loop.call_later(0, self._go_on)

    def _slice(self) -> None:
        self._before()
        ready = self._ready
        if not ready:
            for key, events in self._selector.select(0):
                ready.extend((key.data, event) for event in key.data if event & events)
        slice_ns = _SLICE_OF_FLOODS_NS if self._is_flooded() else _SLICE_NS
        self._end_ns = time.monotonic_ns() + slice_ns
        try:
            while ready and not self._is_paused:
                calls, event = ready.popleft()
                call = calls.get(event)
                if call is not None:
                    call()
                if self.is_slice_over:
                    break
        finally:
            self._go_on_soon()


class Suspects:
    """Users and addresses whose connections were lately ended for what they sent."""

    def __init__(self, suspected_after: int = _SUSPECTED_AFTER) -> None:
        self._after = suspected_after
        self._faults: dict[str, tuple[int, int]] = {}
        """How many, and when the last was, in milliseconds: in this order."""
        self._lately_ms: deque[int] = deque(maxlen=_FLOOD)
        """When the last of all were."""

    def __contains__(self, who: str) -> bool:
        return bool(self._faults) and self._faults.get(who, (0, 0))[0] >= self._after

    def note(self, who: str, now_ms: int) -> None:
        """One more connection of them was ended."""
        self._lately_ms.append(now_ms)
        count, _ = self._faults.pop(who, (0, 0))
        self._faults[who] = (count + 1, now_ms)
        if len(self._faults) > _SUSPECTS_MAX:
            del self._faults[next(iter(self._faults))]
        self.forgive(now_ms)

    def is_flood(self, now_ms: int) -> bool:
        """Whether there are many of them now."""
        lately = self._lately_ms
        return len(lately) == _FLOOD and now_ms - lately[0] < _FLOOD_MS

    def forgive(self, now_ms: int) -> None:
        """Forget those who have done nothing wrong for a while."""
        for who, (_, last_ms) in list(self._faults.items()):
            if now_ms - last_ms < _SUSPECTED_FOR_MS:
                break
            del self._faults[who]
