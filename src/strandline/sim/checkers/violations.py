"""A violation that a checker found, and the collection of them, one for each cause.

One broken rule usually shows in many events that follow; only the first of them says anything. So
a violation is recorded once per invariant and partition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken invariant: which, what was seen (names, offsets, epochs), when, and where."""

    invariant: str
    what: str
    at_us: int
    partition: str | None = None

    def __str__(self) -> str:
        return f"{self.invariant}: {self.what}"


class Findings:
    """The violations of one run. `counters` counts what was checked."""

    def __init__(self, now_us: Callable[[], int], note: Callable[[str], None]) -> None:
        """`note` is called with each violation, which so stands among the events of the world."""
        self.violations: list[Violation] = []
        self.counters: Counter[str] = Counter()
        self._now_us = now_us
        self._note = note
        self._known: set[tuple[str, str | None]] = set()

    def add(self, invariant: str, what: str, partition: object = None) -> None:
        """Write a violation down, unless this invariant was already broken there."""
        where = None if partition is None else str(partition)
        if (invariant, where) in self._known:
            return
        self._known.add((invariant, where))
        self.violations.append(Violation(invariant, what, self._now_us(), where))
        self._note(f"! {invariant}: {what}")
