"""Parts of a work on files as a job of Spark's, a task each, where there is enough to do.

Files that a task wrote before it, or another one, failed belong to no table: the vacuum's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import SparkSession

from strandline.lakehouse.locations.credentials import public_settings, take_settings
from strandline.lakehouse.pipeline.tasks import in_tasks
from strandline.lakehouse.tables.parts import SMALL_BYTES, Carrier, Done, Part, here


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
