"""Parts of a work on files as a job of Spark's, a task each, where there is enough to do.

Files that a task wrote before it, or another one, failed belong to no table: the vacuum's.

Spark Connect has no `sparkContext`. There a range of numbers, one a task, takes its place.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession

from strandline.lakehouse.locations.credentials import public_settings, take_settings
from strandline.lakehouse.session_remote import has_context
from strandline.lakehouse.tables.parts import Carrier, Done, Part, here

SMALL_BYTES: Final = 32 << 20
"""Less than this is read and written here before Spark has started its tasks."""


def carrier_of(spark: SparkSession) -> Carrier:
    """Carries out large works in the session's tasks, and others here."""

    def carry(
        work: Callable[[Part], Done],
        parts: Sequence[Part],
        *,
        size: int,
        undo: Callable[[Done], object],
    ) -> list[Done]:
        if size < SMALL_BYTES or not parts:
            return here(work, parts, size=size, undo=undo)
        settings = public_settings()

        def in_task(part: Part) -> Done:
            take_settings(settings)
            return work(part)

        return in_tasks(spark, in_task, parts)

    return carry


def in_tasks(
    spark: SparkSession, work: Callable[[Part], Done], parts: Sequence[Part]
) -> list[Done]:
    """What `work` makes of each part, in their order, each in a task of its own."""
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
