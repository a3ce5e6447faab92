"""What Spark calls to write tables: one writer for a job, one for each batch of a stream.

Theory: Spark makes a writer anew for each batch and again for its commit, each time in a process of
its planner's, and copies it into tasks; so nothing is remembered here, and everything that decides
is in the table. After a failed commit Spark calls `abort` in yet another process, which cannot know
whether the commit was made. Files are removed there only if a task failed, since then none was
tried; the commit itself removes them where it is sure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from strandline.lakehouse.locations.credentials import public_settings
from strandline.lakehouse.results.committing import Batch, ResultCommitter
from strandline.lakehouse.results.making import ready
from strandline.lakehouse.results.options import ResultOptions, parse_options
from strandline.lakehouse.results.task import Written, write_rows
from strandline.lakehouse.tables.errors import BadTable
from strandline.lakehouse.tables.store import open_store
from strandline.lakehouse.tables.written import TaskWrite


class _Writing:
    """What both writers do."""

    def __init__(self, given: Mapping[str, str], schema: StructType, *, replaces: bool) -> None:
        """Raises `InvalidSetting`, `UnfitRows`, `TableError`, `StoreTrouble`."""
        self._options: ResultOptions = parse_options(given)
        store, self._columns = ready(self._options, schema)
        self._spec = store.spec
        self._replaces = replaces
        self._settings = public_settings()

    def rows(self, batches: Iterator[pa.RecordBatch]) -> Written:
        """In a task."""
        return write_rows(self._spec, self._columns, self._settings, batches)

    def commit(self, query_id: str, batch_id: int, writes: Sequence[TaskWrite]) -> None:
        batch = Batch(query_id, batch_id, self._replaces)
        ResultCommitter(open_store(self._spec), self._options).commit(batch, writes)

    def discard(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if None in messages:
            open_store(self._spec).discard(writes_of(messages))


class ResultWriter(DataSourceArrowWriter):
    """Writes the rows of a job, in one commit."""

    def __init__(self, given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        self._writing = _Writing(given, schema, replaces=overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self._writing.rows(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._writing.commit("", -1, writes_of(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._writing.discard(messages)


class ResultStreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a stream, each in one commit; `complete` ones replace all rows."""

    def __init__(self, given: Mapping[str, str], schema: StructType, *, complete: bool) -> None:
        self._writing = _Writing(given, schema, replaces=complete)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self._writing.rows(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._writing.commit(query_of(messages), batchId, writes_of(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        del batchId
        self._writing.discard(messages)


def writes_of(messages: Sequence[WriterCommitMessage | None]) -> list[TaskWrite]:
    """What the tasks that did not fail have written."""
    return [each.write for each in messages if isinstance(each, Written)]


def query_of(messages: Sequence[WriterCommitMessage | None]) -> str:
    """The query whose batch it is, as the tasks saw it. Raises BadTable if they did not."""
    found = {each.query_id for each in messages if isinstance(each, Written)}
    query_id = next(iter(found), "")
    if len(found) != 1 or not query_id:
        raise BadTable(
            "Spark did not tell its tasks for which query they write, so that a batch could not be "
            "known again. Nothing was committed."
        )
    return query_id
