"""How long to wait before the next attempt: twice as long each time, with a drawn part.

Without the drawn part, clients that failed together would try again together for ever. The drawn
part is Kafka's (`ExponentialBackoff`): a fifth more or less. This file has no clock.
"""

from __future__ import annotations

from random import Random
from typing import Final

RETRY_BACKOFF_MS: Final = 100
RETRY_BACKOFF_MAX_MS: Final = 1000
"""What `ClientSettings` says unless told otherwise, as in Kafka's clients."""
_JITTER: Final = 0.2
_DOUBLINGS_MAX: Final = 20
"""Beyond these any limit is reached; the numbers need not grow on."""


class ExponentialBackoff:
    """The waits of one thing that is tried until it works, in milliseconds."""

    __slots__ = ("_failures", "_least_ms", "_most_ms", "_random")

    def __init__(
        self,
        random: Random,
        least_ms: int = RETRY_BACKOFF_MS,
        most_ms: int = RETRY_BACKOFF_MAX_MS,
    ) -> None:
        self._random = random
        self._least_ms = least_ms
        self._most_ms = most_ms
        self._failures = 0

    def next_ms(self) -> int:
        """It failed (again): the wait before the next attempt."""
        self._failures += 1
        wait_ms = doubled_ms(self._failures, least_ms=self._least_ms, most_ms=self._most_ms)
        return int(wait_ms * (1 + self._random.uniform(-_JITTER, _JITTER)))

    def reset(self) -> None:
        """It worked: the next failure is the first one."""
        self._failures = 0


def doubled_ms(failures: int, *, least_ms: int, most_ms: int) -> int:
    """The wait after so many failures in a row, without a drawn part; 0 after none."""
    if not failures:
        return 0
    return min(least_ms << min(failures - 1, _DOUBLINGS_MAX), most_ms)
