"""What differs between a table and its rebuild whose columns have other types, without a broker."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from strandline.lakehouse.rebuild.diff import Difference, difference
from strandline.lakehouse.tables.identity import OffsetRange
from strandline.lakehouse.tables.store import open_store
from tests.lakehouse.tables.table_world import TOPIC, TableWorld, Value

Values = list[Value]
OF_MAPS = {"type": "map", "values": "long"}
AVRO = {"type": "record", "name": "r", "fields": [{"name": "a", "type": OF_MAPS}]}


def of_map(value: int) -> bytes:
    """A record whose map has one small number under `k`."""
    return bytes([2, 2, ord("k"), 2 * value, 0])


def found(
    spark: SparkSession, path: Path, sides: tuple[Values, Values], *fields: dict[str, Any]
) -> Difference:
    """Between two tables of one range, whose definitions may differ."""
    tables = []
    for name, values, said in zip(("live", "rebuilt"), sides, fields, strict=True):
        tables.append(TableWorld(path / name, **said))
        tables[-1].batch("q", 0, values)
    live, rebuilt = (each.store for each in tables)
    return difference(spark, live, rebuilt, [OffsetRange(TOPIC, 0, 0, len(sides[0]))])


@pytest.mark.parametrize(
    ("live", "rebuilt", "said"),
    [
        ([{"a": 1}, {"a": 2}, {}], [{"a": "1"}, {"a": "x"}, {}], [{"a": "long"}, {"a": "string"}]),
        ([{"a": "1"}, {"a": "x"}], [{"a": 1}, {"a": 2}], [{"a": "string"}, {"a": "long"}]),
        ([{"a": 1}, {"a": 2}], [{"a": 1.0}, {"a": 2.5}], [{"a": "long"}, {"a": "double"}]),
        ([{"a": {"x": 1}}, {"a": {"x": 1, "y": 2}}], [{"a": {"x": 1}}, {"a": {"x": 1}}], [{}, {}]),
        ([{"a": {"x": 1}}, {"a": {"x": 1}}], [{"a": {"x": 1}}, {"a": {"x": 1, "y": 2}}], [{}, {}]),
        ([{"a": [{"x": 1}]}, {"a": [{"x": 1}]}], [{"a": [{"x": 1}]}, {"a": [{"y": 2}]}], [{}, {}]),
        ([{"b": 1}, {"a": 5}], [{"b": 1}, {"a": {"x": 5}}], [{}, {}]),
    ],
)
def test_columns_of_other_types_are_compared(
    spark: SparkSession, tmp_path: Path, live: Values, rebuilt: Values, said: list[dict[str, str]]
) -> None:
    """The second record differs. Spark refused the comparison, or ended it in the middle."""
    columns = [{"columns": each} for each in said]
    told = found(spark, tmp_path, (live, rebuilt), *columns)
    assert (told.same, told.changed) == (len(live) - 1, 1)
    assert told.columns == {"a": 1}
    assert [each["offset"] for each in told.examples] == [1]


def test_maps_are_compared(spark: SparkSession, tmp_path: Path) -> None:
    """Spark has no order, and so no equality, of maps."""
    said = {"value_format": "avro", "schema": json.dumps(AVRO)}
    sides: tuple[Values, Values] = ([of_map(1), of_map(2), None], [of_map(1), of_map(3), None])
    told = found(spark, tmp_path, sides, said, said)
    assert (told.same, told.changed, told.columns) == (2, 1, {"a": 1})


def test_late_rows_stay_rows_when_the_definition_counts_them_only(
    spark: SparkSession, tmp_path: Path
) -> None:
    """`late` may be edited. What lay beside the table was in the rebuild only."""
    said = {"event_time": "at", "watermark_ms": 0}
    rows: Values = [{"at": "2026-03-01T05:00:00Z"}, {"at": "2026-03-01T01:00:00Z"}]
    table = TableWorld(tmp_path / "live", **said)
    rebuilt = TableWorld(tmp_path / "rebuilt", event_time="at")
    for number, row in enumerate(rows):
        for each in (table, rebuilt):
            each.batch("q", number, [row], start=number)
    assert table.late() == [1]
    live = open_store(replace(table.spec, late="count"))
    told = difference(spark, live, rebuilt.store, [OffsetRange(TOPIC, 0, 0, 2)])
    assert told.is_none, told
    assert told.same == 2
