"""What Spark calls to write: one writer for a batch query, one for each batch of a stream.

Records are written by the tasks. There is nothing to commit on the driver, nor to undo: a topic
keeps what it was given, and what a failed query wrote stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from strandline.errors import InvalidSetting
from strandline.lakehouse.sink.columns import Columns
from strandline.lakehouse.sink.delivery import deliver
from strandline.lakehouse.sink.options import SinkOptions, parse_options


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """What a task wrote."""

    records: int


def batch_writer(
    given: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> DataSourceArrowWriter:
    """Raises `InvalidSetting`, `UnusableRows`."""
    if overwrite:
        raise InvalidSetting("mode", "A topic cannot be overwritten: use the mode append.")
    return _BatchWriter(*_checked(given, schema))


def stream_writer(given: Mapping[str, str], schema: StructType) -> DataSourceStreamArrowWriter:
    """Raises `InvalidSetting`, `UnusableRows`."""
    return _StreamWriter(*_checked(given, schema))


def _checked(given: Mapping[str, str], schema: StructType) -> tuple[SinkOptions, Columns]:
    options = parse_options(given)
    return options, Columns.of(schema, options.topic)


class _BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return Written(deliver(self._options, self._columns, iterator))


class _StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return Written(deliver(self._options, self._columns, iterator))
