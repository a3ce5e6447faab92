"""The log end offset of a replica by time, back to its last truncation, election or loading.

Knows offsets and times, and no log.
"""

from __future__ import annotations

from bisect import bisect_right


class Growth:
    """Where a log ended at first and after each growth, and since when."""

    __slots__ = ("_ends", "_times_us")

    def __init__(self) -> None:
        self._ends: list[int] = []
        self._times_us: list[int] = []

    def begin(self, end: int, now_us: int) -> None:
        """Forget earlier ends: the replica was elected, or its log truncated or loaded."""
        self._ends, self._times_us = [end], [now_us]

    def note(self, end: int, now_us: int) -> None:
        """The log is longer than before."""
        if self._ends and end <= self._ends[-1]:
            self.begin(end, now_us)
            return
        self._ends.append(end)
        self._times_us.append(now_us)

    @property
    def begun_us(self) -> int:
        """Since when this is known; 0 if nothing is."""
        return self._times_us[0] if self._times_us else 0

    def longer_since_us(self, offset: int) -> int | None:
        """Since when the log was longer than `offset`; None: it is not, or that is not known."""
        index = bisect_right(self._ends, offset)
        return self._times_us[index] if index < len(self._ends) else None

    def appended(self, after_us: int, before_us: int) -> list[tuple[int, int]]:
        """The ends that it reached in that time, each with its time."""
        times = self._times_us
        start, stop = bisect_right(times, after_us), bisect_right(times, before_us)
        return list(zip(self._ends[start:stop], times[start:stop], strict=True))
