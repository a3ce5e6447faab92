"""Batches on their way through a transform, in Spark and without a broker; and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import LongType

from strandline.errors import InvalidSetting
from strandline.lakehouse.pipeline.errors import TransformFailed
from strandline.lakehouse.pipeline.target import Target, batch_writer
from strandline.lakehouse.tables.definition import DROPPED, TableSpec, parse_partitioning
from strandline.lakehouse.tables.errors import TableError
from strandline.lakehouse.tables.identity import BatchIdentity, OffsetRange
from strandline.lakehouse.tables.spec import load_spec, save_spec
from strandline.lakehouse.tables.store import open_store
from strandline.lakehouse.tables.written import TaskWrite
from strandline.lakehouse.transforming.given import load, named
from strandline.lakehouse.transforming.remembering import on_trial, remembered, told_of_change
from strandline.lakehouse.transforming.writing import Passage
from tests.lakehouse.tables.table_world import TOPIC, TableWorld, Value, kafka_rows

VALUES: list[Value] = [{"id": 1, "city": "B"}, {"id": 2, "city": "C"}, {"id": 3, "city": "C"}]
Transforming = Callable[[DataFrame], object]


class Passing(TableWorld):
    """A table whose batches go through one transform or another."""

    def passed(
        self,
        spark: SparkSession,
        values: Sequence[Value],
        transform: Transforming,
        start: int = 0,
        keys: Sequence[bytes] | None = None,
    ) -> Any:
        """Write and commit a batch through a transform."""

        def stage(target: Target) -> list[TaskWrite]:
            writer = batch_writer(target, "0")
            writer.write(kafka_rows(values, start=start, keys=keys))
            return [writer.finish()]

        through = named(transform)  # type: ignore[arg-type]
        writes = Passage(spark, self.spec, through).write(stage, self.store.state())
        ranges = (OffsetRange(TOPIC, 0, start, start + len(values)),)
        identity = BatchIdentity("q", start, ranges, through=through.label)
        return self.store.commit(identity, writes)


def failing(number: int) -> int:
    return 1 // (number - number)


REFUSED: list[tuple[Transforming, str]] = [
    (lambda batch: batch.where("nothing > 1"), "cannot be carried out: .*nothing"),
    (lambda batch: batch.drop("kafka_offset"), "gives no column kafka_offset: every row must"),
    (lambda batch: batch.select("*", "city"), r"gives two columns city\."),
    (lambda batch: batch.select("*", "id"), r"gives two columns id, .* take \* except\(id\)\."),
    (lambda batch: batch.withColumn("x", f.array(f.struct())), r"x\[\] as struct<>, which no"),
    (lambda batch: 1 / 0, "raised ZeroDivisionError: division by zero"),
    (lambda batch: [batch], "gives list in place of a DataFrame"),
    (lambda batch: batch.withColumn("kafka_offset", f.col("kafka_offset") + 9), "offset 10 of "),
    (lambda batch: batch.withColumn("kafka_topic", f.lit(None)), "rows without a place"),
    (lambda batch: batch.unionAll(batch), r"gives 6 rows of 3 records: .*--explode"),
    (lambda batch: batch.withColumn("a.b", f.lit(1)), "characters that a table's columns"),
    (lambda batch: batch.withColumn("t", f.expr("interval 1 day")), "cast it"),
    (lambda batch: batch.withColumn("id", f.lit("x")), "id as string, and the table has .* int64"),
    (
        lambda batch: batch.withColumn("x", f.udf(failing, LongType(), useArrow=False)("id")),
        "failed: .*ZeroDivisionError",
    ),
    (lambda batch: batch.withColumn("x", f.expr("1 / (id - id)")), "failed: .*DIVIDE_BY_ZERO"),
]


def test_what_a_transform_may_not_do_leaves_nothing_behind(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Each is refused with a sentence that names it; a dead letter of the batch goes as well."""
    table = Passing(tmp_path / "t", transform="m:f", columns={"id": "long"})
    assert table.passed(spark, [{"id": 9, "city": "?"}], lambda batch: batch).rows == 1
    state = table.store.state()
    files = sorted(tmp_path.rglob("*.parquet"))
    for transform, what in REFUSED:
        with pytest.raises(TransformFailed, match=what):
            table.passed(spark, [*VALUES, b"{"] if "union" not in what else VALUES, transform, 1)
    assert table.store.state() == state
    assert sorted(tmp_path.rglob("*.parquet")) == files
    table.spec = replace(table.spec, evolve=False)
    with pytest.raises(TransformFailed, match="the column y, which the table has not"):
        table.passed(spark, VALUES, lambda batch: batch.withColumn("y", f.lit(1)), 1)


