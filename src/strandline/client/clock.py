"""Time as a client needs it, behind one small protocol, so that retries can be tested."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What the client asks of time."""

    def monotonic_ms(self) -> int:
        """Milliseconds that never go back, for timeouts."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970 in UTC, for record timestamps."""

    def sleep_ms(self, duration_ms: int) -> None:
        """Wait."""


class SystemClock:
    """The machine's clocks."""

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def sleep_ms(self, duration_ms: int) -> None:
        time.sleep(duration_ms / 1000)
