"""How long to wait before the next attempt: twice as long each time, with a drawn part.

Without the drawn part, clients that failed together would try again together for ever.
"""

from __future__ import annotations

from random import Random
from typing import Final

LEAST_US: Final = 50_000
MOST_US: Final = 1_000_000
_DOUBLINGS_MAX: Final = 10


class Backoff:
    """One thing that is tried until it works."""

    __slots__ = ("_failures", "_random")

    def __init__(self, random: Random) -> None:
        self._random = random
        self._failures = 0

    def next_us(self) -> int:
        """It failed (again): the pause before the next attempt."""
        wait_us = min(MOST_US, LEAST_US << min(self._failures, _DOUBLINGS_MAX))
        self._failures += 1
        return wait_us - self._random.randrange(wait_us // 2)

    def worked(self) -> None:
        """It worked: the next failure is the first one."""
        self._failures = 0
