"""Instants that divide a Delta table are the same ones to readers in every time zone."""

from __future__ import annotations

import datetime
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from strandline.lakehouse.tables.definition import parse_partitioning
from tests.lakehouse.conftest import DELTA_JARS
from tests.lakehouse.duckdb_reader import with_extensions
from tests.lakehouse.tables.table_world import TableWorld, Value

FIRST: Final[list[Value]] = [
    {"at": "2026-03-01T23:30:00Z"},
    {"at": "2026-03-02T05:00:00.123456+05:30"},
    {"at": None},
    {"at": "0001-01-01T00:00:00Z"},
    {"at": "1969-12-31T23:59:59.5Z"},
]
SECOND: Final[list[Value]] = [{"at": "2026-03-01T23:30:00Z"}, {"at": "9999-12-31T23:59:59.999999Z"}]
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND: Final = datetime.timedelta(microseconds=1)
MICROSECONDS: Final = [
    at and (datetime.datetime.fromisoformat(at) - _EPOCH) // _MICROSECOND
    for at in (value["at"] for value in (*FIRST, *SECOND) if isinstance(value, dict))
]
"""By the offsets of the records."""


@pytest.fixture
def table(tmp_path: Path) -> TableWorld:
    made = TableWorld(
        tmp_path / "table", columns={"at": "timestamp"}, partition_by=parse_partitioning("at")
    )
    made.batch("q", 0, FIRST)
    return made


def by_package(table: TableWorld) -> list[Any]:
    return _micros(table.store.dataset().to_table(columns=["at", "kafka_offset"]))


def by_delta_rs(table: TableWorld) -> Counter[Any]:
    """How many rows the log has for each instant, as it is read there: no file is opened."""
    actions = pa.table(DeltaTable(str(table.spec.directory())).get_add_actions(flatten=True))
    instants = pc.cast(actions.column("partition.at"), pa.int64()).to_pylist()
    found: Counter[Any] = Counter()
    for instant, rows in zip(instants, actions.column("num_records").to_pylist(), strict=True):
        found[instant] += rows
    return found


def by_spark(spark: SparkSession, table: TableWorld, zone: str) -> list[Any]:
    there = spark.newSession()
    there.conf.set("spark.sql.session.timeZone", zone)
    rows = there.read.format("delta").load(f"file://{table.spec.directory()}")
    found = rows.selectExpr("kafka_offset", "unix_micros(at) as at").orderBy("kafka_offset")
    return [row["at"] for row in found.collect()]


def _micros(rows: pa.Table) -> list[Any]:
    ordered = rows.sort_by("kafka_offset").column("at")
    return list(pc.cast(ordered, pa.int64()).to_pylist())


def as_before(table: TableWorld) -> None:
    """Give the log the form of the times that versions up to 0.1.0 wrote into it."""
    [commit] = [
        each
        for each in (table.spec.directory().local / "_delta_log").glob("*.json")
        if '"add"' in each.read_text()
    ]
    lines = [json.loads(line) for line in commit.read_text().splitlines()]
    for line in lines:
        values = line.get("add", {}).get("partitionValues", {})
        if values.get("at") is not None:
            values["at"] = re.sub("(.*)T(.*)Z", r"\1 \2", values["at"])
    assert "2026-03-01 23:30:00.000000" in json.dumps(lines)
    commit.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.skipif(not DELTA_JARS, reason="the jars of Delta for Spark are not there")
@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "America/St_Johns"])
def test_by_spark(spark: SparkSession, table: TableWorld, zone: str) -> None:
    table.batch("q", 1, SECOND, start=len(FIRST))
    assert by_spark(spark, table, zone) == MICROSECONDS


def test_by_others(table: TableWorld) -> None:
    table.batch("q", 1, SECOND, start=len(FIRST))
    assert by_package(table) == MICROSECONDS
    assert by_delta_rs(table) == Counter(MICROSECONDS)
    extension = pytest.importorskip("duckdb_extension_delta")
    with with_extensions([extension]) as connection:
        connection.execute("SET TimeZone = 'Asia/Kolkata'")
        scan = f"delta_scan('{table.spec.directory()}')"
        found = connection.sql(f'select epoch_us("at") from {scan} order by kafka_offset')
        assert [row[0] for row in found.fetchall()] == MICROSECONDS


def test_a_log_of_an_earlier_version_means_the_same_instants(table: TableWorld) -> None:
    """Also beside files of today, which are joined with its own."""
    as_before(table)
    table.reopen()
    assert by_package(table) == MICROSECONDS[: len(FIRST)]
    assert by_delta_rs(table) == Counter(MICROSECONDS[: len(FIRST)])
    table.batch("q", 1, SECOND, start=len(FIRST))
    assert by_package(table) == MICROSECONDS
    told = table.store.compact(min_files=2)
    assert (told.files_before, told.files_after) == (2, 1)
    assert by_package(table) == MICROSECONDS
    assert by_delta_rs(table) == Counter(MICROSECONDS)
    assert len({each.partition for each in table.store.files()}) == len(set(MICROSECONDS))
