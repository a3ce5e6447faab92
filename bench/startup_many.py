"""`python -m bench.startup_many`: how long a start takes with very many segments or partitions.

Strandline and Kafka, in turns, each with a directory that it closed cleanly: one with a partition
of `--segments` small segments, one with a topic of `--partitions` partitions. A start ends with the
first answer to a client. Each broker makes its own topics; the segments are then put into the one
partition while it is stopped, the same files for both.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.brokers import KafkaBroker, Launch, SocketBroker, StrandlineBroker
from bench.environment import processor_name
from bench.kafka_jars import kafka_jars
from bench.many_segments import write_directory
from bench.native import default_cache
from bench.topics import Topics

SEGMENTS: Final = 10_000
PARTITIONS: Final = 1000
ROUNDS: Final = 3
SEGMENT_FILES: Final = (".log", ".index", ".timeindex", ".snapshot")
CHECKPOINT: Final = "recovery-point-offset-checkpoint"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    options = _parser().parse_args(arguments)
    jars = kafka_jars(options.cache)
    launch = Launch((sys.executable, "-m", "strandline.cli", "serve"), jars, Path("unused"))
    with tempfile.TemporaryDirectory(dir=options.directory, prefix="strandline-bench-") as where:
        made = Path(where) / "made"
        write_directory(made, "long", options.segments, time.time_ns() // 1_000_000)
        for what in ("segments", "partitions"):
            brokers: list[SocketBroker] = [
                StrandlineBroker("strandline", Path(where) / f"{what}-strandline", launch),
                KafkaBroker("kafka", Path(where) / f"{what}-kafka", launch),
            ]
            count = options.segments if what == "segments" else options.partitions
            taken = _measure(brokers, what, count, made, options.rounds)
            print(_line(f"{count:,} {what}", taken))
    with open("/proc/cpuinfo", encoding="utf-8") as cpuinfo:
        print(f"on {os.cpu_count()} x {processor_name(cpuinfo.read())}; {options.rounds} rounds")
    return 0


def _measure(
    brokers: Sequence[SocketBroker], what: str, count: int, made: Path, rounds: int
) -> dict[str, list[float]]:
    """Seconds of each start, by broker."""
    taken: dict[str, list[float]] = {broker.label: [] for broker in brokers}
    for broker in brokers:
        broker.prepare()
        broker.start()
        try:
            topics = Topics(f"127.0.0.1:{broker.port}")
            partitions = 1 if what == "segments" else count
            topics.create("long", partitions, leader_port=broker.port, replicas=1)
        finally:
            broker.end()
        if what == "segments":
            put_in(made, broker.directory / "data", count)
    for _ in range(rounds):
        for broker in brokers:
            taken[broker.label].append(broker.start().seconds)
            broker.end()
    return taken


def put_in(made: Path, data: Path, segments: int) -> None:
    """Give the broker's partition the segments, and its checkpoint the offset of their end."""
    source, target = made / "long-0", data / "long-0"
    for each in target.iterdir():
        if each.name.endswith(SEGMENT_FILES):
            each.unlink()
    for each in source.iterdir():
        if each.name.endswith(SEGMENT_FILES):
            shutil.copyfile(each, target / each.name)
    shutil.copyfile(source / "leader-epoch-checkpoint", target / "leader-epoch-checkpoint")
    lines = (data / CHECKPOINT).read_text().splitlines()
    changed = [f"long 0 {segments}" if line.startswith("long 0 ") else line for line in lines]
    (data / CHECKPOINT).write_text("\n".join(changed) + "\n")


def _line(what: str, taken: dict[str, list[float]]) -> str:
    medians = {label: statistics.median(seconds) for label, seconds in taken.items()}
    shown = ", ".join(
        f"{label} {medians[label]:.2f} s ({min(seconds):.2f}-{max(seconds):.2f})"
        for label, seconds in taken.items()
    )
    return f"{what}: {shown}; ratio {medians['strandline'] / medians['kafka']:.2f}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.startup_many", description=(__doc__ or "").split("\n")[0]
    )
    add = parser.add_argument
    add("--segments", type=int, default=SEGMENTS, help="of one partition (default: 10000)")
    add("--partitions", type=int, default=PARTITIONS, help="of one topic (default: 1000)")
    add("--rounds", type=int, default=ROUNDS, help="starts of each broker (default: 3)")
    add("--directory", type=Path, help="where to put the data (default: /tmp)")
    add("--cache", type=Path, default=default_cache(), help="of jars")
    return parser


if __name__ == "__main__":
    sys.exit(main())
