"""`python -m bench.spark_tables`: topics through Spark, our format beside Spark's own connector.

One broker in a process of its own, one Spark session in local mode, one topic with random
values. Each path runs once unmeasured and then so many rounds, engines in turns, so that whatever
else the machine does falls on all of them. A stream counts twice: from its start to its end, and
by the time of its batches alone, which is what a stream that stays up comes to.

    batch   everything read by a batch query, thrown away
    stream  everything read with Trigger.AvailableNow in batches of a tenth, thrown away
    files   the same, written as Parquet by Spark's own file sink
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from bench.brokers import running_strandline
from bench.environment import processor_name
from bench.kafka_jars import JarsError, spark_kafka_jars
from strandline.client.cluster import ClusterClient
from strandline.client.producer import Producer
from strandline.lakehouse.session import session

_MIB: Final = 1 << 20
OURS: Final = "strandline"
THEIRS: Final = "kafka"


@dataclass(frozen=True, slots=True)
class Topic:
    """What is read."""

    servers: str
    name: str
    records: int
    value_bytes: int


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of one path with one engine."""

    path: str
    engine: str
    seconds: float
    batch_seconds: float
    """Of its batches; for a batch query the same as `seconds`."""


Run = Callable[[SparkSession, Topic, str, Path], tuple[float, float]]


def batch(spark: SparkSession, topic: Topic, engine: str, place: Path) -> tuple[float, float]:
    """Seconds of a batch query, twice."""
    del place
    began_s = time.monotonic()
    rows = spark.read.format(engine).options(**_options(topic)).load()
    rows.write.format("noop").mode("overwrite").save()
    took_s = time.monotonic() - began_s
    return took_s, took_s


def stream(spark: SparkSession, topic: Topic, engine: str, place: Path) -> tuple[float, float]:
    """Seconds of a stream and of its batches."""
    return _finish(_stream(spark, topic, engine, place).format("noop"), topic)


def files(spark: SparkSession, topic: Topic, engine: str, place: Path) -> tuple[float, float]:
    """The same into files."""
    writer = _stream(spark, topic, engine, place).format("parquet")
    return _finish(writer.option("path", str(place / "rows")), topic)


PATHS: Final[dict[str, Run]] = {"batch": batch, "stream": stream, "files": files}


def _options(topic: Topic) -> dict[str, str]:
    return {"kafka.bootstrap.servers": topic.servers, "subscribe": topic.name}


def _stream(spark: SparkSession, topic: Topic, engine: str, place: Path) -> DataStreamWriter:
    reader = spark.readStream.format(engine).options(**_options(topic))
    reader = reader.option("startingOffsets", "earliest")
    rows = reader.option("maxOffsetsPerTrigger", topic.records // 10).load()
    writer = rows.writeStream.option("checkpointLocation", str(place / "checkpoint"))
    return writer.trigger(availableNow=True)


def _finish(writer: DataStreamWriter, topic: Topic) -> tuple[float, float]:
    began_s = time.monotonic()
    query = writer.start()
    query.awaitTermination()
    took_s = time.monotonic() - began_s
    progress = query.recentProgress
    if sum(each["numInputRows"] for each in progress) != topic.records:
        raise RuntimeError(f"{progress} is not all of the topic")
    return took_s, sum(each["durationMs"]["triggerExecution"] for each in progress) / 1000


def measure(
    spark: SparkSession, topic: Topic, engines: Sequence[str], paths: Sequence[str], rounds: int
) -> Iterator[Sample]:
    """Every path with every engine; the first run of each is not told."""
    for path in paths:
        for number in range(rounds + 1):
            for engine in engines if number % 2 else reversed(engines):
                with tempfile.TemporaryDirectory() as place:
                    seconds, batch_seconds = PATHS[path](spark, topic, engine, Path(place))
                if number:
                    yield Sample(path, engine, seconds, batch_seconds)


def page(topic: Topic, samples: Sequence[Sample]) -> str:
    """A table of medians, and of what we take as a share of what they take."""
    lines = [
        f"{processor_name(Path('/proc/cpuinfo').read_text())}, {os.cpu_count()} cores, load "
        f"{os.getloadavg()[0]:.1f}; {topic.records:,} records of {topic.value_bytes} bytes",
        "",
        "| path | engine | rows/s | MiB/s | rows/s in batches | ratio |",
        "|---|---|---|---|---|---|",
    ]
    for path in dict.fromkeys(each.path for each in samples):
        theirs = _median(samples, path, THEIRS)
        for engine in (OURS, THEIRS):
            ours = _median(samples, path, engine)
            if ours is None:
                continue
            whole, inside = (topic.records / each for each in ours)
            ratio = f"{theirs[0] / ours[0]:.2f}x" if theirs else ""
            lines.append(
                f"| {path} | {engine} | {whole:,.0f} | {whole * topic.value_bytes / _MIB:,.0f} | "
                f"{inside:,.0f} | {ratio} |"
            )
    return "\n".join(lines)


def _median(samples: Sequence[Sample], path: str, engine: str) -> tuple[float, float] | None:
    chosen = [each for each in samples if (each.path, each.engine) == (path, engine)]
    if not chosen:
        return None
    return (
        statistics.median(each.seconds for each in chosen),
        statistics.median(each.batch_seconds for each in chosen),
    )


def fill(topic: Topic, partitions: int) -> None:
    """Records with values that do not compress."""
    with ClusterClient(topic.servers) as cluster, Producer(cluster) as producer:
        values = [os.urandom(topic.value_bytes) for _ in range(1000)]
        for number in range(topic.records):
            producer.send(topic.name, values[number % 1000], partition=number % partitions)
        producer.flush().raise_failure()


def main() -> int:
    """Run and print."""
    options = _parser().parse_args()
    try:
        jars = sorted(spark_kafka_jars(options.cache_dir).glob("*.jar"))
    except JarsError as error:
        print(f"{error}\nSpark's own connector is left out.", file=sys.stderr)
        jars = []
    engines = (OURS, THEIRS) if jars else (OURS,)
    with (
        tempfile.TemporaryDirectory() as directory,
        running_strandline(Path(directory) / "broker") as broker,
    ):
        topic = Topic(broker.address, "measured", options.records, options.value_bytes)
        broker.create_topic(topic.name, options.partitions)
        fill(topic, options.partitions)
        with session("bench", jars=jars, memory="4g") as spark:
            paths = options.paths.split(",")
            samples = list(measure(spark, topic, engines, paths, options.rounds))
    print(page(topic, samples))
    if options.json:
        figures = {"topic": asdict(topic), "samples": [asdict(each) for each in samples]}
        options.json.write_text(json.dumps(figures, indent=1))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add = parser.add_argument
    add("--cache-dir", type=Path, required=True, help="where the connector's jars are kept")
    add("--records", type=int, default=1_000_000, help="default: 1,000,000")
    add("--value-bytes", type=int, default=100, help="default: 100")
    add("--partitions", type=int, default=4, help="of the topic (default: 4)")
    add("--rounds", type=int, default=3, help="measured runs of each (default: 3)")
    add("--paths", default=",".join(PATHS), help=f"some of {','.join(PATHS)}")
    add("--json", type=Path, metavar="FILE", help="write every figure there, too")
    return parser


if __name__ == "__main__":
    sys.exit(main())