def test_rows_by_key_that_lose_their_places_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    """They counted as dropped, so that the rows of their keys went."""
    table = Passing(tmp_path / "t", transform="m:f", mode="upsert", buckets=1)
    keys = [b"1", b"2", b"3"]
    assert table.passed(spark, VALUES, lambda batch: batch, keys=keys).rows == 3
    offset, topic = f.col("kafka_offset"), f.col("kafka_topic")
    for transform, what in (
        (lambda batch: batch.withColumn("kafka_offset", offset + 9), "offset 12 of "),
        (lambda batch: batch.withColumn("kafka_offset", offset + 1), "offset 5 of "),
        (lambda batch: batch.withColumn("kafka_topic", f.nullif(topic, topic)), "without a place"),
    ):
        with pytest.raises(TransformFailed, match=what):
            table.passed(spark, [*VALUES[:2], None], transform, 3, keys)
    assert table.offsets() == [0, 1, 2]
    assert len(list(tmp_path.rglob("*.parquet"))) == 1
    done = table.passed(spark, [*VALUES[:2], None], lambda batch: batch.where("id = 2"), 3, keys)
    assert (done.rows, done.dropped) == (2, 1)
    assert table.offsets() == [4]


def test_only_what_comes_out_is_not_called_like_the_tables_division(
    spark: SparkSession, tmp_path: Path
) -> None:
    division = parse_partitioning("bucket(4, id)")
    fields = {"columns": {"id": "long"}, "partition_by": division}
    table = Passing(tmp_path / "t", transform="m:f", **fields)
    values: list[Value] = [{"id": 1, "id_bucket": "mine"}]
    with pytest.raises(TransformFailed, match="'id_bucket' is one of the table's own columns"):
        table.passed(spark, values, lambda batch: batch)
    done = table.passed(spark, values, lambda batch: batch.withColumnRenamed("id_bucket", "b"))
    assert (done.rows, done.dead_letters) == (1, 0)
    assert table.rows()[0]["b"] == "mine"


def test_a_time_that_cannot_divide_the_table_ends_the_batch_with_a_sentence(
    spark: SparkSession, tmp_path: Path
) -> None:
    division = {"columns": {"at": "timestamp"}, "partition_by": parse_partitioning("at")}
    table = Passing(tmp_path / "t", transform="m:f", **division)

    def far(batch: DataFrame) -> DataFrame:
        return batch.withColumn("at", f.expr("timestamp_seconds(316516204800L)"))

    with pytest.raises(TableError, match="at itself divides the table and has a time beyond"):
        table.passed(spark, VALUES, far)
    assert table.passed(spark, VALUES, lambda batch: batch).rows == 3


def test_columns_are_those_of_the_transform(spark: SparkSession, tmp_path: Path) -> None:
    """Narrow numbers are widened, what is only null is no column yet, a fraction's column takes
    integers, and a key that the table does not keep is left out. An event time may be made."""
    table = Passing(tmp_path / "t", transform="m:f", event_time="at", watermark_ms=0)

    def first(batch: DataFrame) -> DataFrame:
        assert "at" not in batch.columns
        return batch.select(
            *("kafka_topic", "kafka_partition", "kafka_offset", "kafka_timestamp", "kafka_key"),
            f.expr("cast(id as smallint)").alias("n"),
            f.expr("cast(id as float) / 2").alias("half"),
            f.expr("named_struct('a', 1, 'b', array(1Y))").alias("s"),
            f.expr("timestamp'2026-03-01 05:00:00'").alias("at"),
            f.lit(None).alias("nothing"),
        )

    assert table.passed(spark, VALUES[:1], first).rows == 1
    again = table.passed(
        spark, VALUES[1:], lambda batch: first(batch).withColumn("half", f.lit(2)), 1
    )
    assert (again.rows, again.late_rows) == (2, 0)
    schema = table.store.dataset().schema
    assert [f"{name}: {schema.field(name).type}" for name in ("n", "half", "at")] == [
        "n: int64",
        "half: double",
        "at: timestamp[us, tz=UTC]",
    ]
    assert not {"nothing", "kafka_key"} & set(schema.names)
    rows = table.rows()
    assert [row["half"] for row in rows] == [0.5, 2.0, 2.0]
    assert rows[0]["s"] == {"a": 1, "b": [1]}


