"""Schemas that grow: in one table over time, and between the tasks of one batch."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from strandline.lakehouse.tables.catalogs import entry_of
from strandline.lakehouse.tables.definition import parse_partitioning
from strandline.lakehouse.tables.errors import SchemaMoved
from strandline.lakehouse.tables.iceberg import IcebergBackend
from strandline.lakehouse.tables.identity import BatchIdentity, OffsetRange
from strandline.lakehouse.tables.types import NoCommonType, list_of, merge_schemas
from tests.lakehouse.tables.conftest import MakeTable
from tests.lakehouse.tables.table_world import TOPIC, TableWorld, Value

TWO = (OffsetRange(TOPIC, 0, 0, 1), OffsetRange(TOPIC, 1, 0, 1))


def values(table: TableWorld, *columns: str) -> list[tuple[object, ...]]:
    """Some columns of all rows."""
    return [tuple(row[name] for name in columns) for row in table.rows()]


def test_columns_and_fields_are_added_and_older_rows_read_as_null(make_table: MakeTable) -> None:
    table = make_table()
    table.batch("q", 0, [{"a": 1, "s": {"x": 1}, "l": [{"y": 1}]}])
    table.batch("q", 1, [{"b": "new", "s": {"z": 2.5}, "l": [{"w": True}]}], start=1)
    assert values(table, "a", "b", "s", "l") == [
        (1, None, {"x": 1, "z": None}, [{"y": 1, "w": None}]),
        (None, "new", {"x": None, "z": 2.5}, [{"y": None, "w": True}]),
    ]


def test_tasks_that_saw_different_columns_make_one_schema(make_table: MakeTable) -> None:
    table = make_table()
    writes = [table.task([{"a": 1}]), table.task([{"b": 2}], partition=1)]
    table.store.commit(BatchIdentity("q", 0, TWO), writes)
    assert values(table, "a", "b") == [(1, None), (None, 2)]


def test_tasks_that_saw_different_types_write_again_in_the_wider_one(
    make_table: MakeTable,
) -> None:
    table = make_table()
    identity = BatchIdentity("q", 0, TWO)
    writes = [table.task([{"a": 1}]), table.task([{"a": 2.5}], partition=1)]
    with pytest.raises(SchemaMoved, match="written again") as caught:
        table.store.commit(identity, writes)
    assert caught.value.retriable
    assert table.store.discard(writes) == 2
    assert table.offsets() == []
    writes = [table.task([{"a": 1}]), table.task([{"a": 2.5}], partition=1)]
    assert table.store.commit(identity, writes).rows == 2
    assert values(table, "a") == [(1.0,), (2.5,)]


def test_types_without_a_common_one_leave_a_dead_letter(make_table: MakeTable) -> None:
    table = make_table()
    identity = BatchIdentity("q", 0, TWO)
    writes = [table.task([{"a": "text"}]), table.task([{"a": 2}], partition=1)]
    with pytest.raises(SchemaMoved, match="Column a is string and int64"):
        table.store.commit(identity, writes)
    writes = [table.task([{"a": "text"}]), table.task([{"a": 2}], partition=1)]
    result = table.store.commit(identity, writes)
    assert (result.rows, result.dead_letters) == (1, 1)
    assert values(table, "a") == [("text",)]


def test_names_that_differ_in_case_only_leave_a_dead_letter(make_table: MakeTable) -> None:
    table = make_table()
    identity = BatchIdentity("q", 0, TWO)
    writes = [table.task([{"a": 1, "s": {"x": 1}}]), table.task([{"A": 2}], partition=1)]
    with pytest.raises(SchemaMoved, match="Column A differs from a in case only"):
        table.store.commit(identity, writes)
    writes = [table.task([{"a": 1, "s": {"x": 1}}]), table.task([{"A": 2}], partition=1)]
    assert table.store.commit(identity, writes)[3:5] == (1, 1)
    with pytest.raises(NoCommonType):
        merge_schemas(
            pa.schema([("s", pa.struct([("x", pa.int64())]))]),
            pa.schema([("s", pa.struct([("X", pa.int64())]))]),
        )


def test_a_file_of_an_older_schema_still_fits(make_table: MakeTable) -> None:
    table = make_table()
    early = table.task([{"a": 1}], partition=1)
    table.batch("q", 0, [{"a": 1, "b": 2}])
    table.store.commit(BatchIdentity("q", 1, (OffsetRange(TOPIC, 1, 0, 1),)), [early])
    assert values(table, "a", "b") == [(1, 2), (1, None)]


def test_merging_schemas_widens_and_refuses() -> None:
    left = pa.schema([("a", pa.int64()), ("s", pa.struct([("x", pa.int64())]))])
    right = pa.schema([("a", pa.float64()), ("s", pa.struct([("y", list_of(pa.string()))]))])
    assert merge_schemas(left, right) == pa.schema(
        [
            ("a", pa.float64()),
            ("s", pa.struct([("x", pa.int64()), ("y", list_of(pa.string()))])),
        ]
    )
    with pytest.raises(NoCommonType, match=r"s\.x is int64 and string"):
        merge_schemas(left, pa.schema([("s", pa.struct([("x", pa.string())]))]))


def evolved(make_table: MakeTable) -> TableWorld:
    """A partitioned table whose three files have three schemas."""
    table = make_table(
        event_time="t", columns={"k": "string"}, partition_by=parse_partitioning("day(t), k")
    )
    rows: list[Value] = [
        {"t": "2013-01-01T23:59:59.5Z", "k": "a", "n": 1},
        {"t": "2013-01-02T00:00:00Z", "k": "b", "s": {"x": 1}},
        {"k": "b", "s": {"y": "é"}, "l": [1, None]},
    ]
    for number, row in enumerate(rows):
        table.batch("q", number, [row], start=number)
    return table


EXPECTED = [
    (0, "a", 1, None, None),
    (1, "b", None, 1, None),
    (2, "b", None, None, [1, None]),
]


def test_duckdb_reads_the_files(make_table: MakeTable) -> None:
    paths = [str(item.path) for item in evolved(make_table).store.files()]
    found = duckdb.sql(
        "select kafka_offset, k, n, s.x, l "
        f"from read_parquet({paths}, union_by_name=true) order by 1"
    )
    assert found.fetchall() == EXPECTED


def test_spark_reads_the_files(make_table: MakeTable, spark: SparkSession) -> None:
    paths = [str(item.path) for item in evolved(make_table).store.files()]
    rows = spark.read.option("mergeSchema", "true").parquet(*paths).orderBy("kafka_offset")
    found = rows.selectExpr("kafka_offset", "k", "n", "s.x", "l").collect()
    assert [tuple(row) for row in found] == EXPECTED


def test_other_delta_readers_see_rows_and_partitions(tmp_path: Path) -> None:
    table = evolved(partial(TableWorld, tmp_path))
    delta = DeltaTable(str(table.spec.directory()))
    rows = delta.to_pyarrow_dataset().scanner(columns=["kafka_offset", "k", "t_day"]).to_table()
    found = sorted((row["kafka_offset"], row["k"], str(row["t_day"])) for row in rows.to_pylist())
    assert found == [(0, "a", "2013-01-01"), (1, "b", "2013-01-02"), (2, "b", "None")]
    assert len(delta.file_uris(file_pruning_predicate="k = 'b'")) == 2


def test_iceberg_scans_see_rows_and_prune_partitions(tmp_path: Path) -> None:
    table = evolved(partial(TableWorld, tmp_path, format="iceberg"))
    backend = IcebergBackend(
        table.spec.directory(), table.spec.partition_by, catalog=entry_of(table.spec, None)
    )
    iceberg = backend.load().table
    rows = iceberg.scan().to_arrow().sort_by("kafka_offset").to_pylist()
    assert [(row["kafka_offset"], row["k"], row["n"], row["l"]) for row in rows] == [
        (item[0], item[1], item[2], item[4]) for item in EXPECTED
    ]
    pruned = iceberg.scan(row_filter="t >= '2013-01-02T00:00:00+00:00'").plan_files()
    assert len(list(pruned)) == 1
