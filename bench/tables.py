"""`python -m bench.tables`: from a topic to a table, beside Spark's own ways of doing it.

Every round runs each way once over the same topic, in turns, into a place of its own: our pipeline
(our reader, our commits to Delta), the same through Delta's own writer, Spark's connector for Kafka
into Delta's own writer and into Spark's Parquet sink, and our source into Spark's Parquet sink. All
of them read every record and parse its JSON into the same typed columns. What is timed is a whole
run over what is there, from its start to the end of its last commit, in a warm session. Ratios are
of the medians; a way whose jars are not there is left out.

Then: what a run costs as the topic has more partitions, and how long a record takes from being
acknowledged to being in the table at the default interval.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from bench.environment import processor_name
from bench.kafka_jars import JarsError, delta_jars, spark_kafka_jars
from strandline.client.cluster import ClusterClient
from strandline.client.producer import Producer, ProducerSettings
from strandline.lakehouse.pipeline.batches import RunContext
from strandline.lakehouse.pipeline.events import Committed, Event
from strandline.lakehouse.pipeline.options import RunOptions
from strandline.lakehouse.pipeline.runner import Runner
from strandline.lakehouse.pipeline.running import NeverStopped
from strandline.lakehouse.session import session
from strandline.lakehouse.tables.definition import TableSpec
from strandline.lakehouse.tables.delta_spark import SESSION_SETTINGS
from strandline.lakehouse.tables.spec import save_spec
from strandline.lakehouse.tables.store import open_store
from strandline.records.codec import Codec
from strandline.testing import Cluster

COLUMNS: Final = {"id": "long", "name": "string", "price": "double", "at": "timestamp"}
SPARK_COLUMNS: Final = "id long, name string, price double, at timestamp"
PARTITIONS: Final = (1, 4, 16, 64)
OURS: Final = "strandline to Delta"


class Feeder(threading.Thread):
    """A record every tenth of a second, and when each was acknowledged."""

    def __init__(self, producer: Producer, acknowledged: list[float], seconds: float) -> None:
        super().__init__(daemon=True)
        self._producer = producer
        self._acknowledged = acknowledged
        self._until = time.monotonic() + seconds

    def run(self) -> None:
        while time.monotonic() < self._until:
            self._producer.send("fresh", b'{"id": 1}', partition=0)
            self._producer.flush().raise_failure()
            self._acknowledged.append(time.monotonic())
            time.sleep(0.1)


@dataclass
class Bench:
    """One cluster, one session, and where tables go."""

    spark: SparkSession
    bootstrap: str
    home: Path
    records: int
    made: int = 0
    bytes: dict[str, int] = field(default_factory=dict)
    """Of keys and values, by topic."""

    def place(self) -> Path:
        """A directory that is not there yet."""
        self.made += 1
        return self.home / f"table-{self.made}"

    def fill(self, topic: str, partitions: int, records: int) -> None:
        """Records of about 100 bytes, with keys, dealt out to the partitions in turn."""
        total = 0
        with ClusterClient(self.bootstrap) as client:
            producer = Producer(client, ProducerSettings(codec=Codec.LZ4))
            for number in range(records):
                value = json.dumps(
                    {
                        "id": number,
                        "name": f"name of {number % 1000}",
                        "price": number % 977 / 7,
                        "at": f"2026-03-01T{number % 24:02d}:00:00Z",
                    }
                ).encode()
                total += len(value) + 8
                producer.send(topic, value, key=b"%08d" % number, partition=number % partitions)
            producer.flush().raise_failure()
        self.bytes[topic] = total

    def ours(
        self,
        topic: str,
        tell: Callable[[Event], None] = lambda _: None,
        *,
        writer: str = "strandline",
    ) -> None:
        """Our pipeline, into a new table."""
        spec = self.spec(topic, writer)
        options = RunOptions(bootstrap=self.bootstrap, once=True)
        store = open_store(spec, create=True, spark=self.spark)
        Runner(RunContext(self.spark, spec, store, options), tell).run(NeverStopped())

    def spec(self, topic: str, writer: str = "strandline") -> TableSpec:
        """A new table of a topic."""
        where = self.place()
        spec = TableSpec(
            name=where.name, topics=(topic,), location=str(where), columns=COLUMNS, writer=writer
        )
        save_spec(spec)
        return spec

    def spark_s(self, topic: str, *, source: str, sink: str) -> None:
        """A stream of Spark's own, over what is there."""
        where = self.place()
        rows = self.spark.readStream.format(source).options(
            **{
                "kafka.bootstrap.servers": self.bootstrap,
                "subscribe": topic,
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": "1000000",
            }
        )
        written = parsed(rows.load()).writeStream.format(sink)
        query = written.option("checkpointLocation", f"{where}-checkpoint")
        query.trigger(availableNow=True).start(str(where)).awaitTermination()