def test_a_random_filter_is_counted_as_it_fell(spark: SparkSession, tmp_path: Path) -> None:
    """Rows and dropped records are the batch, although a second look would give others."""
    table = Passing(tmp_path / "t", transform="m:f")
    values: list[Value] = [{"id": each} for each in range(300)]
    done = table.passed(spark, values, lambda batch: batch.where(f.rand() < 0.5).repartition(2))
    assert done.rows + done.dropped == 300
    runs = table.store.dataset(DROPPED).to_table().to_pylist()
    gone = {at for run in runs for at in range(run["kafka_offset"], run["kafka_offset_end"])}
    assert len(gone) == done.dropped
    assert gone.isdisjoint(table.offsets())


def test_the_definition_remembers_what_rows_go_through(spark: SparkSession, tmp_path: Path) -> None:
    table = Passing(tmp_path / "t")
    save_spec(table.spec)
    table.batch("q", 0, VALUES)
    table.spec = remembered(table.spec, select="select * from batch")
    table.reopen()
    assert load_spec(tmp_path / "t") == table.spec
    assert "through no transform" in (told_of_change(table.store, named(first)) or "")
    batch = table.passed(spark, [{"id": 7}], first, start=3)
    assert (batch.rows, table.rows()[-1]["city"]) == (1, None), "its own columns are known"
    assert told_of_change(table.store, named(first)) is None
    assert "go through no transform" in (told_of_change(table.store, None) or "")
    table.spec = remembered(table.spec, transform="m:f")
    assert (table.spec.select, load_spec(tmp_path / "t").transform) == (None, "m:f")
    with pytest.raises(InvalidSetting, match="Only a select or a transform"):
        replace(table.spec, transform=None, explode=True)


def first(batch: DataFrame) -> DataFrame:
    return batch


def test_a_select_that_fails_at_once_is_not_remembered(tmp_path: Path) -> None:
    """A slip in `table run --select` made each later run of the table fail as well."""
    before = TableWorld.spec_in(tmp_path / "t", select="select * from batch")
    save_spec(before)

    def fail(newer: TableSpec) -> None:
        with on_trial(before, newer):
            raise TransformFailed("The select cannot be carried out.")

    newer = remembered(before, select="select nosuch from batch")
    open_store(newer, create=True)
    with pytest.raises(TransformFailed, match="The table's definition stays as it was"):
        fail(newer)
    assert load_spec(before.location) == before
    with pytest.raises(TransformFailed, match=r"carried out\.$"):
        fail(before)


def test_a_transform_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the working directory too; another text of the function is another transform."""
    monkeypatch.chdir(tmp_path)
    labels = set()
    for number in range(2):
        (tmp_path / f"orders{number}.py").write_text(
            f"def keep(batch):\n    return batch, {number}"
        )
        found = load(f"orders{number}:keep")
        assert found.label.startswith(f"transform orders{number}:keep (")
        labels.add(found.label.partition("(")[2])
    assert len(labels) == 2
    for name, why in (
        ("orders", "is module:function"),
        ("no_such_module:f", "cannot be imported: ModuleNotFoundError"),
        ("json:nothing", "cannot be imported: AttributeError"),
        ("json:__name__", "is no function"),
    ):
        with pytest.raises(InvalidSetting, match=why):
            load(name)
