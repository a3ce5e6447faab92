"""`python -m bench.tables`: from a topic to a table, beside Spark's own ways of doing it.

rows        Every round runs each way once over the same topic, in turns, into a place of its own:
            our pipeline (our reader, our commits to Delta), the same through Delta's own writer,
            Spark's connector for Kafka into Delta's own writer and into Spark's Parquet sink, and
            our source into Spark's Parquet sink. All of them read every record and parse its JSON
            into the same typed columns. What is timed is a whole run over what is there, from its
            start to the end of its last commit, in a warm session. Ratios are of the medians; a way
            whose jars are not there is left out.
partitions  What a run costs as the topic has more partitions.
freshness   How long a record takes from being acknowledged to being in the table, at intervals of
            10 s and 1 s.
cluster     Rows per second on a standalone Spark with 1, 2 and 4 cores of executors.
commits     What a commit costs after 10 to 10,000 of them.
upkeep      Compaction and merges in Spark's tasks and in the driver, and the driver's memory.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench import kafka_jars
from bench.environment import processor_name
from bench.tables.commits import MILESTONES, commit_costs
from bench.tables.fresh import freshness
from bench.tables.local import by_partitions, throughput
from bench.tables.on_cluster import on_cluster
from bench.tables.upkeep import upkeep
from bench.tables.world import Bench
from strandline.lakehouse.session import session
from strandline.lakehouse.tables.delta_spark import SESSION_SETTINGS
from strandline.testing import Cluster

PARTS: Final = ("rows", "partitions", "freshness", "cluster", "commits", "upkeep")
_IN_ONE_SESSION: Final = PARTS[:3]
_INTERVALS_S: Final = (10.0, 1.0)
_CORES: Final = 2
"""Of the session in which upkeep is done."""


def main() -> int:
    """Returns the exit status."""
    options = _parser().parse_args()
    parts = options.only.split(",")
    if unknown := set(parts) - set(PARTS):
        print(f"--only: {', '.join(sorted(unknown))} is none of {', '.join(PARTS)}")
        return 2
    print(
        f"{os.cpu_count()} x {processor_name(Path('/proc/cpuinfo').read_text())}; load average "
        f"before: {os.getloadavg()[0]:.2f}; {options.records:,} records, {options.rounds} rounds"
    )
    jars = _jars(options.cache_dir)
    if "cluster" in parts:
        print(on_cluster(jars, options.records, options.rounds), flush=True)
    with tempfile.TemporaryDirectory(prefix="strandline-bench-") as home:
        if "commits" in parts:
            print(commit_costs(Path(home), ("delta", "iceberg"), options.commits), flush=True)
        if "upkeep" in parts:
            print(upkeep(Path(home), options.rounds, _CORES), flush=True)
    if not set(parts).isdisjoint(_IN_ONE_SESSION):
        with _bench(jars, options.records) as (bench, cluster):
            if "rows" in parts:
                print(throughput(bench, cluster, jars, options.rounds), flush=True)
            if "partitions" in parts:
                print(by_partitions(bench, cluster, options.rounds), flush=True)
            if "freshness" in parts:
                for interval_s in _INTERVALS_S:
                    print(freshness(bench, cluster, options.seconds, interval_s), flush=True)
    return 0


@contextmanager
def _bench(jars: Mapping[str, Sequence[Path]], records: int) -> Iterator[tuple[Bench, Cluster]]:
    brought = [*jars["spark-kafka"], *jars["delta"]]
    conf = SESSION_SETTINGS if jars["delta"] else {}
    with (
        tempfile.TemporaryDirectory(prefix="strandline-bench-") as home,
        Cluster(brokers=1) as cluster,
        session("bench", jars=brought, conf=conf) as spark,
    ):
        yield Bench(spark, cluster.bootstrap_servers, Path(home), records), cluster


def _jars(cache: Path) -> dict[str, list[Path]]:
    fetchers = {
        "spark-kafka": kafka_jars.spark_kafka_jars,
        "delta": kafka_jars.delta_jars,
        "hadoop-aws": kafka_jars.hadoop_aws_jars,
        "s3mock": kafka_jars.s3mock_jars,
    }
    found: dict[str, list[Path]] = {}
    for name, fetch in fetchers.items():
        try:
            found[name] = sorted(fetch(cache).glob("*.jar"))
        except kafka_jars.JarsError as error:
            print(f"left out: {error}", file=sys.stderr)
            found[name] = []
    # Spark brings these, and its own must win.
    found["hadoop-aws"] = [
        each
        for each in found["hadoop-aws"]
        if not each.name.startswith(("netty-", "slf4j-"))
        or each.name.startswith("netty-nio-client")
    ]
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.tables",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--only", default=",".join(PARTS), help="some of the parts, with commas")
    add("--records", type=int, default=1_000_000, help="default: 1,000,000")
    add("--rounds", type=int, default=3, help="default: 3")
    add("--seconds", type=float, default=60.0, help="of freshness (default: 60)")
    add("--commits", type=int, default=MILESTONES[-1], help="at most (default: 10,000)")
    add("--cache-dir", type=Path, default=_cache(), help="where jars are kept")
    return parser


def _cache() -> Path:
    given = os.environ.get("STRANDLINE_TEST_CACHE")
    return Path(given) if given else Path.home() / ".cache" / "strandline-tests"


if __name__ == "__main__":
    sys.exit(main())
