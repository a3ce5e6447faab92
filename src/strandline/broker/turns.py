"""The turns of one node on the event loop: when it is asked what came of all that it was given.

    begin ── frames are handed on ──> end        at once while little is going on
                                  └─> the round  else together with what follows in it
    tell ── an event from elsewhere ─────────────> the next round
    alarm ── a deadline of the node ─────────────> a round of its own

A turn ends with `Node.finish_turn`, whose effects are carried out in their order: the answers of a
round leave with one system call per connection. This file knows time and the loop; it must not know
sockets, nor what an effect is.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from strandline.node.effects import Effect
from strandline.node.node import Node
from strandline.types import Instant

log = logging.getLogger(__name__)

_LULL_NS: Final = 30_000
"""Input that comes within this time of the last turn is handled together with what follows it."""


def read_clock() -> Instant:
    """The present, from the machine's clocks."""
    return Instant(time.monotonic_ns() // 1_000_000, time.time_ns() // 1_000_000)


class Turns:
    """See the module. Made on the event loop that it belongs to."""

    def __init__(self, node: Node, carry_out: Callable[[Effect], None]) -> None:
        self.now = read_clock()
        """When the last turn, or the input for one, began."""
        self.is_paused = False
        self.is_stopped = False
        self.after: Callable[[], None] | None = None
        """For faults: called when the effects of a turn are carried out."""
        self._node = node
        self._carry_out = carry_out
        self._loop = asyncio.get_running_loop()
        self._turn: asyncio.Handle | None = None
        self._ended_ns = 0
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_ms = 0
        self._held: list[Callable[[Instant], None]] = []
        """Events that came during a pause."""

    def tick(self) -> Instant:
        """The present."""
        self.now = read_clock()
        return self.now

    def begin(self) -> Instant:
        """Something has come in; what comes of it leaves at the end of the round."""
        if self._turn is None:
            self.tick()
            if time.monotonic_ns() - self._ended_ns < _LULL_NS:
                self.end_soon()
        return self.now

    def end(self) -> None:
        """End the turn at once if nothing else is going on: it saves a round of the loop."""
        if self._turn is None:
            self.finish()

    def end_soon(self) -> None:
        """End the turn with the round of the loop: effects may be under way now."""
        if self._turn is None and not self.is_stopped and not self.is_paused:
            self._turn = self._loop.call_soon(self.finish)

    def end_now(self) -> None:
        """What has come in is not to wait for what comes in later."""
        if self._turn is not None:
            self._turn.cancel()
            self.finish()

    def finish(self) -> None:
        """Have the node finish its turn, and carry out what it wants."""
        self._turn = None
        if self.is_stopped:
            return
        try:
            effects = self._node.finish_turn(self.tick())
        except Exception:
            # A bug of ours. What was collected leaves with the next turn, which the alarm brings.
            log.exception("A turn failed")
            effects = []
        for effect in effects:
            try:
                self._carry_out(effect)
            except Exception:
                # The effects behind it belong to others.
                log.exception("%s could not be carried out", type(effect).__name__)
        self._set_alarm()
        self._ended_ns = time.monotonic_ns()
        if self.after is not None:
            self.after()

    def tell(self, event: Callable[[Instant], None]) -> None:
        """Hand an event to the node, now or when it goes on."""
        if self.is_stopped:
            return
        if self.is_paused:
            self._held.append(event)
            return
        try:
            event(self.tick())
        except Exception:
            log.exception("An event could not be handled")
        self.end_soon()

    def pause(self) -> None:
        """No turns, and no events, until `resume`."""
        self.is_paused = True
        self._cancel()

    def resume(self) -> None:
        """Go on: with the events that came meanwhile. Timers that are overdue ring late."""
        self.is_paused = False
        held, self._held = self._held, []
        for event in held:
            self.tell(event)
        self.end_soon()

    def stop(self) -> None:
        """No turns any more. Idempotent."""
        self.is_stopped = True
        self._cancel()

    def _cancel(self) -> None:
        for handle in (self._alarm, self._turn):
            if handle is not None:
                handle.cancel()
        self._alarm = self._turn = None

    def _set_alarm(self) -> None:
        deadline_ms = self._node.next_deadline_ms()
        if deadline_ms is None:
            return
        if self._alarm is not None:
            # An alarm that rings early is cheaper than setting a new one in every turn.
            if self._alarm_ms <= deadline_ms:
                return
            self._alarm.cancel()
        self._alarm_ms = deadline_ms
        delay_ms = max(0, deadline_ms - self.now.monotonic_ms)
        self._alarm = self._loop.call_later(delay_ms / 1000, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self.end_soon()
