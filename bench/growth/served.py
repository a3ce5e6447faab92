"""Brokers to measure: each on an empty directory of its own, which goes with it."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.brokers import COMMON_SETTINGS, Launch, SocketBroker, StrandlineBroker
from bench.clusters import StrandlineCluster
from bench.growth.curve import Point
from bench.workloads import Setup

_PROCESS_CLOCK: Final = 2
"""Linux makes the number of a process's clock of its id and that (`man clock_getcpuclockid`)."""


@dataclass(frozen=True, slots=True)
class World:
    """How brokers are started, and where they write."""

    command: Sequence[str]
    where: Path
    setup: Setup

    @contextmanager
    def serving(
        self, settings: Mapping[str, str] | None = None, *, brokers: int = 1
    ) -> Iterator[SocketBroker]:
        """A broker that answers, or a cluster of three in one process."""
        directory = Path(tempfile.mkdtemp(dir=self.where, prefix="growth-"))
        own = {**COMMON_SETTINGS, **(settings or {})}
        launch = Launch(self.command, None, Path(), settings=own)
        kind = StrandlineBroker if brokers == 1 else StrandlineCluster
        broker = kind("strandline", directory / "broker", launch)
        broker.prepare()
        try:
            broker.start()
            yield broker
        finally:
            broker.stop()
            shutil.rmtree(directory, ignore_errors=True)

    def tell(self, what: str) -> None:
        """Show that something is done: the whole takes long."""
        print(f"measured: {what}", file=sys.stderr, flush=True)


def cpu_s(broker: SocketBroker) -> float:
    """Processor time of the broker, to the nanosecond: by its own clock, not in ticks."""
    return time.clock_gettime(~broker.pid << 3 | _PROCESS_CLOCK)


def busy_share(broker: SocketBroker, seconds: float) -> float:
    """Which share of one core it uses while it is left alone."""
    before, began = cpu_s(broker), time.monotonic()
    time.sleep(seconds)
    return (cpu_s(broker) - before) / (time.monotonic() - began)


def from_on(points: Sequence[Point], least: float) -> list[Point]:
    """Without those of less work, of which one piece cannot be told from the rest."""
    return [point for point in points if point.work >= least]


def steps(most: int, *, thirds: bool = False) -> list[int]:
    """1, 10, 100 … and `most`; with thirds also 3, 30, 300 …"""
    found, step = [], 1
    while step < most:
        found += [step, 3 * step] if thirds else [step]
        step *= 10
    return [*(each for each in found if each < most), most]
