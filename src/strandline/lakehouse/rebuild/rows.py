"""A table's rows as a Spark data frame, in the table's types, whatever the single files have."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from strandline.lakehouse.tables.locations import spark_path
from strandline.lakehouse.tables.presence import check_present
from strandline.lakehouse.tables.store import TableStore
from strandline.lakehouse.tables.writing import value_columns


def rows_of(spark: SparkSession, store: TableStore, side: str | None) -> DataFrame:
    """All columns but those that only say how files are divided; `side` is a table beside it.

    Files that were written before a column was added or widened have null, or the wider value.
    Raises BadTable if files are gone.
    """
    spec = store.spec
    columns = value_columns(spec, store.state().schema)
    schema = from_arrow_schema(pa.schema([*columns, *spec.own_columns()]))
    files = store.files(side)
    if not files:
        return spark.createDataFrame([], schema)
    check_present(files)
    paths = [spark_path(each.path) for each in files]
    return spark.read.schema(schema).parquet(*paths)
