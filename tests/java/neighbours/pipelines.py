"""Spark Declarative Pipelines: a topic becomes a table of a pipeline, and a view of it another."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.java.neighbours.rig import PATIENCE_S, Rig, produce

TOPIC = "flights"
# Tables of one run are to be known to the next one: a catalog on disk.
KEPT = ("--conf", "spark.sql.catalogImplementation=hive")
SPECIFICATION = """
name: flights
storage: {storage}
libraries:
  - glob:
      include: pipeline/**
configuration:
  spark.sql.shuffle.partitions: "1"
"""
DEFINITION = """
from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession, functions

spark = SparkSession.active()

@dp.table
def arrived() -> DataFrame:
    read = spark.readStream.format("strandline").option("kafka.bootstrap.servers", "{bootstrap}")
    rows = read.option("subscribe", "{topic}").option("startingOffsets", "earliest").load()
    return rows.selectExpr("string(key) as carrier", "int(string(value)) as delay")

@dp.materialized_view
def delays() -> DataFrame:
    return spark.table("arrived").groupBy("carrier").agg(functions.sum("delay").alias("total"))
"""


def run(rig: Rig) -> str:
    """Two runs of `spark-pipelines run`: the second one goes on where the first one ended."""
    cluster = rig.cluster()
    cluster.create_topic(TOPIC, partitions=2, replication_factor=3)
    project = rig.home / "project"
    (project / "pipeline").mkdir(parents=True)
    storage = f"file://{project}/storage"
    (project / "spark-pipeline.yml").write_text(SPECIFICATION.format(storage=storage))
    (project / "pipeline" / "flights.py").write_text(
        DEFINITION.format(bootstrap=cluster.bootstrap_servers, topic=TOPIC)
    )
    for first in (0, 50):
        records = [("AB"[each % 2], str(each)) for each in range(first, first + 50)]
        produce(cluster.bootstrap_servers, TOPIC, records)
        _run(project)
    import pyarrow.parquet as parquet

    rows = parquet.read_table(_table(project, "arrived")).to_pylist()
    assert sorted(row["delay"] for row in rows) == list(range(100))
    sums = parquet.read_table(_table(project, "delays")).to_pylist()
    assert {row["carrier"]: row["total"] for row in sums} == {
        "A": sum(range(0, 100, 2)),
        "B": sum(range(1, 100, 2)),
    }
    return "100 records in two runs, each once in the table, and their sums"


def _table(project: Path, name: str) -> str:
    return str(project / "spark-warehouse" / name)


def _run(project: Path) -> None:
    program = Path(sys.executable).with_name("spark-pipelines")
    ended = subprocess.run(
        [str(program), "run", *KEPT],
        cwd=project,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S * 2,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-4000:]
