"""Virtual time, and delivery in order.

Whatever happens later is an entry in one heap, ordered by time; entries of the same microsecond
come in an order that is drawn (or, without a generator, in the order in which they were planned).
A `Pipe` keeps the order of what goes through it, however long each item takes, and can be held:
then what arrives waits, and can be let through item by item.

This file knows no broker, and nothing that is not in the heap can happen.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from itertools import count
from random import Random
from typing import Final, Generic, TypeAlias, TypeVar

Item = TypeVar("Item")
Action: TypeAlias = Callable[[], None]

START_US: Final = 1_000_000
"""The time at which a run begins, in us. Not 0, which some code takes for "never"."""

_TIEBREAK_BITS: Final = 16


class Schedule:
    """What is to happen, and the time."""

    __slots__ = ("_draw", "_heap", "_order", "events", "now_us")

    def __init__(self, tiebreak: Random | None = None) -> None:
        """Without `tiebreak`, what is due at the same time happens in the order of planning."""
        self.now_us = START_US
        self.events = 0
        """Entries that have been delivered so far."""
        self._heap: list[tuple[int, int, int, Action]] = []
        self._order: Iterator[int] = count()
        self._draw = None if tiebreak is None else tiebreak.getrandbits

    @property
    def now_ms(self) -> int:
        """The time in whole milliseconds."""
        return self.now_us // 1000

    @property
    def next_us(self) -> int | None:
        """When the next thing happens; None when nothing ever will."""
        return self._heap[0][0] if self._heap else None

    def __len__(self) -> int:
        return len(self._heap)

    def at(self, at_us: int, action: Action) -> None:
        """Do it then, or now if that is past."""
        tiebreak = 0 if self._draw is None else self._draw(_TIEBREAK_BITS)
        now_us = self.now_us
        heapq.heappush(
            self._heap,
            (at_us if at_us > now_us else now_us, tiebreak, next(self._order), action),
        )

    def after(self, delay_us: int, action: Action) -> None:
        """Do it later."""
        self.at(self.now_us + delay_us, action)

    def clear(self) -> None:
        """Nothing that was planned will happen."""
        self._heap.clear()

    def step(self) -> None:
        """Let the next thing happen."""
        self.now_us, _, _, action = heapq.heappop(self._heap)
        self.events += 1
        action()

    def run_until(self, end_us: int) -> None:
        """Let everything up to that time happen."""
        heap, pop = self._heap, heapq.heappop
        while heap and heap[0][0] <= end_us:  # as `step`, for speed
            self.now_us, _, _, action = pop(heap)
            self.events += 1
            action()
        if end_us > self.now_us:
            self.now_us = end_us


class Pipe(Generic[Item]):
    """Delivers items in their order, each after a delay in microseconds."""

    __slots__ = ("_arrived", "_delay_us", "_deliver", "_items", "_last_us", "_schedule", "is_held")

    def __init__(
        self, schedule: Schedule, delay_us: Callable[[], int], deliver: Callable[[Item], None]
    ) -> None:
        self.is_held = False
        self._schedule = schedule
        self._delay_us = delay_us
        self._deliver = deliver
        self._items: deque[Item] = deque()
        self._arrived = 0
        self._last_us = 0

    def __len__(self) -> int:
        return len(self._items)

    @property
    def waiting(self) -> int:
        """Items that have arrived and are held."""
        return self._arrived

    def send(self, item: Item) -> None:
        """Put an item on its way."""
        at_us = self._schedule.now_us + self._delay_us()
        if at_us > self._last_us:
            self._last_us = at_us
        items = self._items
        items.append(item)
        self._schedule.at(self._last_us, lambda: self._arrive(items))

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
