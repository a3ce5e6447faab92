"""Rows per second on a standalone Spark, by the cores of its executors, onto a disk and into S3.

The cluster has four workers with one core each; a session takes one, two or four of them. Ours and
Spark's connector with Delta's own writer read the same topic in turns. S3Mock keeps two writers at
the same time apart for no format that rests on conditions, so ours is an Iceberg table there, with
its catalog in SQLite; Delta's own writer takes a store for safe as long as it is alone.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyarrow.fs import S3FileSystem
from pyspark.sql import SparkSession

from bench.brokers import running_strandline
from bench.tables.local import Way, in_turns
from bench.tables.world import Bench, spread
from strandline.lakehouse.session import session
from strandline.lakehouse.tables.delta_spark import SESSION_SETTINGS
from tests.lakehouse.locations.s3mock import s3mock
from tests.lakehouse.standalone import StandaloneSpark

CORES: Final = (1, 2, 4)
DISK: Final = "a disk"
STORE: Final = "S3Mock"
OURS: Final = "strandline"
THEIRS: Final = "Spark's connector, Delta's writer"
_PARTITIONS: Final = 8
_BUCKET: Final = "lake"
_KEYS: Final = {
    "AWS_ACCESS_KEY_ID": "bench",
    "AWS_SECRET_ACCESS_KEY": "bench",
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""S3Mock takes any."""


def on_cluster(jars: Mapping[str, Sequence[Path]], records: int, rounds: int) -> str:
    """A table of seconds and rows per second, by store and cores."""
    lines = [
        "",
        "| cores of executors | to | way | s | rows/s | ours is so many times as fast |",
        "|---|---|---|---|---|---|",
    ]
    with (
        tempfile.TemporaryDirectory(prefix="strandline-bench-") as directory,
        running_strandline(Path(directory) / "broker") as broker,
        _store(jars["s3mock"], Path(directory)) as endpoint,
        StandaloneSpark(
            Path(directory) / "spark", workers=CORES[-1], memory="2g", settings=_SETTINGS
        ) as cluster,
    ):
        broker.create_topic("rows", _PARTITIONS)
        os.environ.update(cluster.environment)
        for cores in CORES:
            with _session(cluster, cores, jars, endpoint) as spark:
                bench = Bench(spark, broker.address, Path(directory) / f"cores-{cores}", records)
                bench.home.mkdir()
                if cores == CORES[0]:
                    bench.fill("rows", _PARTITIONS, records)
                for to, ways in _ways(bench, cores, has_store=bool(endpoint)).items():
                    print(f"{cores} cores, {to}", file=sys.stderr, flush=True)
                    took = in_turns(ways, "rows", rounds)
                    ours = statistics.median(took[OURS])
                    for way, seconds in took.items():
                        middle = statistics.median(seconds)
                        lines.append(
                            f"| {cores} | {to} | {way} | {spread(seconds)} "
                            f"| {records / middle:,.0f} | {middle / ours:.2f} |"
                        )
    return "\n".join(lines)


def _ways(bench: Bench, cores: int, *, has_store: bool) -> dict[str, dict[str, Way]]:
    def into_store(topic: str) -> None:
        name = f"cores-{cores}-{bench.name()}"
        catalog = {"uri": f"sqlite:///{bench.home / 'catalog.db'}"}
        bench.ours(
            topic,
            name=name,
            location=f"s3://{_BUCKET}/{name}",
            format="iceberg",
            catalog="sql",
            catalog_properties=catalog,
        )

    def theirs(place: str = "") -> Way:
        return lambda topic: bench.spark_s(topic, source="kafka", sink="delta", place=place)

    found = {DISK: {OURS: bench.ours, THEIRS: theirs()}}
    if has_store:
        place = f"s3a://{_BUCKET}/spark-{cores}"
        found[STORE] = {OURS: into_store, THEIRS: theirs(place)}
    return found


_SETTINGS: Final = """\
spark.executor.memory 1g
spark.executor.extraJavaOptions -XX:+UseG1GC
"""
"""In place of those that let a test's executors start quickly: compilers may optimize here."""


@contextmanager
def _session(
    cluster: StandaloneSpark, cores: int, jars: Mapping[str, Sequence[Path]], endpoint: str
) -> Iterator[SparkSession]:
    brought = [each for name in ("spark-kafka", "delta", "hadoop-aws") for each in jars[name]]
    conf = {
        **SESSION_SETTINGS,
        "spark.cores.max": str(cores),
        **{f"spark.executorEnv.{name}": value for name, value in _KEYS.items()},
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        "spark.hadoop.fs.s3a.access.key": _KEYS["AWS_ACCESS_KEY_ID"],
        "spark.hadoop.fs.s3a.secret.key": _KEYS["AWS_SECRET_ACCESS_KEY"],
    }
    with session("bench", master=cluster.master, jars=brought, conf=conf) as spark:
        yield spark


@contextmanager
def _store(jars: Sequence[Path], home: Path) -> Iterator[str]:
    """The address of an S3Mock with an empty bucket; empty if its jar is not there."""
    if not jars:
        yield ""
        return
    (home / "s3mock").mkdir()
    with s3mock(jars[0], home / "s3mock") as endpoint:
        os.environ.update({"AWS_ENDPOINT_URL": endpoint, "AWS_REGION": "us-east-1", **_KEYS})
        S3FileSystem(
            endpoint_override=endpoint,
            access_key=_KEYS["AWS_ACCESS_KEY_ID"],
            secret_key=_KEYS["AWS_SECRET_ACCESS_KEY"],
            allow_bucket_creation=True,
        ).create_dir(_BUCKET)
        yield endpoint
