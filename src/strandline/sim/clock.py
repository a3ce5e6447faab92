"""The two clocks of one simulated machine, which need not agree with true time or with others.

    true time ──(rate: 1 + drift)──▶ monotonic ──(+ offset, jumps, its own drift)──▶ wall

The monotonic clock runs a little too fast or too slow, within bounds, and never goes back while the
machine has power. The wall clock runs with it, as clocks do that NTP slews together, and besides is
ahead or behind, can be set (by days), and can drift by itself (F-56..F-58).

Theory: between two changes of its rate a clock is a line, kept in millionths of a microsecond, so
that no rounding ever adds up. A reading is the line rounded down to a millisecond; `due_us` is the
exact inverse: the least true time at which the reading is reached. Times of processes are computed
from the present rate, so a caller that waits for one must look again when the rate has changed.

Knows the schedule's time and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from strandline.sim.schedule import Schedule
from strandline.types import Instant

WALL_MS: Final = 1_700_000_000_000
"""What a right wall clock shows when true time is 0 (November 2023)."""

DRIFT_PPM_MAX: Final = 50_000
"""Far beyond a bad quartz (100 ppm) or NTP's slewing (500 ppm): what a clock of a virtual machine
can do. Leases and sessions are not made for more."""

LEAP_MS: Final = 1000

_MILLION: Final = 1_000_000
_PER_MS: Final = 1000 * _MILLION


class NodeClock:
    """See the module. `now` is what a process on this machine reads."""

    __slots__ = (
        "_frozen",
        "_mono",
        "_mono_rate",
        "_origin_us",
        "_read",
        "_read_at_us",
        "_schedule",
        "_wall",
        "_wall_rate",
        "changed",
    )

    def __init__(
        self,
        schedule: Schedule,
        *,
        monotonic_ms: int | None = None,
        wall_offset_ms: int = 0,
        drift_ppm: int = 0,
    ) -> None:
        """`monotonic_ms` is what the monotonic clock shows now: as much as true time, unless told.
        The wall clock is ahead of the true one by `wall_offset_ms`."""
        self.changed: Callable[[], None] = _nobody
        """Called when a rate has changed: what `due_us` said before is no longer true."""
        self._schedule = schedule
        self._origin_us = now_us = schedule.now_us
        shown_us = now_us if monotonic_ms is None else monotonic_ms * 1000
        # What the clocks show at the origin, and how much they gain per microsecond after it.
        self._mono = shown_us * _MILLION
        self._wall = (WALL_MS + wall_offset_ms) * _PER_MS + now_us * _MILLION
        self._mono_rate = self._wall_rate = _rate(drift_ppm)
        self._frozen: int | None = None
        """What the monotonic clock shows while the machine is suspended."""
        self._read_at_us = -1
        self._read = Instant(0, 0)

    @property
    def now(self) -> Instant:
        """What the clocks show."""
        now_us = self._schedule.now_us
        if now_us != self._read_at_us:
            since_us = now_us - self._origin_us
            wall = self._wall + since_us * self._wall_rate
            self._read = Instant(
                (self._mono + since_us * self._mono_rate) // _PER_MS,
                wall // _PER_MS if wall > 0 else 0,
            )
            self._read_at_us = now_us
        return self._read

    def due_us(self, monotonic_ms: int) -> int:
        """The least true time, from now on, at which the monotonic clock shows at least that."""
        missing = monotonic_ms * _PER_MS - self._mono
        due_us = self._origin_us - (-missing // self._mono_rate)  # rounded up
        now_us = self._schedule.now_us
        return due_us if due_us > now_us else now_us

    # -- faults ------------------------------------------------------------------------------

    def jump_wall(self, ms: int) -> None:
        """Set the wall clock forward, or back (F-56, F-57). It never shows a time before 1970."""
        self._begin_line()
        self._wall = max(0, self._wall + ms * _PER_MS)

    def leap(self) -> None:
        """A leap second: the wall clock shows the last second once more."""
        self.jump_wall(-LEAP_MS)

    def drift(self, ppm: int) -> None:
        """From now on both clocks gain so much per million (F-58)."""
        self._begin_line()
        self._mono_rate = self._wall_rate = _rate(ppm)
        self.changed()

    def drift_wall(self, ppm: int) -> None:
        """From now on the wall clock gains so much per million on the monotonic one."""
        self._begin_line()
        _rate(ppm)
        self._wall_rate = self._mono_rate + ppm

    def heal(self, *, wall_offset_ms: int = 0) -> None:
        """Run true from now on, and set the wall clock right, or to its usual offset. The monotonic
        clock keeps what it gained or lost."""
        self._begin_line()
        self._wall = (WALL_MS + wall_offset_ms) * _PER_MS + self._origin_us * _MILLION
        self._mono_rate = self._wall_rate = _MILLION
        self.changed()

    def freeze(self) -> None:
        """The machine is suspended: its monotonic clock stands still, its wall clock does not."""
        self._begin_line()
        self._frozen = self._mono

    def thaw(self) -> None:
        """Let the clocks go on. No process has read them while they were frozen."""
        if self._frozen is None:
            return
        self._begin_line()
        self._mono, self._frozen = self._frozen, None
        self.changed()

    def reboot(self, monotonic_ms: int = 0) -> None:
        """The machine had no power: its monotonic clock begins anew. No process may have lived."""
        self._begin_line()
        self._mono = monotonic_ms * _PER_MS
        self._frozen = None
        self.changed()

    def _begin_line(self) -> None:
        """Make now the origin."""
        now_us = self._schedule.now_us
        since_us = now_us - self._origin_us
        self._mono += since_us * self._mono_rate
        self._wall += since_us * self._wall_rate
        self._origin_us = now_us
        self._read_at_us = -1


def _rate(ppm: int) -> int:
    if abs(ppm) > DRIFT_PPM_MAX:
        raise ValueError(f"A clock that drifts by {ppm} ppm: the bound is {DRIFT_PPM_MAX} ppm.")
    return _MILLION + ppm


def _nobody() -> None:
    """Who waits for nothing need not look again."""
