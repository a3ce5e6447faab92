"""Selects that are refused when a table is made, and those of which nothing can be said yet."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from strandline.errors import InvalidSetting
from strandline.lakehouse.transforming.checking import check_select
from tests.lakehouse.tables.table_world import TableWorld

SCHEMA = '{"type": "object", "properties": {"n": {"type": "integer"}}}'


@pytest.mark.parametrize(
    ("select", "fields", "said"),
    [
        ("selct * from batch", {}, "Syntax error at or near 'selct'"),
        ("select * from flights", {}, "does not read 'batch'"),
        ("select n, m * 2 as twice from batch", {}, "gives no column kafka_topic"),
        ("select *, n as m, 2 as m from batch", {}, "gives two columns m"),
        ("select {place}, nosuch from batch", {"value_format": "raw"}, "name `nosuch` cannot"),
        ("select {place}, m from batch", {"schema": SCHEMA, "evolve": False}, "name `m` cannot"),
        ("select {place} from batch", {"event_time": "at"}, "gives no column at"),
    ],
)
def test_a_select_that_no_batch_can_go_through_is_refused(
    spark: SparkSession, select: str, fields: dict[str, Any], said: str
) -> None:
    spec = TableWorld.spec_in("/nowhere", select=select, **fields)
    with pytest.raises(InvalidSetting, match=said):
        check_select(spark, spec)


@pytest.mark.parametrize(
    ("select", "fields"),
    [
        ("select *, amount * 2 as doubled from batch where amount is not null", {}),
        ("SELECT {place}, after.*, op FROM Batch where op in ('c', 'u')", {"mode": "upsert"}),
        ("select b.*, c.name from batch b join cities c on b.city = c.id", {}),
        ("select {place}, ours(n) as n from batch", {"schema": SCHEMA, "evolve": False}),
        ("select *, kafka_timestamp as at from batch", {"event_time": "at"}),
        ("select * from batch", {"event_time": "at"}),
        ("select * except(day), to_date(at) as day from batch", {"columns": {"day": "date"}}),
        ("select {place}, explode(items) as item from batch", {"explode": True}),
    ],
)
def test_what_only_records_or_sessions_can_say_is_left_to_them(
    spark: SparkSession, select: str, fields: dict[str, Any]
) -> None:
    check_select(spark, TableWorld.spec_in("/nowhere", select=select, **fields))
