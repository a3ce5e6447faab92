"""Wakes a coordinator, or a part of one, at its next deadline."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from strandline.node.timers import Timer, Timers
from strandline.types import Instant

log = logging.getLogger(__name__)

_RETRY_MS: Final = 1000


class DeadlineTimer:
    """One timer, which is set again after everything that its owner did."""

    def __init__(
        self,
        what: str,
        timers: Timers,
        next_deadline: Callable[[], int | None],
        tick: Callable[[Instant], None],
    ) -> None:
        """`what` the owner has, for the log of the node; `next_deadline` by the monotonic
        clock, in milliseconds; `tick` does what is due."""
        self._what = what
        self._timers = timers
        self._next_deadline = next_deadline
        self._tick = tick
        self._timer: Timer | None = None

    def set(self) -> None:
        """Wake the owner when it asks for it now; not at all if it asks for nothing."""
        deadline_ms = self._next_deadline()
        timer = self._timer
        if timer is not None and timer.callback is not None:
            if timer.at_ms == deadline_ms:
                return
            timer.cancel()
        self._timer = None
        if deadline_ms is not None:
            self._timer = self._timers.schedule(deadline_ms, self._due)

    def _due(self, now: Instant) -> None:
        try:
            self._tick(now)
        except Exception:
            # Else the owner would never be woken again.
            log.exception("The time of the %s could not be kept", self._what)
            self._timer = self._timers.schedule(now.monotonic_ms + _RETRY_MS, self._due)
