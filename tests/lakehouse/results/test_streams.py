"""Results of queries over our own source as tables: the page's example, each output mode, kills."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import strandline
from strandline.client.cluster import ClusterClient
from strandline.client.producer import Producer
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.pipeline import parts_in_spark
from strandline.lakehouse.results import merging
from strandline.lakehouse.results.proof import prove
from strandline.lakehouse.tables.spec import load_spec
from strandline.lakehouse.tables.store import open_store
from strandline.testing import Cluster
from tests.lakehouse.results.dying_driver import counts_of, write

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/spark.md").read_text("utf-8")
ORDERS = [(minute, second, "BC"[second % 2]) for minute in range(6) for second in (10, 21, 30)]
"""Minute, second and city of events; some of a minute come in one batch, some in the next."""


@pytest.fixture
def topic(new_topic: Callable[..., str], client: ClusterClient) -> str:
    name = new_topic()
    send(client, name, ORDERS[:-6])
    return name


def send(client: ClusterClient, topic: str, orders: list[tuple[int, int, str]]) -> None:
    with Producer(client) as producer:
        for minute, second, city in orders:
            at = f"2026-01-01T00:{minute:02}:{second:02}Z"
            producer.send(topic, json.dumps({"at": at, "city": city}).encode())
        producer.flush().raise_failure()


def counts(orders: list[tuple[int, int, str]], minutes: int) -> dict[tuple[int, str], int]:
    """What a table has of windows before a minute."""
    return dict(Counter((minute, city) for minute, _, city in orders if minute < minutes))


def held(directory: Path) -> dict[tuple[int, str], int]:
    """What a table has; each key once."""
    rows = open_store(load_spec(directory)).dataset().to_table().to_pylist()
    found = {(row["window"]["start"].minute, row["city"]): row["count"] for row in rows}
    assert len(found) == len(rows)
    return found


def check(directory: Path, checkpoint: Path) -> int:
    """That nothing is wrong; how many batches there are."""
    report = prove(open_store(load_spec(directory)), Location.parse(checkpoint))
    assert report.is_good, report.sentences()
    [query] = report.queries
    return query.batches


def test_the_example_of_the_page(
    spark: SparkSession, cluster: Cluster, client: ClusterClient, topic: str, tmp_path: Path
) -> None:
    late = (20, 0, "B")  # the watermark comes ten minutes behind it
    send(client, topic, [late])
    section = PAGE.partition("\n## Writing tables\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert len(blocks) == 3
    names: dict[str, Any] = {"spark": spark, "strandline": strandline}
    for block in blocks:
        text = block.replace("localhost:9092", cluster.bootstrap_servers)
        text = text.replace('"orders"', f'"{topic}"').replace('"checkpoints', f'"{tmp_path}/ck')
        for table in ("city_counts", "city_counts_now", "cities"):
            text = text.replace(f'"{table}"', f'"{tmp_path / table}"')
        exec(text, names)
        if (query := names.pop("query", None)) is not None:
            query.processAllAvailable()
            query.stop()
    assert held(tmp_path / "city_counts") == counts(ORDERS[:-6], 6)
    assert held(tmp_path / "city_counts_now") == counts([*ORDERS[:-6], late], 30)
    for name in ("city_counts", "city_counts_now"):
        assert check(tmp_path / name, tmp_path / "ck" / name) >= 2
    read = spark.read.format("strandline_table").load(str(tmp_path / "cities"))
    assert {tuple(row) for row in read.collect()} == {("B", "Berlin"), ("C", "Cologne")}


@pytest.mark.parametrize(("table_format", "mode"), [("delta", "complete"), ("iceberg", "update")])
def test_results_that_change(
    spark: SparkSession,
    cluster: Cluster,
    client: ClusterClient,
    topic: str,
    tmp_path: Path,
    table_format: str,
    mode: str,
) -> None:
    """The first run ends as if it had died before Spark noted its last commit. Each format takes
    each mode in `test_commits`."""
    table, checkpoint = tmp_path / "counts", tmp_path / "checkpoint"
    rows = counts_of(spark, cluster.bootstrap_servers, topic, watermark=None)
    run(rows, mode, table_format, table, checkpoint)
    assert held(table) == counts(ORDERS[:-6], 6)
    newest = max(int(each.name) for each in (checkpoint / "commits").glob("[0-9]*"))
    (checkpoint / "commits" / str(newest)).unlink()
    (checkpoint / "commits" / f".{newest}.crc").unlink()
    send(client, topic, ORDERS[-6:])
    run(rows, mode, table_format, table, checkpoint)
    assert held(table) == counts(ORDERS, 6)
    assert check(table, checkpoint) > newest + 1
    assert {each.kind for each in open_store(load_spec(table)).history()} == {
        "complete" if mode == "complete" else "batch"
    }


def run(rows: DataFrame, mode: str, table_format: str, table: Path, checkpoint: Path) -> None:
    writer = rows.writeStream.outputMode(mode).option("checkpointLocation", str(checkpoint))
    writer = writer.trigger(availableNow=True)
    options = {"path": str(table), "format": table_format}
    if mode == "update":
        sink = strandline.TableSink({**options, "keys": "window, city"})
        query = writer.foreachBatch(sink).start()
    else:
        query = writer.format("strandline_table").options(**options).start()
    query.awaitTermination()


def test_a_batch_that_spark_finds_empty_as_it_plans(spark: SparkSession, tmp_path: Path) -> None:
    """No task runs for it; it is a commit of its query all the same."""
    source, table, checkpoint = tmp_path / "source", tmp_path / "counts", tmp_path / "checkpoint"
    sink = strandline.TableSink({"path": str(table), "keys": "id"})
    spark.range(1).write.parquet(str(source))

    def count_large(rows: DataFrame, batch_id: int) -> None:
        counted = rows.where("id > 5").groupBy("id").count()
        sink(counted, batch_id)

    adapts = "spark.sql.adaptive.enabled"
    before = spark.conf.get(adapts)
    spark.conf.set(adapts, "true")  # as a plain session of Spark's has it
    try:
        for ids in (range(1), range(6, 8)):
            spark.range(ids.start, ids.stop).write.mode("append").parquet(str(source))
            writer = spark.readStream.schema("id long").parquet(str(source)).writeStream
            writer = writer.option("checkpointLocation", str(checkpoint))
            query = writer.trigger(availableNow=True).foreachBatch(count_large).start()
            query.awaitTermination()
    finally:
        spark.conf.set(adapts, str(before))
    store = open_store(load_spec(table))
    assert sorted(store.dataset().to_table()["id"].to_pylist()) == [6, 7]
    assert len({each.query_id for each in store.history()}) == 1
    assert check(table, checkpoint) == 2


def test_a_driver_that_is_killed_at_a_commit(
    spark: SparkSession, cluster: Cluster, client: ClusterClient, topic: str, tmp_path: Path
) -> None:
    """When all files of batch 1 are written, and no commit names them."""
    send(client, topic, ORDERS[-6:])
    module = "tests.lakehouse.results.dying_driver"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            module,
            cluster.bootstrap_servers,
            topic,
            str(tmp_path),
            "before",
            "1",
        ],
        cwd=ROOT,
        start_new_session=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    table = open_store(load_spec(tmp_path / "counts"))
    assert [each.batch_id for each in table.history()] == [0]
    written = len(list((tmp_path / "counts" / "data").glob("*.parquet")))
    assert written > len(table.files())
    write(counts_of(spark, cluster.bootstrap_servers, topic), tmp_path, "strandline_table")
    # The newest event is of 00:05:30, and the watermark a minute behind it.
    assert held(tmp_path / "counts") == counts(ORDERS, 4)
    assert check(tmp_path / "counts", tmp_path / "checkpoint") >= 3


def test_a_failed_task_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """And the sentence that says why reaches the user."""
    rows = spark.range(0, 4, 1, 2).selectExpr("id", "struct(id * 3000000000000000001 as x) s")
    table = str(tmp_path / "t")
    spark.sql("select 1L id, struct(0.5D as x) s").write.format("strandline_table").mode(
        "append"
    ).save(table)
    with pytest.raises(Exception, match="Column s has a value that is no struct<x:double>"):
        rows.write.format("strandline_table").mode("append").save(table)
    assert len(list((tmp_path / "t" / "data").glob("*.parquet"))) == 1
    with pytest.raises(Exception, match="option format is delta or iceberg, not 'parquet'"):
        rows.write.format("strandline_table").mode("append").option("format", "parquet").save("x")


def test_a_job_by_keys_is_merged_in_tasks(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver of `TableSink.save` commits what tasks have written of both, and reads neither."""
    monkeypatch.setattr(parts_in_spark, "SMALL_BYTES", 0)
    sink = strandline.TableSink({"path": str(tmp_path / "t"), "keys": "id"})
    sink.save(spark.range(6).selectExpr("id", "0 as n"))

    def read_here(*_: object) -> None:
        raise AssertionError("The driver read rows.")

    monkeypatch.setattr(merging, "met", read_here)  # tasks import their own
    sink.save(spark.range(4, 8, 1, 2).selectExpr("id", "1 as n"))
    store = open_store(load_spec(tmp_path / "t"))
    rows = store.dataset().to_table().to_pylist()
    assert {row["id"]: row["n"] for row in rows} == {each: int(each > 3) for each in range(8)}
    assert len(rows) == 8
    sink.save(spark.range(1).selectExpr("id", "2 as n"), overwrite=True)
    assert store.dataset().to_table().to_pylist() == [{"id": 0, "n": 2}]
