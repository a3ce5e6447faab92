"""Virtual time and ordered delivery, for a cluster that runs in one thread.

Whatever happens later is an entry in a heap, ordered by time and then by when it was planned. A
`Pipe` keeps the order of what goes through it, however long each item takes, and can be held: then
what arrives waits, and a test can let it through item by item.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Generic, TypeVar

from strandline.types import Instant

WALL_MS = 1_700_000_000_000

Item = TypeVar("Item")
Action = Callable[[], None]


class Schedule:
    """What is to happen, and the time."""

    def __init__(self) -> None:
        self.now_ms = 1_000
        self._heap: list[tuple[int, int, Action]] = []
        self._order = count()

    @property
    def now(self) -> Instant:
        return Instant(self.now_ms, WALL_MS + self.now_ms)

    def at(self, at_ms: int, action: Action) -> None:
        """Do it then."""
        heapq.heappush(self._heap, (max(at_ms, self.now_ms), next(self._order), action))

    def after(self, delay_ms: int, action: Action) -> None:
        """Do it later."""
        self.at(self.now_ms + delay_ms, action)

    @property
    def next_ms(self) -> int | None:
        """When the next thing happens."""
        return self._heap[0][0] if self._heap else None

    def step(self) -> None:
        """Let the next thing happen."""
        at_ms, _, action = heapq.heappop(self._heap)
        self.now_ms = at_ms
        action()

    def run_until(self, end_ms: int) -> None:
        """Let everything up to that time happen."""
        while self._heap and self._heap[0][0] <= end_ms:
            self.step()
        self.now_ms = end_ms


class Pipe(Generic[Item]):
    """Delivers items in their order, each after a delay."""

    def __init__(
        self, schedule: Schedule, delay_ms: Callable[[], int], deliver: Callable[[Item], None]
    ) -> None:
        self.is_held = False
        self._schedule = schedule
        self._delay_ms = delay_ms
        self._deliver = deliver
        self._items: deque[Item] = deque()
        self._arrived = 0
        self._last_ms = 0

    @property
    def waiting(self) -> int:
        """Items that have arrived and are held."""
        return self._arrived

    def send(self, item: Item) -> None:
        """Put an item on its way."""
        self._last_ms = max(self._last_ms, self._schedule.now_ms + self._delay_ms())
        items = self._items
        items.append(item)
        self._schedule.at(self._last_ms, lambda: self._arrive(items))

    def hold(self) -> None:
        """Deliver nothing for now."""
        self.is_held = True

    def release(self) -> None:
        """Deliver what has been held, and go on."""
        self.is_held = False
        self._flush()

    def let_through(self) -> None:
        """Deliver one held item."""
        self._arrived -= 1
        self._deliver(self._items.popleft())

    def change(self, change: Callable[[Item], Item]) -> bool:
        """Replace what has not been delivered; whether that made a difference."""
        before = list(self._items)
        for index, item in enumerate(before):
            if item is not None:
                self._items[index] = change(item)
        return list(self._items) != before

    def take(self) -> list[Item]:
        """Take everything out that has not been delivered."""
        items, self._items = self._items, deque()
        self._arrived = 0
        return list(items)

    def _arrive(self, items: deque[Item]) -> None:
        if items is not self._items:
            return  # it was taken out
        self._arrived += 1
        if not self.is_held:
            self._flush()

    def _flush(self) -> None:
        while self._arrived and not self.is_held:
            self.let_through()