def parsed(rows: DataFrame) -> DataFrame:
    """The columns that our tables have, made by Spark."""
    value = f.from_json(f.col("value").cast("string"), SPARK_COLUMNS).alias("value")
    places = ("topic", "partition", "offset", "timestamp")
    return rows.select(value, *places).select("value.*", *places)


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.tables", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60.0, help="of freshness")
    parser.add_argument("--cache-dir", type=Path, default=_cache())
    options = parser.parse_args()
    jars = _jars(options.cache_dir)
    print(
        f"{os.cpu_count()} x {processor_name(Path('/proc/cpuinfo').read_text())}; load average "
        f"before: {os.getloadavg()[0]:.2f}; {options.records:,} records, {options.rounds} rounds"
    )
    with (
        tempfile.TemporaryDirectory(prefix="strandline-bench-") as home,
        Cluster(brokers=1) as cluster,
        session(
            "bench", jars=[each for them in jars.values() for each in them], conf=_conf(jars)
        ) as spark,
    ):
        bench = Bench(spark, cluster.bootstrap_servers, Path(home), options.records)
        print(throughput(bench, cluster, _ways(bench, jars), options.rounds), flush=True)
        print(by_partitions(bench, cluster, options.rounds), flush=True)
        print(freshness(bench, cluster, options.seconds), flush=True)
    return 0


def throughput(
    bench: Bench, cluster: Cluster, ways: Mapping[str, Callable[[str], None]], rounds: int
) -> str:
    """Rows and bytes per second of each way, and the ratios of ours to the others."""
    cluster.create_topic("rows", 4, 1)
    bench.fill("rows", 4, bench.records)
    took: dict[str, list[float]] = {name: [] for name in ways}
    names = list(ways)
    for round_ in range(rounds + 1):
        for name in names[round_ % len(names) :] + names[: round_ % len(names)]:
            began = time.monotonic()
            ways[name]("rows")
            run_s = time.monotonic() - began
            print(f"  round {round_} {name}: {run_s:.1f} s", file=sys.stderr, flush=True)
            if round_:  # the first warms up
                took[name].append(run_s)
    ours = statistics.median(took[OURS])
    lines = [
        "",
        "| way | s | rows/s | MB/s | ours is so many times as fast |",
        "|---|---|---|---|---|",
    ]
    for name, seconds in took.items():
        middle = statistics.median(seconds)
        lines.append(
            f"| {name} | {middle:.1f} ({min(seconds):.1f} to {max(seconds):.1f}) "
            f"| {bench.records / middle:,.0f} | {bench.bytes['rows'] / middle / 1e6:,.1f} "
            f"| {middle / ours:.2f} |"
        )
    return "\n".join(lines)


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


def freshness(bench: Bench, cluster: Cluster, seconds: float) -> str:
    """From acknowledged to committed, a record every tenth of a second, interval as by default."""
    cluster.create_topic("fresh", 1, 1)
    spec = bench.spec("fresh")
    ages: list[float] = []
    acknowledged: list[float] = []
    until = time.monotonic() + seconds

    class UntilThen:
        @property
        def is_set(self) -> bool:
            return time.monotonic() > until

    def tell(event: Event) -> None:
        if isinstance(event, Committed):
            now = time.monotonic()
            for each in event.ranges:
                ages.extend(now - acknowledged[offset] for offset in range(each.start, each.end))

    with ClusterClient(bench.bootstrap) as client:
        feeder = Feeder(Producer(client), acknowledged, seconds)
        feeder.start()
        options = RunOptions(bootstrap=bench.bootstrap)
        store = open_store(spec, create=True)
        Runner(RunContext(bench.spark, spec, store, options), tell).run(UntilThen())
        feeder.join()
    if not ages:
        return "\nfreshness: nothing was committed"
    ages.sort()
    return (
        f"\nfreshness at an interval of 10 s, {len(ages)} records: median "
        f"{statistics.median(ages):.1f} s, 99 % within {ages[int(len(ages) * 0.99)]:.1f} s"
    )


def _ways(bench: Bench, jars: Mapping[str, Sequence[Path]]) -> dict[str, Callable[[str], None]]:
    ways: dict[str, Callable[[str], None]] = {OURS: bench.ours}
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


def _conf(jars: Mapping[str, Sequence[Path]]) -> Mapping[str, str]:
    """What Delta's own writer wants to be told."""
    return SESSION_SETTINGS if jars["delta"] else {}


def _jars(cache: Path) -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for name, fetch in (("spark-kafka", spark_kafka_jars), ("delta", delta_jars)):
        try:
            found[name] = sorted(fetch(cache).glob("*.jar"))
        except JarsError as error:
            print(f"left out: {error}", file=sys.stderr)
            found[name] = []
    return found


def _cache() -> Path:
    given = os.environ.get("STRANDLINE_TEST_CACHE")
    return Path(given) if given else Path.home() / ".cache" / "strandline-tests"


if __name__ == "__main__":
    sys.exit(main())
