"""The work of one batch in Spark's tasks: rows from a topic become files of a table.

There are two ways. Where our own reader serves, a task reads its offset ranges from the brokers
and writes them in the same Python process: rows never pass through the JVM. Where Spark's connector
for Kafka serves, rows come from it in Arrow batches. Both end in the same writer, and in a list of
what was written, which the driver commits. A task that is run again writes other files; only the
list of the run that succeeded counts.

This file knows Spark's two calls. It must not know commits.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
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
from strandline.lakehouse.session_remote import has_context, parallelism
from strandline.lakehouse.tables.parts import Done, Part
from strandline.lakehouse.tables.written import TaskWrite

ROWS_PER_TASK: Final = 50_000
"""Fewer are not worth a task of their own, and would only make small files."""


def write_ranges(
    spark: SparkSession, ranges: Sequence[OffsetRange], settings: ReadSettings, target: Target
) -> list[TaskWrite]:
    """Read offset ranges with our own reader and write them."""
    tasks = shares(ranges, parallelism(spark))
    return in_tasks(spark, _reading(settings, target), tasks)


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


def in_tasks(
    spark: SparkSession, work: Callable[[Part], Done], parts: Sequence[Part]
) -> list[Done]:
    """What `work` makes of each part, in their order, each in a task of its own.

    Spark Connect has no `sparkContext`. There a range of numbers, one a task, takes its place.
    """
    if has_context(spark):
        return spark.sparkContext.parallelize(parts, len(parts)).map(work).collect()

    def run(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column("id").to_pylist():
                done = pickle.dumps(work(parts[number]))
                yield pa.RecordBatch.from_pydict({"part": [number], "done": [done]})

    tasks = spark.range(0, len(parts), 1, len(parts)).mapInArrow(run, "part long, done binary")
    rows = sorted(tasks.collect(), key=lambda row: row.part)
    return [pickle.loads(row.done) for row in rows]  # noqa: S301 -- of our own tasks


def _reading(
    settings: ReadSettings, target: Target
) -> Callable[[Sequence[OffsetRange]], TaskWrite]:
    def run(ranges: Sequence[OffsetRange]) -> TaskWrite:
        with RangeReader(settings) as reader:
            return _write(chain.from_iterable(map(reader.read, ranges)), target)

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
