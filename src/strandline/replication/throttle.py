"""A limit for replication bandwidth: how much was moved lately, and when more may be.

This file knows a moving average over a few samples, as Kafka's replication quotas have
(`leader.replication.throttled.rate`, KIP-73). It must not know partitions: which traffic counts is
the caller's business. Traffic is recorded after it happened, so a limit can be exceeded by one
answer; then there is a pause until the average is below it again.
"""

from __future__ import annotations

from collections import deque
from typing import Final

SAMPLES_DEFAULT: Final = 11
SAMPLE_MS_DEFAULT: Final = 1000


class Throttle:
    """`rate_bytes_per_s` is the limit, None for none; it may be set at any time."""

    __slots__ = ("_sample_ms", "_samples", "_total", "_window_ms", "rate_bytes_per_s")

    def __init__(
        self,
        rate_bytes_per_s: int | None,
        *,
        samples: int = SAMPLES_DEFAULT,
        sample_ms: int = SAMPLE_MS_DEFAULT,
    ) -> None:
        """The average is over the last `samples` intervals of `sample_ms`."""
        self.rate_bytes_per_s = rate_bytes_per_s
        self._window_ms = samples * sample_ms
        self._sample_ms = sample_ms
        self._samples: deque[list[int]] = deque()
        self._total = 0

    def record(self, size_bytes: int, now_ms: int) -> None:
        """Count traffic that has happened."""
        self._forget(now_ms)
        start_ms = now_ms - now_ms % self._sample_ms
        if self._samples and self._samples[-1][0] >= start_ms:
            self._samples[-1][1] += size_bytes
        else:
            self._samples.append([start_ms, size_bytes])
        self._total += size_bytes

    def is_exceeded(self, now_ms: int) -> bool:
        """Whether throttled traffic has to wait."""
        return self.delay_ms(now_ms) > 0

    def delay_ms(self, now_ms: int) -> int:
        """How long it has to wait, if nothing else is recorded until then; 0 if it need not."""
        rate = self.rate_bytes_per_s
        if rate is None:
            return 0
        self._forget(now_ms)
        earliest_ms = now_ms
        total = self._total
        for start_ms, size_bytes in self._samples:
            # While this sample is the oldest one, the average falls with the time since its start.
            if total * 1000 <= rate * self._sample_ms:
                break
            expires_at_ms = start_ms + self._window_ms
            enough_at_ms = start_ms - (-total * 1000 // rate) if rate else expires_at_ms
            if enough_at_ms < expires_at_ms:
                return max(earliest_ms, enough_at_ms) - now_ms
            earliest_ms = expires_at_ms
            total -= size_bytes
        return earliest_ms - now_ms

    def _forget(self, now_ms: int) -> None:
        horizon_ms = now_ms - self._window_ms
        while self._samples and self._samples[0][0] <= horizon_ms:
            self._total -= self._samples.popleft()[1]
