"""Long work of the node, cut into turns: a generator that gives way after each bounded piece.

Nothing in the node may keep clients waiting. Work that grows with the number of segments or
partitions is therefore written as a generator; each `yield` ends the turn, and the work goes on in
a later one (`Timers.in_another_turn`). What it knew before may have changed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from typing import TypeAlias

from strandline.node.timers import Timers
from strandline.types import Instant

log = logging.getLogger(__name__)

Slices: TypeAlias = Generator[None, Instant, None]
"""Work in slices: it is sent the time at which each slice begins, the first one included."""


class SlicedWork:
    """One kind of work; a round begins only when the one before is over."""

    def __init__(self, name: str, timers: Timers, work: Callable[[], Slices]) -> None:
        """`work` makes the generator of one round, whose first `yield` is for the time."""
        self._name = name
        self._timers = timers
        self._work = work
        self._round: Slices | None = None

    def begin(self, now: Instant) -> None:
        """Do the first slice now, unless a round is under way."""
        if self._round is None:
            self._round = self._work()
            next(self._round)
            self._go_on(now)

    def _go_on(self, now: Instant) -> None:
        if self._round is None:
            return
        try:
            self._round.send(now)
        except StopIteration:
            self._round = None
        except Exception:
            # The boundary of periodic work: it comes again.
            log.exception("%s failed", self._name)
            self._round = None
        else:
            self._timers.in_another_turn(self._go_on, now)
