"""What is compared: where a table has rows, and what the log has, both as Spark's data frames.

A table's rows are read from its Parquet files, only the columns that say where a record came from.
The log is read by tasks with our own reader, each its share of the offsets; what the records hold
is dropped in the task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from strandline.lakehouse.frames import frame_of
from strandline.lakehouse.pipeline.tasks import shares
from strandline.lakehouse.reading.ranges import OffsetRange, RangeReader
from strandline.lakehouse.reading.settings import ReadSettings
from strandline.lakehouse.session_remote import parallelism
from strandline.lakehouse.tables.backend import DataFile
from strandline.lakehouse.tables.definition import (
    DEAD_LETTERS,
    DROPPED,
    EXPIRED,
    LATE,
    TableSpec,
)

_OFFSETS_PER_TASK = 1_000_000
_READING_TASKS_MAX = 64

_LOGGED = "topic string, partition int, offset long, key binary, deleted boolean"


def held(
    spark: SparkSession, spec: TableSpec, side: str | None, files: Sequence[DataFile]
) -> DataFrame:
    """topic, partition, offset and key of the rows in a table's files, or those of one beside it.

    Keys are null where the table does not keep them. Notes of lost ranges are not rows. `row` is
    the number of the row among those of its record, where the table keeps one; a dropped
    or expired record counts as a row of that side table.
    """
    has_key = side == DEAD_LETTERS or (side is None and spec.with_key)
    names = spec.names
    columns = [
        (names.topic, pa.string()),
        (names.partition, pa.int32()),
        (names.offset, pa.int64()),
    ]
    if has_key:
        columns.append((names.key, pa.binary()))
    has_row = side in (None, LATE) and spec.explode
    if has_row:
        columns.append((names.row, pa.int64()))
    if side in (DEAD_LETTERS, DROPPED, EXPIRED):
        columns.append((names.offset_end, pa.int64()))
    rows = frame_of(
        spark, [each.path for each in files], pa.schema(columns), tasks_max=_READING_TASKS_MAX
    )
    if side == DEAD_LETTERS:
        rows = rows.where(f"{names.offset_end} = {names.offset} + 1")
    offset = f.col(names.offset)
    if side in (DROPPED, EXPIRED):
        offset = f.explode(f.sequence(offset, f.col(names.offset_end) - 1))
    return rows.select(
        f.col(names.topic).alias("topic"),
        f.col(names.partition).alias("partition"),
        offset.alias("offset"),
        (f.col(names.key) if has_key else f.lit(None).cast("binary")).alias("key"),
        (f.col(names.row) if has_row else f.lit(None).cast("long")).alias("row"),
    )


def logged(
    spark: SparkSession, ranges: Sequence[OffsetRange], settings: ReadSettings, *, with_keys: bool
) -> DataFrame:
    """topic, partition, offset, key, and whether the value is null, of the records in the log.

    Raises, when it is carried out, what `RangeReader.read` raises.
    """
    if not ranges:
        return spark.createDataFrame([], _LOGGED)
    offsets = sum(each.end - each.start for each in ranges)
    most = max(parallelism(spark), offsets // _OFFSETS_PER_TASK)
    tasks = shares(ranges, most)
    numbers = spark.range(0, len(tasks), 1, len(tasks))
    return numbers.mapInArrow(_reading(tasks, settings, with_keys=with_keys), _LOGGED)


def _reading(
    tasks: Sequence[Sequence[OffsetRange]], settings: ReadSettings, *, with_keys: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with RangeReader(settings) as reader:
            for batch in numbers:
                for number in batch.column("id").to_pylist():
                    for each in tasks[number]:
                        yield from map(keep, reader.read(each))

    def keep(batch: pa.RecordBatch) -> pa.RecordBatch:
        key = batch.column("key") if with_keys else pa.nulls(batch.num_rows, pa.binary())
        return pa.RecordBatch.from_arrays(
            [
                batch.column("topic").cast(pa.string()),
                batch.column("partition"),
                batch.column("offset"),
                key,
                pc.is_null(batch.column("value")),
            ],
            ["topic", "partition", "offset", "key", "deleted"],
        )

    return run
