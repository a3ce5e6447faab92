"""`python -m bench.stalls`: how long a broker's event loop is held, by what, under which load.

One broker in one process. For each load: the rounds of its loop as its status counts them, and the
longest without the time for which the loop's thread had no processor, with the function that held
it (`stall_sampler`). Loads are those of the benchmarks, and what happens now and then: topics
of a thousand partitions are made, checkpointed and deleted.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.brokers import COMMON_SETTINGS, Launch, SocketBroker, StrandlineBroker
from bench.catalogue import workloads
from bench.environment import describe
from bench.growth.partitions import create
from bench.native import build, default_cache
from bench.stall_sampler import STALL_MS
from bench.topics import Topics
from bench.workloads import FULL, QUICK, Setup
from strandline.client.cluster import ClusterClient
from strandline.client.inspection import answers_of, inspect_each
from strandline.client.settings import Address
from strandline.node.status.meters import BUCKETS_MS

LOADS: Final = (
    *("tiny-16x5", "tiny-100x1", "raw-64kb", "raw-1mb", "fetch-1kb", "fetch-64kb", "fetch-1mb"),
    *("latency-2k", "produce-100b-1mb-none", "consume-1kb-1mb-none", "txn-1", "txn-copy"),
)
PARTITIONS: Final = 1000
SHOWN: Final = 3
AFTERWARDS_S: Final = 6.0
"""Until files are removed (1 s) and what follows is over."""


@dataclass(frozen=True, slots=True)
class Stall:
    """One round of the loop that took long."""

    ms: float
    where: str


@dataclass(frozen=True, slots=True)
class Measured:
    """The rounds of a loop under one load. `stalls`: the long ones, without waiting."""

    load: str
    rounds: int
    buckets: Sequence[int]
    stalls: Sequence[Stall]

    def beyond(self, ms: int) -> int:
        """How many rounds took longer."""
        return sum(self.buckets[BUCKETS_MS.index(ms) + 1 :])


class Observed:
    """A broker and what is known of its loop."""

    def __init__(self, broker: SocketBroker, stalls: Path) -> None:
        self.broker = broker
        self._stalls = stalls
        self._read = 0
        self._buckets = self._rounds()

    def under(self, load: str, work: Callable[[], None]) -> Measured:
        """Do the work, and tell what came of it."""
        before = self._rounds()
        self._new_stalls()
        work()
        after = self._rounds()
        difference = [b - a for a, b in zip(before, after, strict=True)]
        return Measured(load, sum(difference), difference, self._new_stalls())

    def _rounds(self) -> list[int]:
        with ClusterClient((Address("127.0.0.1", self.broker.port),)) as client:
            (document,) = answers_of(inspect_each(client, "status", brief=True)).values()
        buckets: list[int] = document["event_loop"]["buckets"]
        return buckets

    def _new_stalls(self) -> list[Stall]:
        lines = self._stalls.read_text(encoding="utf-8").splitlines()
        new: list[dict[str, Any]] = [json.loads(line) for line in lines[self._read :]]
        self._read = len(lines)
        found = [Stall(each["ms"] - each["waited_ms"], each["where"]) for each in new]
        return sorted((each for each in found if each.ms > STALL_MS), key=lambda each: -each.ms)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    options = _parser().parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=options.data_dir, prefix="stalls-") as directory:
        stalls = Path(directory) / "stalls"
        stalls.touch()
        command = (sys.executable, "-m", "bench.stall_sampler", str(stalls), "serve")
        launch = Launch(command, None, Path(), settings=COMMON_SETTINGS)
        broker = StrandlineBroker("strandline", Path(directory) / "broker", launch)
        broker.prepare()
        setup = Setup(build(options.cache_dir), QUICK if options.quick else FULL)
        print(describe(options.data_dir, kafka_jars=None, java="java").line(), "\n")
        try:
            broker.start()
            observed = Observed(broker, stalls)
            found = [
                observed.under(load, work)
                for load, work in _works(broker, setup)
                if not options.only or load in options.only
            ]
        finally:
            broker.stop()
    print(report(found))
    return 0


def report(found: Sequence[Measured]) -> str:
    """The table, and what held the loop for how long."""
    lines = [
        "| load | rounds | over 5 ms | 10 ms | 25 ms | 50 ms | 5 ms without waiting | longest |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for each in found:
        beyond = (f"{each.beyond(ms):,}" for ms in (5, 10, 25, 50))
        longest = f"{each.stalls[0].ms:.0f} ms" if each.stalls else "-"
        cells = [each.load, f"{each.rounds:,}", *beyond, f"{len(each.stalls):,}", longest]
        lines.append(f"| {' | '.join(cells)} |")
    for each in found:
        shown: dict[str, list[float]] = {}
        for stall in each.stalls:
            shown.setdefault(stall.where, []).append(stall.ms)
        lines += ["", f"{each.load}:"] if shown else []
        lines += [
            f"    {len(times)} of up to {max(times):.0f} ms: {where}"
            for where, times in list(shown.items())[:SHOWN]
        ]
    return "\n".join(lines)


def _works(broker: SocketBroker, setup: Setup) -> list[tuple[str, Callable[[], None]]]:
    known = {each.name: each for each in workloads()}

    def of_benchmark(name: str) -> Callable[[], None]:
        def work() -> None:
            known[name].run(broker, name, setup)
            time.sleep(AFTERWARDS_S)

        return work

    def make_partitions() -> None:
        create(broker, PARTITIONS)
        time.sleep(AFTERWARDS_S)

    def delete_partitions() -> None:
        topics = Topics(broker.address)
        for first in range(0, PARTITIONS, 100):
            topics.delete(f"many-{first}")
        time.sleep(AFTERWARDS_S)

    return [
        *((name, of_benchmark(name)) for name in LOADS),
        (f"creation of {PARTITIONS:,} partitions", make_partitions),
        (f"deletion of {PARTITIONS:,} partitions", delete_partitions),
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.stalls", description=(__doc__ or "").split("\n")[0]
    )
    add = parser.add_argument
    add("--only", action="append", help="this load (repeat it)")
    add("--quick", action="store_true", help="short runs")
    add("--data-dir", type=Path, default=Path("/dev/shm"), help="where the broker writes")
    add("--cache-dir", type=Path, default=default_cache(), help="of compiled clients")
    return parser


if __name__ == "__main__":
    sys.exit(main())
