"""Keyed timers: what is to happen when, unless it is put off or called off before.

Knows nothing of groups. A heartbeat puts a timer off, which is by far the most frequent operation:
it changes one entry of a table and leaves the heap alone. An entry of the heap that says too early
a time is corrected when it comes to the top, and one whose timer is gone is dropped then, or when
those outnumber the others.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass

from strandline.types import Instant

Action = Callable[[Instant], None]

_SWEEP_AT_LEAST = 1024


@dataclass(slots=True)
class _Timer:
    deadline_ms: int
    action: Action
    queued_ms: int
    """The time of this timer's newest heap entry; never later than `deadline_ms`."""


class Timers:
    """Actions by key, each with a deadline on the monotonic clock."""

    def __init__(self) -> None:
        self._timers: dict[Hashable, _Timer] = {}
        self._heap: list[tuple[int, int, Hashable]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._timers)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._timers

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self._timers)

    def schedule(self, key: Hashable, deadline_ms: int, action: Action) -> None:
        """Do `action` at `deadline_ms`; replaces what was scheduled under the same key."""
        timer = self._timers.get(key)
        if timer is not None and timer.queued_ms <= deadline_ms:
            timer.deadline_ms = deadline_ms
            timer.action = action
            return
        self._timers[key] = _Timer(deadline_ms, action, deadline_ms)
        self._push(deadline_ms, key)

    def cancel(self, key: Hashable) -> None:
        """Call it off, if it is there."""
        self._timers.pop(key, None)

    def next_deadline(self) -> int | None:
        """When the next timer is due, or None if there is none."""
        self._settle_top()
        return self._heap[0][0] if self._heap else None

    def fire_first(self, now: Instant) -> None:
        """Do what was due first, if anything is due."""
        deadline_ms = self.next_deadline()
        if deadline_ms is not None and deadline_ms <= now.monotonic_ms:
            _, _, key = heapq.heappop(self._heap)
            self._timers.pop(key).action(now)

    def _settle_top(self) -> None:
        """Drop or correct stale entries until the top of the heap tells the truth."""
        while self._heap:
            queued_ms, _, key = self._heap[0]
            timer = self._timers.get(key)
            if timer is not None and timer.queued_ms == queued_ms == timer.deadline_ms:
                return
            heapq.heappop(self._heap)
            if timer is not None and timer.queued_ms == queued_ms:
                timer.queued_ms = timer.deadline_ms
                self._push(timer.deadline_ms, key)

    def _push(self, deadline_ms: int, key: Hashable) -> None:
        self._count += 1  # keeps equal deadlines in the order in which they were set
        heapq.heappush(self._heap, (deadline_ms, self._count, key))
        if len(self._heap) > _SWEEP_AT_LEAST and len(self._heap) > 2 * len(self._timers):
            self._sweep()

    def _sweep(self) -> None:
        """Drop the entries of timers that are gone, which may not come to the top for long."""
        live: dict[Hashable, tuple[int, int, Hashable]] = {}
        for entry in sorted(self._heap):
            timer = self._timers.get(entry[2])
            if timer is not None and timer.queued_ms == entry[0]:
                live.setdefault(entry[2], entry)
        self._heap = list(live.values())  # in order, which makes it a heap
