"""Parts of a work on files as a job of Spark's, a task each, where there is enough to do.

Files that a task wrote before it, or another one, failed belong to no table: the vacuum's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from pyspark.sql import SparkSession

from strandline.lakehouse.locations.credentials import public_settings, take_settings
from strandline.lakehouse.tables.parts import Carrier, Done, Part, here

_SMALL_BYTES: Final = 32 << 20
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
        if size < _SMALL_BYTES or len(parts) < 2:
            return here(work, parts, size=size, undo=undo)
        settings = public_settings()

        def in_task(part: Part) -> Done:
            take_settings(settings)
            return work(part)

        return spark.sparkContext.parallelize(parts, len(parts)).map(in_task).collect()

    return carry
