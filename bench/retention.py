"""`python -m bench.retention`: does retention over very many segments keep clients waiting?

A broker runs on an event loop in this process, with one partition of `--segments` small segments,
all of which have become too old. A clock on the same loop ticks every millisecond while retention
raises the log start, drops the segments and has their files removed: how much later than due the
ticks come is what clients would feel. The same without retention is printed beside it, since the
machine itself is late sometimes.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.environment import processor_name
from bench.many_segments import write_directory
from strandline.broker.running import Broker
from strandline.broker.startup import start_broker
from strandline.config.load import load_broker_config
from strandline.storage.log import Log
from strandline.types import TopicPartition

SEGMENTS: Final = 10_000
TICK_S: Final = 0.001
QUIET_S: Final = 3.0
DAY_MS: Final = 86_400_000
PATIENCE_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Lateness:
    """How late ticks came, in milliseconds."""

    longest: float
    p99: float
    seconds: float


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    options = _parser().parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=options.directory, prefix="strandline-bench-") as where:
        data = Path(where) / "data"
        began = time.monotonic()
        write_directory(data, "old", options.segments, time.time_ns() // 1_000_000 - 30 * DAY_MS)
        print(f"{options.segments:,} segments made in {time.monotonic() - began:.1f} s")
        asyncio.run(_measure(data, options.segments))
    with open("/proc/cpuinfo", encoding="utf-8") as cpuinfo:
        print(f"on {os.cpu_count()} x {processor_name(cpuinfo.read())}")
    return 0


async def _measure(data: Path, segments: int) -> None:
    names = (
        f"log.dirs={data}",
        "listeners=PLAINTEXT://127.0.0.1:0",
        "offsets.topic.num.partitions=1",
        "log.retention.ms=-1",
        "log.retention.check.interval.ms=1000",
        "log.initial.task.delay.ms=0",
        "log.segment.delete.delay.ms=0",
    )
    began = time.monotonic()
    broker = await start_broker(load_broker_config(None, names).config)
    print(f"the broker started in {time.monotonic() - began:.2f} s")
    log = _log_of(broker)
    _print("nothing to do", await _lateness(_after(QUIET_S)))
    short = ("log.retention.hours=1", "log.segment.delete.delay.ms=0")
    log.update_config(load_broker_config(None, short).config.topic_defaults)
    dropped = await _lateness(lambda: len(log.segments) == 1)
    _print(f"dropping {segments:,} segments", dropped)
    removed = await _lateness(lambda: not log.segments.removals)
    _print(f"removing the files of {segments:,} segments", removed)
    await broker.stop()


def _log_of(broker: Broker) -> Log:
    for directory in broker.node.replicas.logs.directories:
        if TopicPartition("old", 0) in directory.logs:
            return directory.logs[TopicPartition("old", 0)]
    raise SystemExit("The broker has not adopted the log.")


def _after(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


async def _lateness(is_over: Callable[[], bool]) -> Lateness:
    """Tick until it is over."""
    late: list[float] = []
    began = time.monotonic()
    while not is_over():
        if time.monotonic() - began > PATIENCE_S:
            raise SystemExit("It does not come to an end.")
        due = time.monotonic() + TICK_S
        await asyncio.sleep(TICK_S)
        late.append((time.monotonic() - due) * 1000)
    seconds = time.monotonic() - began
    if len(late) < 2:
        return Lateness(max(late, default=0.0), max(late, default=0.0), seconds)
    return Lateness(max(late), statistics.quantiles(late, n=100)[98], seconds)


def _print(what: str, found: Lateness) -> None:
    print(
        f"{what}: {found.seconds:.1f} s; ticks late by {found.longest:.1f} ms at most, "
        f"p99 {found.p99:.1f} ms"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.retention", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--segments", type=int, default=SEGMENTS, help="how many (default: 10000)")
    parser.add_argument("--directory", type=Path, help="where to put the data (default: /tmp)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
