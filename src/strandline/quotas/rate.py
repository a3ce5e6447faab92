"""How much of something there was lately, per second, and how long it must rest.

The rate is that of a sliding window of samples (`quota.window.num` of
`quota.window.size.seconds`), the newest of which is not complete. A client that is beyond its limit
waits until the window's rate would be the limit again: with `excess` above `limit` in a window of
`w` milliseconds that is `w * excess / limit`.

Source: `org.apache.kafka.common.metrics.stats.Rate`, `org.apache.kafka.server.quota.QuotaUtils`.
"""

from __future__ import annotations

from collections import deque

from strandline.quotas.waits import wait_ms


class Rate:
    """Amounts by the time at which they were noted. Time is monotonic milliseconds."""

    __slots__ = ("_samples", "_window_ms", "_windows")

    def __init__(self, windows: int, window_ms: int) -> None:
        self._windows = windows
        self._window_ms = window_ms
        self._samples: deque[tuple[int, float]] = deque()
        """When each sample began, and its amount."""

    def note(self, amount: float, now_ms: int) -> None:
        """That much was used."""
        samples = self._samples
        if samples and now_ms - samples[-1][0] < self._window_ms:
            began_ms, before = samples[-1]
            samples[-1] = (began_ms, before + amount)
        else:
            samples.append((now_ms, amount))

    def throttle_ms(self, limit: float, now_ms: int, more: float = 0) -> int:
        """How long to wait; 0 within the limit. `more` is about to be used."""
        self._drop_old(now_ms)
        if not self._samples:
            return 0
        window_ms = self._measured_ms(now_ms)
        rate = (sum(amount for _, amount in self._samples) + more) * 1000 / window_ms
        if rate <= limit:
            return 0
        return wait_ms(rate - limit, limit, window_ms)

    def is_idle(self, now_ms: int) -> bool:
        """Whether nothing is remembered any more."""
        self._drop_old(now_ms)
        return not self._samples

    def _drop_old(self, now_ms: int) -> None:
        oldest_ms = now_ms - self._windows * self._window_ms
        while self._samples and self._samples[0][0] <= oldest_ms:
            self._samples.popleft()

    def _measured_ms(self, now_ms: int) -> int:
        """The time since the oldest sample, but at least all windows without the newest: the first
        bytes of a client are no burst."""
        elapsed_ms = now_ms - self._samples[0][0]
        missing = self._windows - 1 - elapsed_ms // self._window_ms
        return max(elapsed_ms + max(0, missing) * self._window_ms, self._window_ms)
