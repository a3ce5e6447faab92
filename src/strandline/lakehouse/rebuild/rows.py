"""A table's rows as a Spark data frame, in the table's types, whatever the single files have."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from strandline.lakehouse.frames import frame_of
from strandline.lakehouse.tables.presence import check_present
from strandline.lakehouse.tables.store import TableStore
from strandline.lakehouse.tables.writing import value_columns

_TASKS_MAX: Final = 64


def rows_of(spark: SparkSession, store: TableStore, side: str | None) -> DataFrame:
    """All columns but those that only say how files are divided; `side` is a table beside it.

    Files that were written before a column was added or widened have null, or the wider value.
    Raises BadTable if files are gone.
    """
    spec = store.spec
    columns = value_columns(spec, store.state().schema)
    files = store.files(side)
    check_present(files)
    return frame_of(
        spark,
        [each.path for each in files],
        pa.schema([*columns, *spec.own_columns()]),
        tasks_max=_TASKS_MAX,
    )
