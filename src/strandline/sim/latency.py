"""How long bytes take from one machine to another, and what TCP does about packets that get lost.

A `Path` is one direction between two ends; all connections between them share it. This file knows
times only. It knows neither connections nor what is in the bytes.

Theory. A packet takes the least time plus an exponential tail, sometimes a spike. A packet that is
lost costs time and nothing else: TCP sends it again, soon if later packets show the gap, else after
its retransmission time-out. Bytes leave one after the other at the bandwidth of the path.
Logarithms are taken once, for a table: so times do not hang on the last bit of a platform's `log`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log
from random import Random
from typing import Final, TypeAlias

from strandline.sim.plan import LatencySpec
from strandline.types import BrokerId

End: TypeAlias = BrokerId | str
"""A broker, or a client by its name."""

_TABLE_BITS: Final = 10
_TABLE_SIZE: Final = 1 << _TABLE_BITS
_SCALE: Final = 1 << 16
_EXPONENTIAL: Final = tuple(
    round(-log(1 - (step + 0.5) / _TABLE_SIZE) * _SCALE) for step in range(_TABLE_SIZE)
)
"""Quantiles of the exponential distribution with mean `_SCALE`."""

RETRANSMISSION_US: Final = 200_000
"""Linux's shortest retransmission time-out."""
BACKED_OFF_US: Final = 2_000_000
"""How late, at most, TCP notices that a path that was cut works again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tcp:
    """What the kernels and the cables of one run are like."""

    lost_per_mille: int = 0
    bytes_per_us: int = 1000
    window_bytes: int = 256 * 1024
    """Bytes on their way or unread per direction, above which a sender has to wait."""
    copied_slice_bytes: int = 16 * 1024
    """Log ranges up to this size are copied when they are sent; the driver's constant."""
    slow_pairs_per_mille: int = 0
    slow_factor: int = 10
    user_timeout_us: int = 30_000_000
    """A connection whose data is not acknowledged for so long is given up."""
    connect_timeout_us: int = 15_000_000

    @classmethod
    def draw(cls, random: Random) -> Tcp:
        """Those of a run. Each choice has the harmless value, too, so that runs differ in kind."""
        return cls(
            lost_per_mille=random.choice((0, 0, 1, 5, 20)),
            bytes_per_us=random.choice((1000, 1000, 100, 10, 2)),
            window_bytes=random.choice((256 * 1024, 256 * 1024, 64 * 1024, 8 * 1024)),
            copied_slice_bytes=random.choice((16 * 1024, 16 * 1024, 1024, 64)),
            slow_pairs_per_mille=random.choice((0, 0, 100, 300)),
            slow_factor=random.choice((2, 5, 10)),
            user_timeout_us=random.choice((6_000_000, 15_000_000, 60_000_000)),
            connect_timeout_us=random.choice((2_000_000, 8_000_000, 30_000_000)),
        )


class Path:
    """One direction between two ends: its delays, and whether anything comes through.

    `is_cut`: packets vanish. `is_dark`: the receiving machine has no power, with the same effect.
    `is_clogged`: packets wait, and come in a burst later. `is_stalled`: they arrive, but the
    receiver does not read them. Only the network sets these.
    """

    __slots__ = (
        "_bytes_per_us",
        "_free_at_us",
        "_latency",
        "_lost_per_mille",
        "_random",
        "_tail_us",
        "factor",
        "is_blocked",
        "is_clogged",
        "is_cut",
        "is_dark",
        "is_dead",
        "is_stalled",
        "lost",
        "own_factor",
        "source",
        "target",
    )

    def __init__(
        self, source: End, target: End, latency: LatencySpec, tcp: Tcp, random: Random
    ) -> None:
        self.source = source
        self.target = target
        self._latency = latency
        self._tail_us = max(0, latency.mean_us - latency.least_us)
        self._bytes_per_us = tcp.bytes_per_us
        self._lost_per_mille = tcp.lost_per_mille
        self._random = random
        self._free_at_us = 0
        is_slow = random.randrange(1000) < tcp.slow_pairs_per_mille
        self.own_factor = tcp.slow_factor if is_slow else 1
        """How many times longer everything takes when nothing is wrong."""
        self.factor = self.own_factor
        self.lost = 0
        """Packets that had to be sent again so far."""
        self.is_cut = self.is_dark = self.is_clogged = self.is_stalled = False
        self.is_dead = self.is_blocked = False

    def refresh(self) -> None:
        """Derive `is_dead` and `is_blocked` after a flag was set."""
        self.is_dead = self.is_cut or self.is_dark
        self.is_blocked = self.is_dead or self.is_clogged

    def calm(self) -> None:
        """From now on nothing is lost, nothing is slow by nature, and there are no spikes."""
        self._latency = replace(self._latency, spikes_per_mille=0)
        self._lost_per_mille = 0
        self.own_factor = self.factor = 1
        self.clear()

    def clear(self) -> None:
        """What is sent now does not wait behind what was sent while everything took longer."""
        self._free_at_us = 0

    def arrival_us(self, now_us: int, size: int) -> int:
        """When so many bytes, sent now, will be on the other side."""
        bits = self._random.getrandbits
        latency = self._latency
        delay_us = latency.least_us + (self._tail_us * _EXPONENTIAL[bits(_TABLE_BITS)] >> 16)
        if latency.spikes_per_mille and bits(10) * 1000 >> 10 < latency.spikes_per_mille:
            delay_us += self._random.randrange(latency.spike_us + 1)
        delay_us *= self.factor
        if self._lost_per_mille and bits(10) * 1000 >> 10 < self._lost_per_mille:
            self.lost += 1
            delay_us += RETRANSMISSION_US if bits(1) else 2 * latency.mean_us * self.factor
        began_us = self._free_at_us if self._free_at_us > now_us else now_us
        self._free_at_us = gone_us = began_us + size * self.factor // self._bytes_per_us
        return gone_us + delay_us

    def retransmission_us(self) -> int:
        """How long after the end of a cut a packet that was lost in it is sent again."""
        return self._random.randrange(BACKED_OFF_US)

    def draw(self, below: int) -> int:
        """Another number of this path's stream."""
        return self._random.randrange(below)
