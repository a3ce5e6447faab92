"""Deadlines of one node: a heap of callbacks in the order of monotonic time.

Cancelled timers stay in the heap until their time comes or they outnumber the live ones; that
makes cancelling free, which matters because nearly every parked request is cancelled.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

from strandline.types import Instant

Callback = Callable[[Instant], None]

_SWEEP_AT_LEAST = 1024
_PAUSE_MS = 1


class Timer:
    """One scheduled callback; `cancel` makes it do nothing."""

    __slots__ = ("_timers", "at_ms", "callback")

    def __init__(self, timers: Timers, at_ms: int, callback: Callback) -> None:
        self._timers = timers
        self.at_ms = at_ms
        self.callback: Callback | None = callback

    def cancel(self) -> None:
        """Drop the callback. Idempotent."""
        if self.callback is not None:
            self.callback = None
            self._timers.note_cancelled()


class Timers:
    """All deadlines of a node. Equal deadlines run in the order in which they were made."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._numbers = count()
        self._cancelled = 0

    def __len__(self) -> int:
        return len(self._heap) - self._cancelled

    def schedule(self, at_ms: int, callback: Callback) -> Timer:
        """Run `callback` at the first turn whose monotonic time is `at_ms` or later."""
        timer = Timer(self, at_ms, callback)
        heapq.heappush(self._heap, (at_ms, next(self._numbers), timer))
        return timer

    def in_another_turn(self, callback: Callback, now: Instant) -> Timer:
        """Go on with long work in a later turn, a millisecond on, after whatever came meanwhile."""
        return self.schedule(now.monotonic_ms + _PAUSE_MS, callback)

    def next_deadline_ms(self) -> int | None:
        """Monotonic time in ms at which `run_due` next has something to do."""
        heap = self._heap
        while heap and heap[0][2].callback is None:
            heapq.heappop(heap)
            self._cancelled -= 1
        return heap[0][0] if heap else None

    def run_due(self, now: Instant) -> None:
        """Run every callback whose time has come. What these add waits for the next turn, so that
        no timer can keep the node from its other work."""
        first_added = next(self._numbers)
        added: list[tuple[int, int, Timer]] = []
        try:
            # A callback may cancel enough timers for a sweep, which makes a new heap.
            while self._heap and self._heap[0][0] <= now.monotonic_ms:
                entry = heapq.heappop(self._heap)
                if entry[1] > first_added:
                    added.append(entry)
                    continue
                timer = entry[2]
                callback = timer.callback
                if callback is None:
                    self._cancelled -= 1
                    continue
                timer.callback = None
                callback(now)
        finally:
            for entry in added:
                heapq.heappush(self._heap, entry)

    def note_cancelled(self) -> None:
        """Count a cancelled timer and sweep the heap once most of it is dead."""
        self._cancelled += 1
        if self._cancelled > _SWEEP_AT_LEAST and self._cancelled * 2 > len(self._heap):
            live = [entry for entry in self._heap if entry[2].callback is not None]
            # Others may be set aside by `run_due`.
            self._cancelled -= len(self._heap) - len(live)
            self._heap = live
            heapq.heapify(self._heap)
