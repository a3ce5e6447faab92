"""The work of one batch in Spark's tasks: rows from a topic become files of a table.

There are two ways. Where our own reader serves, a task reads its offset ranges from the brokers
and writes them in the same Python process: rows never pass through the JVM. Where Spark's connector
for Kafka serves, rows come from it in Arrow batches. Both end in the same writer, and in a list of
what was written, which the driver commits. A task that is run again writes other files; only the
list of the run that succeeded counts.

This file knows Spark's two calls. It must not know commits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from strandline.lakehouse.locations.credentials import take_settings
from strandline.lakehouse.pipeline.target import Target, batch_writer
from strandline.lakehouse.reading.ranges import OffsetRange, RangeReader
from strandline.lakehouse.reading.settings import ReadSettings
from strandline.lakehouse.tables.written import TaskWrite

ROWS_PER_TASK: Final = 50_000
"""Fewer are not worth a task of their own, and would only make small files."""


def write_ranges(
    spark: SparkSession, ranges: Sequence[OffsetRange], settings: ReadSettings, target: Target
) -> list[TaskWrite]:
    """Read offset ranges with our own reader and write them."""
    context = spark.sparkContext
    tasks = shares(ranges, context.defaultParallelism)
    done = context.parallelize(tasks, len(tasks)).mapPartitions(_reading(settings, target))
    return [TaskWrite.from_json(text) for text in done.collect()]


def write_rows(rows: DataFrame, target: Target) -> list[TaskWrite]:
    """Write rows that Spark reads."""
    done = rows.mapInArrow(_taking(target), "written string")
    return [TaskWrite.from_json(row.written) for row in done.collect()]


def shares(ranges: Sequence[OffsetRange], most: int) -> list[list[OffsetRange]]:
    """Cut ranges for at most so many tasks, each with about the same number of offsets.

    A task's ranges follow one another: it writes few files, and reads long stretches.
    """
    total = sum(each.end - each.start for each in ranges)
    tasks = max(1, min(most, -(-total // ROWS_PER_TASK)))
    share = -(-total // tasks)
    found: list[list[OffsetRange]] = [[]]
    room = share
    for each in ranges:
        start = each.start
        while start < each.end:
            if room == 0:
                found.append([])
                room = share
            end = min(each.end, start + room)
            found[-1].append(replace(each, start=start, end=end))
            room -= end - start
            start = end
    return [each for each in found if each]


def _reading(
    settings: ReadSettings, target: Target
) -> Callable[[Iterable[list[OffsetRange]]], Iterator[str]]:
    def run(shares_of_task: Iterable[list[OffsetRange]]) -> Iterator[str]:
        with RangeReader(settings) as reader:
            ranges = chain.from_iterable(shares_of_task)
            batches = chain.from_iterable(map(reader.read, ranges))
            yield _write(batches, target).to_json()

    return run


def _taking(
    target: Target,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        text = _write(batches, target).to_json()
        yield pa.RecordBatch.from_arrays([pa.array([text])], ["written"])

    return run


def task_name() -> str:
    """Of the task that runs, for the names of its files."""
    task = TaskContext.get()
    return "0" if task is None else f"{task.partitionId()}-{task.taskAttemptId()}"


def _write(batches: Iterator[pa.RecordBatch], target: Target) -> TaskWrite:
    take_settings(target.stores)
    writer = batch_writer(target, task_name())
    try:
        for batch in batches:
            writer.write(batch)
        return writer.finish()
    except BaseException:
        writer.abort()
        raise
