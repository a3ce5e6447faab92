"""A bucket of tokens: what may be done in a burst, and how long one that took too much waits.

It holds what the limit lets through in all windows together, and is full at first. Taking may
leave it below zero; then nothing more is to be taken until it has filled up again.

Source: `org.apache.kafka.common.metrics.stats.TokenBucket` (KIP-599).
"""

from __future__ import annotations

from strandline.quotas.waits import wait_ms


class Bucket:
    """Tokens by the time. Time is monotonic milliseconds."""

    __slots__ = ("_burst_s", "_filled_ms", "_limit", "_tokens")

    def __init__(self, burst_s: float) -> None:
        """It holds the tokens of so many seconds."""
        self._burst_s = burst_s
        self._tokens = float("inf")
        self._limit = 0.0
        self._filled_ms = 0

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """How long to wait before more is taken, at `limit` tokens a second."""
        self._fill(limit, now_ms)
        return 0 if self._tokens >= 0 else wait_ms(-self._tokens, limit, 1000)

    def take(self, amount: float, limit: float, now_ms: int) -> None:
        """Take so many tokens, whether or not they are there."""
        self._fill(limit, now_ms)
        self._tokens -= amount

    def is_idle(self, now_ms: int) -> bool:
        """Whether it is full: nothing is remembered any more."""
        self._fill(self._limit, now_ms)
        return self._tokens >= self._limit * self._burst_s

    def _fill(self, limit: float, now_ms: int) -> None:
        passed_s = max(0, now_ms - self._filled_ms) / 1000
        self._tokens = min(self._tokens + passed_s * limit, limit * self._burst_s)
        self._filled_ms = max(now_ms, self._filled_ms)
        self._limit = limit
