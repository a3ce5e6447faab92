"""What a task writes of a query's rows: files that belong to no table until the driver's commit."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from strandline.lakehouse.locations.credentials import take_settings
from strandline.lakehouse.results.columns import cast
from strandline.lakehouse.tables.definition import TableSpec, partitioning
from strandline.lakehouse.tables.files import PartitionedFiles
from strandline.lakehouse.tables.written import TaskWrite

_QUERY: Final = "sql.streaming.queryId"


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """What one task wrote, and for which query of Structured Streaming (empty outside of one)."""

    query_id: str
    write: TaskWrite


def write_rows(
    spec: TableSpec,
    schema: pa.Schema,
    settings: Mapping[str, str],
    batches: Iterable[pa.RecordBatch],
) -> Written:
    """Write all rows of a task in the columns of `schema`; `settings` are of the store.

    Nothing is left if it fails. Raises UnfitRows, StoreTrouble, OSError.
    """
    take_settings(settings)
    with PartitionedFiles(spec.directory(), partitioning(spec), "result") as files:
        for batch in batches:
            files.write(cast(batch, schema))
        made = files.finish()
    context = TaskContext.get()
    query_id = None if context is None else context.getLocalProperty(_QUERY)
    return Written(query_id or "", TaskWrite(files=made, host=socket.gethostname()))
