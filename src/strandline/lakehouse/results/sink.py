"""Batches of a stream into a table by key, each exactly once, and the rows of jobs.

    sink = strandline.TableSink({"path": "city_counts", "keys": "window, city"})
    counts.writeStream.outputMode("update").foreachBatch(sink).option("checkpointLocation", ...)

Theory: Spark does not let Python data sources be written in the output mode update. `foreachBatch`
takes it, and is told the number of the batch; the rest is what the format does. A batch that the
table has is carried out all the same, and its files are dropped: only the rows' own job writes the
state of the query that Spark asks for at the next batch.

Spark calls a format for its commits in a process that has no session. The sink is called in one
that has: what it merges by keys is carried out by tasks, if it is much. So jobs may go this way.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from strandline.lakehouse.locations.credentials import public_settings
from strandline.lakehouse.pipeline.parts_in_spark import carrier_of
from strandline.lakehouse.results.committing import Batch, ResultCommitter
from strandline.lakehouse.results.format import query_of, writes_of
from strandline.lakehouse.results.making import ready
from strandline.lakehouse.results.options import parse_options
from strandline.lakehouse.results.task import Written, write_rows
from strandline.lakehouse.session_remote import has_context
from strandline.lakehouse.tables.definition import TableSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_QUERY: Final = "sql.streaming.queryId"
"""The property that tasks look at, too."""


class TableSink:
    """Writes batches of a stream to a table, exactly once each. For `foreachBatch`; `save` writes
    the rows of a job.

    `options` are those of the format `strandline_table` for writing. With `keys`, names of columns
    with commas between them, a row takes the place of the one with its key; without, rows are
    appended. Raises `InvalidSetting` for an option that is missing or wrong.

    A batch is known by the id of its query, which its checkpoint keeps, and its number there.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = parse_options(options)

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        """Write a batch, unless the table has it. Raises `TableError`, and `UnfitRows` when the
        rows do not fit the table."""

        def batch_of(messages: list[Written]) -> Batch:
            query_id = "" if messages else _query_of_thread(rows.sparkSession)
            return Batch(query_id or query_of(messages), batch_id, replaces=False)

        self._write(rows, batch_of)

    def save(self, rows: DataFrame, *, overwrite: bool = False) -> None:
        """Write rows in one commit, beside those that are there, by their keys if the table has
        keys, or with `overwrite` in the place of all. A job has no number: one that is run again
        writes again. Raises as a call does."""
        self._write(rows, lambda _: Batch("", -1, replaces=overwrite))

    def _write(self, rows: DataFrame, batch_of: Callable[[list[Written]], Batch]) -> None:
        store, columns = ready(self._options, rows.schema)
        work = _writing(store.spec, columns, public_settings())
        told = rows.mapInArrow(work, "message binary").collect()
        messages: list[Written] = [
            pickle.loads(each.message)  # noqa: S301 -- of our own tasks
            for each in told
        ]
        committer = ResultCommitter(store, self._options, carrier_of(rows.sparkSession))
        committer.commit(batch_of(messages), writes_of(messages))


def _query_of_thread(spark: SparkSession) -> str:
    """As the driver knows it: no task runs for a batch that Spark finds empty as it plans. Empty if
    this is no driver, or no thread of a query's."""
    if not has_context(spark):
        return ""
    return spark.sparkContext.getLocalProperty(_QUERY) or ""


def _writing(
    spec: TableSpec, columns: pa.Schema, settings: Mapping[str, str]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        message = pickle.dumps(write_rows(spec, columns, settings, batches))
        yield pa.RecordBatch.from_pydict({"message": [message]})

    return write
