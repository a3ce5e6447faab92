"""Records that became several rows, some of which are gone for their age."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from strandline.lakehouse.pipeline.target import Target
from strandline.lakehouse.tables.definition import EXPIRED, parse_partitioning
from strandline.lakehouse.tables.identity import BatchIdentity, OffsetRange
from strandline.lakehouse.transforming.writing import TransformedRows
from strandline.lakehouse.verify.job import _verdict
from strandline.lakehouse.verify.report import Verdict
from tests.lakehouse.tables.table_world import TOPIC, TableWorld

DAY_MS = 86_400_000
COUNTS = (
    "log long, rows long, late long, dead_letters long, dropped long, expired long, "
    "numbers long, different long, offset long, start long, end long, log_start long, "
    "compacted boolean"
)


def of_days(table: TableWorld, cities: dict[str, list[int]]) -> list[tuple[int, str, int]]:
    """Rows of `cities`, a record per day: the day, the city, and the number of the row."""
    found: list[tuple[int, str, int]] = []
    for day in sorted({each for days in cities.values() for each in days}):
        mine = [city for city, days in cities.items() if day in days]
        found += [(day, city, number) for number, city in enumerate(mine)]
    columns = {
        "city": pa.array([city for _, city, _ in found]),
        "kafka_topic": pa.array([TOPIC] * len(found)),
        "kafka_partition": pa.array([0] * len(found), pa.int32()),
        "kafka_offset": pa.array([day for day, _, _ in found]),
        "kafka_timestamp": pa.array(
            [day * DAY_MS * 1000 for day, _, _ in found], pa.timestamp("us", "UTC")
        ),
    }
    target = Target(table.spec, table.store.state(), {})
    writer = TransformedRows(target, {}, "0")
    writer.write(pa.RecordBatch.from_pydict(columns))
    ranges = (OffsetRange(TOPIC, 0, 0, 1 + max(day for day, _, _ in found)),)
    table.store.commit(BatchIdentity("q", 0, ranges), [writer.finish()])
    return found


def test_rows_of_one_record_that_expire_one_by_one_are_no_fault(
    spark: SparkSession, tmp_path: Path
) -> None:
    """They are in files of several divisions. The record was noted twice, and counted so."""
    table = TableWorld(
        tmp_path / "t",
        transform="m:f",
        explode=True,
        columns={"city": "string"},
        partition_by=parse_partitioning("city"),
        expire_rows_ms=10 * DAY_MS,
    )
    of_days(table, {"B": [0], "C": [0, 1]})

    def judged() -> str:
        rows = [row["kafka_row"] for row in table.rows() if row["kafka_offset"] == 0]
        notes = table.store.dataset(EXPIRED).to_table().to_pylist()
        expired = sum(each["kafka_offset"] <= 0 < each["kafka_offset_end"] for each in notes)
        numbers = max(rows, default=0) + 1
        counts = (1, len(rows), 0, 0, 0, expired, numbers, len(set(rows)), 0, 0, 2, 0, False)
        frame = spark.createDataFrame([counts], COUNTS)
        [told] = frame.select(_verdict(explodes=True).alias("told")).collect()
        return str(told.told)

    assert judged() == Verdict.GOOD.value
    for days, left in ((10.5, 2), (11.5, 0)):
        table.store.expire(now_ms=int(days * DAY_MS))
        assert (len(table.rows()), judged()) == (left, Verdict.GOOD.value)
