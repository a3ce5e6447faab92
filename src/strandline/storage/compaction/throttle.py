"""Holding compaction down to `log.cleaner.io.max.bytes.per.second`.

This file knows how long to wait; it must not know how waiting is done, nor what time it is. One
throttle is for all cleaners of a broker together, as in Kafka. Reading and writing both count.
"""

from __future__ import annotations


class Throttle:
    """Allows so many bytes a second, on average since it last had nothing to hold back."""

    def __init__(self, bytes_per_second: float) -> None:
        self._bytes_per_ms = bytes_per_second / 1000
        self._paid_to_ms = 0.0
        """Until then the bytes that were spent use up the allowance."""

    def delay_ms(self, byte_count: int, now_ms: int) -> int:
        """Spend bytes at `now_ms`, of a clock that never goes back; how long to wait after it."""
        # An idle time earns nothing: the disk is to be spared from bursts.
        self._paid_to_ms = max(self._paid_to_ms, now_ms) + byte_count / self._bytes_per_ms
        return int(self._paid_to_ms - now_ms)
