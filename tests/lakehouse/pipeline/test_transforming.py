"""Tables with the user's PySpark in between: what is kept, dropped, exploded, refused, proven."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import replace

import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from strandline.lakehouse.deadletters.listing import list_letters
from strandline.lakehouse.tables.definition import DROPPED, LATE
from strandline.lakehouse.tables.store import open_store
from strandline.lakehouse.transforming.given import named
from strandline.lakehouse.transforming.replaying import replay_through
from strandline.lakehouse.verify.report import EXPLODED, Report, Verdict
from tests.lakehouse.pipeline.conftest import TableUnderTest

MakeTable = Callable[..., TableUnderTest]
HOUR = 3_600_000
ORDERS = [
    {"id": 1, "city": "B", "amount": 5, "items": ["x", "y"]},
    {"id": 2, "city": "C", "amount": -1, "items": []},
    {"id": 3, "city": "?", "amount": 7, "items": ["x"]},
]


def at(hour: int) -> str:
    return f"2026-03-01T{hour:02d}:00:00Z"


def places(report: Report) -> dict[str, int]:
    return {name: report.place(name) for name in ("rows", "late", "dead_letters", "dropped")}


def dropped(table: TableUnderTest) -> list[tuple[int, int]]:
    rows = table.store.dataset(DROPPED).to_table().to_pylist()
    return sorted((row["kafka_offset"], row["kafka_offset_end"]) for row in rows)


def test_a_filter_and_a_join_keep_fence_letters_late_rows_and_proof(make_table: MakeTable) -> None:
    """Two batches through a function of data frames, with a static table on its right side; the
    second batch lacks a field of the first, has a new one, and comes late in part."""
    table = make_table(
        partitions=2,
        event_time="at",
        watermark_ms=HOUR,
        columns={"at": "timestamp"},
        transform="tests:enriched",
    )
    cities = table.spark.createDataFrame(
        [("B", "Berlin"), ("C", "Cork")], "city string, name string"
    )

    def enriched(batch: DataFrame) -> DataFrame:
        rows = batch.where("amount > 0").join(f.broadcast(cities), "city", "left")
        return rows.withColumn("doubled", f.col("amount") * 2).drop("items")

    through = named(enriched)
    table.produce([(b"k", {**each, "at": at(5)}) for each in ORDERS])
    table.produce([(b"k", b"{poison")], partition=1)
    table.run(transform=through)
    [commit] = table.commits
    assert (commit.rows, commit.dropped, commit.dead_letters) == (2, 1, 1)
    table.produce([(b"k", {"id": 4, "amount": 1, "new": 1.5, "at": at(3)})], partition=1)
    table.produce([(b"k", {"id": 5, "amount": -1, "at": at(6)}), (b"k", None)])
    table.run(transform=through)
    [commit] = table.commits
    assert (commit.rows, commit.late_rows, commit.dropped) == (0, 1, 2)
    assert table.rows("id", "name", "doubled") == [(1, "Berlin", 10), (3, None, 14)]
    late = table.store.dataset(LATE).to_table().to_pylist()
    assert [(row["id"], row["new"], row["city"]) for row in late] == [(4, 1.5, None)]
    assert dropped(table) == [(1, 2), (3, 5)]
    report = table.verify()
    assert report.is_good, report
    assert places(report) == {"rows": 2, "late": 1, "dead_letters": 1, "dropped": 3}
    assert report.total(Verdict.GOOD) == 7
    assert "3 records were dropped by the table's transform." in report.sentences()
    assert [each.through for each in table.store.history()] == [through.label] * 2


def test_a_select_explodes_records_into_numbered_rows(make_table: MakeTable) -> None:
    """Rows of one record are told apart; a letter that can be read after a mend goes through too,
    and one row that is gone is missed."""
    table = make_table(
        select="select {place}, id, explode(items) as item from batch", explode=True, partitions=2
    )
    for partition in (0, 1):
        table.produce(((None, each) for each in ORDERS), partition)
    table.run()
    [commit] = table.commits
    assert (commit.rows, commit.dropped) == (6, 2)
    got = [(1, "x", 0), (1, "y", 1), (3, "x", 0)]
    rows = sorted(table.rows("kafka_topic", "id", "item", "kafka_row"))
    assert rows == sorted((table.topic, *row) for row in got * 2)

    table.produce([(None, {"id": 9.5, "items": ["z", "z"]})])
    table.run()
    [letter] = list_letters(table.store)
    assert letter.offset == 3
    report = table.verify()
    assert report.is_good, report
    assert report.place(EXPLODED) == 2
    assert report.total(Verdict.GOOD) == 7

    select = "select {place}, cast(id as long) as id, explode(items) as item from batch"
    mended = open_store(replace(table.spec, select=select, columns={"id": "double"}))
    assert replay_through(mended).replayed == 1
    assert sorted(table.rows("id", "item", "kafka_row"))[-2:] == [(9, "z", 0), (9, "z", 1)]
    assert table.verify(everything=True).total(Verdict.GOOD) == 7

    lone = min(mended.files(), key=lambda file: file.rows)
    rows = pq.read_table(lone.path)
    pq.write_table(rows.slice(1), lone.path)
    assert not table.verify().is_good
    assert table.verify(everything=True).total(Verdict.MISSING) == 1


def test_what_is_dropped_is_no_row_of_its_key(make_table: MakeTable) -> None:
    """An upserted table is what the filter leaves of the newest records."""
    table = make_table(mode="upsert", buckets=2, select="select * from batch where open")
    table.produce([(b"a", {"n": 1, "open": True}), (b"b", {"n": 2, "open": True}), (b"c", None)])
    table.run()
    assert table.commits[0].dropped == 0
    table.produce([(b"a", {"n": 3, "open": False}), (b"d", {"n": 4, "open": False})])
    table.produce([(b"b", {"n": 5, "open": True})])
    table.run()
    assert (table.commits[0].rows, table.commits[0].dropped) == (1, 2)
    assert table.rows("kafka_key", "n") == [(b"b", 5)]
    report = table.verify()
    assert report.is_good, report


def test_times_are_those_of_utc_in_whatever_session(make_table: MakeTable) -> None:
    """A program's session has the zone of its machine, and keeps it and its views. A letter that
    is replayed goes the same way."""
    zone = "spark.sql.session.timeZone"
    table = make_table(
        select="select {place}, hour(at) as hour, cast(at as date) as day, name, "
        "unix_seconds(cast(text as timestamp)) as text from batch cross join names",
        columns={"at": "timestamp", "n": "long"},
    )
    before = table.spark.conf.get(zone)
    assert before is not None
    table.spark.conf.set(zone, "Asia/Kolkata")
    try:
        names = table.spark.createDataFrame([("seen",)], "name string")
        names.createOrReplaceTempView("names")
        record = {"at": at(20), "text": "1970-01-01 00:00:01"}
        table.produce([(None, {**record, "n": 1}), (None, {**record, "n": 1.5})])
        table.run()
        mended = replace(table.spec, columns={"at": "timestamp", "n": "double"})
        assert replay_through(open_store(mended)).replayed == 1
        assert table.spark.conf.get(zone) == "Asia/Kolkata"
    finally:
        table.spark.catalog.dropTempView("names")
        table.spark.conf.set(zone, before)
    row = (20, datetime.date(2026, 3, 1), "seen", 1)
    assert table.rows("hour", "day", "name", "text") == [row, row]
