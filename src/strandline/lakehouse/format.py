"""What Spark calls: the format `strandline` for reading and writing, in batches and streams.

This file translates between Spark's Python Data Source API and the source and sink behind it; it
decides nothing. A stream reader lives in one process of the driver for as long as its query; tasks
get a copy that has not connected to anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from strandline.client.clock import SystemClock
from strandline.errors import InvalidSetting
from strandline.lakehouse.decode.schema import kafka_schema
from strandline.lakehouse.sink.format import batch_writer, stream_writer
from strandline.lakehouse.source.options import SourceOptions, parse_options
from strandline.lakehouse.source.planner import StreamPlanner, Wait, batch_ranges
from strandline.lakehouse.source.positions import Positions
from strandline.lakehouse.source.task import read_task

FORMAT: Final = "strandline"


class StrandlineDataSource(DataSource):
    """Topics as tables of rows. Options are those of Spark's own `kafka` format (docs/spark.md)."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        """The columns; mistakes in the options are told here, when the query is written."""
        return _rows_of(parse_options(self.options, is_stream=None))

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(_checked(parse_options(self.options, is_stream=False), schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return StreamReader(_checked(parse_options(self.options, is_stream=True), schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return batch_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        del overwrite  # only the output mode complete sets it: each batch then is the whole result
        return stream_writer(self.options, schema)


class BatchReader(DataSourceReader):
    """Reads ranges that are fixed when the query is planned."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(each) for each in batch_ranges(self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Says how far each batch goes, and reads it."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._made: StreamPlanner | None = None

    @property
    def _planner(self) -> StreamPlanner:
        if self._made is None:
            self._made = StreamPlanner(self._options, SystemClock())
        return self._made

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return self._planner.initial().document()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        limits = self._options.limits
        if limits.at_least is not None:
            # The interface has no limit with two sides: the other one is looked up in the options.
            return ReadMinRows(limits.at_least)
        return ReadAllAvailable() if limits.at_most is None else ReadMaxRows(limits.at_most)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        limits = self._options.limits
        at_most = None if isinstance(limit, ReadAllAvailable) else limits.at_most
        wait = None
        if isinstance(limit, ReadMinRows):
            wait = Wait(limit.min_rows, limits.delay_ms)
        before = Positions.parse(start)
        end = self._planner.latest(before, at_most=at_most, wait=wait)
        return start if end == before else end.document()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._planner.stop_at_present_end()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        seen = self._planner.seen()
        return None if seen is None else seen.document()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        ranges = self._planner.ranges(Positions.parse(start), Positions.parse(end))
        return [InputPartition(each) for each in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, partition)

    def stop(self) -> None:
        if self._made is not None:
            self._made.close()


def _rows_of(options: SourceOptions) -> StructType:
    return from_arrow_schema(kafka_schema(options.reading.with_headers))


def _checked(options: SourceOptions, schema: StructType) -> SourceOptions:
    if schema != _rows_of(options):
        raise InvalidSetting(
            "schema", "The rows of a topic have one schema: leave schema() out and cast columns."
        )
    return options


def _read(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    # Spark makes one empty partition for a query that has none.
    return iter(()) if partition.value is None else read_task(options, partition.value)
