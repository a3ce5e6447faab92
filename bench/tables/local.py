"""Rows per second on one machine, of each way, and as a topic has more partitions."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from bench.tables.world import Bench, spread
from strandline.testing import Cluster

PARTITIONS: Final = (1, 4, 16, 64)
OURS: Final = "strandline to Delta"

Way = Callable[[str], None]
"""From a topic to a table."""


def throughput(
    bench: Bench, cluster: Cluster, jars: Mapping[str, Sequence[Path]], rounds: int
) -> str:
    """Rows and bytes per second of each way, and the ratios of ours to the others."""
    cluster.create_topic("rows", 4, 1)
    bench.fill("rows", 4, bench.records)
    took = in_turns(_ways(bench, jars), "rows", rounds)
    ours = statistics.median(took[OURS])
    lines = [
        "",
        "| way | s | rows/s | MB/s | ours is so many times as fast |",
        "|---|---|---|---|---|",
    ]
    for name, seconds in took.items():
        middle = statistics.median(seconds)
        lines.append(
            f"| {name} | {spread(seconds)} | {bench.records / middle:,.0f} "
            f"| {bench.bytes['rows'] / middle / 1e6:,.1f} | {middle / ours:.2f} |"
        )
    return "\n".join(lines)


def in_turns(ways: Mapping[str, Way], topic: str, rounds: int) -> dict[str, list[float]]:
    """The seconds of each way in each round, after a round that warms up."""
    took: dict[str, list[float]] = {name: [] for name in ways}
    names = list(ways)
    for round_ in range(rounds + 1):
        first = round_ % len(names)
        for name in names[first:] + names[:first]:
            began = time.monotonic()
            ways[name](topic)
            run_s = time.monotonic() - began
            print(f"  round {round_} {name}: {run_s:.1f} s", file=sys.stderr, flush=True)
            if round_:
                took[name].append(run_s)
    return took


def by_partitions(bench: Bench, cluster: Cluster, rounds: int) -> str:
    """The same records in more and more partitions."""
    records = max(1, bench.records // 4)
    took: dict[int, list[float]] = {each: [] for each in PARTITIONS}
    for partitions in PARTITIONS:
        cluster.create_topic(f"wide-{partitions}", partitions, 1)
        bench.fill(f"wide-{partitions}", partitions, records)
    for _ in range(rounds):
        for partitions in PARTITIONS:
            began = time.monotonic()
            bench.ours(f"wide-{partitions}")
            took[partitions].append(time.monotonic() - began)
    middles = {partitions: statistics.median(seconds) for partitions, seconds in took.items()}
    rows = [
        f"| {partitions} | {middle:.1f} | {middle / middles[1]:.2f} |"
        for partitions, middle in middles.items()
    ]
    head = ["", f"| partitions ({records:,} records) | s | of one |", "|---|---|---|"]
    return "\n".join([*head, *rows])


def _ways(bench: Bench, jars: Mapping[str, Sequence[Path]]) -> dict[str, Way]:
    ways: dict[str, Way] = {OURS: bench.ours}
    if jars["delta"]:
        ways["strandline through Delta's writer"] = lambda topic: bench.ours(topic, writer="spark")
    if jars["spark-kafka"] and jars["delta"]:
        ways["Spark's connector to Delta's writer"] = lambda topic: bench.spark_s(
            topic, source="kafka", sink="delta"
        )
    if jars["spark-kafka"]:
        ways["Spark's connector to its Parquet sink"] = lambda topic: bench.spark_s(
            topic, source="kafka", sink="parquet"
        )
    ways["our source to Spark's Parquet sink"] = lambda topic: bench.spark_s(
        topic, source="strandline", sink="parquet"
    )
    return ways
