"""Files of a table as a Spark data frame.

Spark reads files of a local disk itself. For a store it would need jars and keys of its own, which
differ from those that the table is written with; there, tasks read the files as they wrote them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from strandline.lakehouse.locations.credentials import public_settings, take_settings
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.tables.reading import read_batches


def frame_of(
    spark: SparkSession, files: Sequence[Location], columns: pa.Schema, *, tasks_max: int
) -> DataFrame:
    """The rows of Parquet files in the columns of `columns`; null what a file has not.

    A store's files are read by at most `tasks_max` tasks.
    """
    schema = from_arrow_schema(columns)
    if not files:
        return spark.createDataFrame([], schema)
    if files[0].is_local:
        return spark.read.schema(schema).parquet(*[each.spark for each in files])
    tasks = min(len(files), tasks_max)
    shares = [list(files[number::tasks]) for number in range(tasks)]
    numbers = spark.range(0, tasks, 1, tasks)
    return numbers.mapInArrow(_reading(shares, columns, public_settings()), schema)


def _reading(
    shares: Sequence[Sequence[Location]], columns: pa.Schema, settings: Mapping[str, str]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        take_settings(settings)
        for batch in numbers:
            for number in batch.column("id").to_pylist():
                yield from read_batches(shares[number], columns)

    return run
