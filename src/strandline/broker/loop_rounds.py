"""How long the rounds of an event loop take.

A round is what the loop does between two looks at its sockets: it calls whatever is ready. Nothing
else is served meanwhile, so a long round is a stall for all clients of all brokers of the process.
Kafka has threads instead, and says how idle they are (`NetworkProcessorAvgIdlePercent`).
"""

from __future__ import annotations

import time
from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from strandline.node.status.meters import BUCKETS_MS

if TYPE_CHECKING:
    from strandline.node.status.broker_document import EventLoop

_BOUNDS_NS: Final = tuple(milliseconds * 1_000_000 for milliseconds in BUCKETS_MS)
_SHORT_NS: Final = _BOUNDS_NS[0]


class LoopRounds:
    """See the module.

    - `since_ns`: since when a round is under way (`time.monotonic_ns`); 0 between two.
    """

    __slots__ = ("_busy_ns", "_count", "_longer", "_longest_ns", "_longest_wall_ms", "since_ns")

    def __init__(self) -> None:
        self._count = 0
        self._busy_ns = 0
        self._longer = [0] * len(BUCKETS_MS)
        """Rounds beyond the first bound, by the bucket that they belong to."""
        self._longest_ns = 0
        self._longest_wall_ms: int | None = None
        self.since_ns = 0
        self.begin()

    def begin(self) -> None:
        """The loop has looked at its sockets."""
        self.since_ns = time.monotonic_ns()

    def end(self) -> None:
        """It is about to look again."""
        took_ns = time.monotonic_ns() - self.since_ns
        self.since_ns = 0
        self._count += 1
        self._busy_ns += took_ns
        if took_ns > _SHORT_NS:
            self._longer[bisect_left(_BOUNDS_NS, took_ns) - 1] += 1
            if took_ns > self._longest_ns:
                self._longest_ns = took_ns
                self._longest_wall_ms = time.time_ns() // 1_000_000

    @property
    def use(self) -> EventLoop:
        """The rounds until now, without the one under way."""
        # A broker starts without the document, which is asked for later, if at all.
        from strandline.node.status.broker_document import EventLoop

        return EventLoop(
            rounds=self._count,
            busy_ms=self._busy_ns // 1_000_000,
            buckets=[self._count - sum(self._longer), *self._longer],
            longest_ms=-(-self._longest_ns // 1_000_000),
            longest_wall_ms=self._longest_wall_ms,
        )
