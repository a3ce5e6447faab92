"""A table that queries fill, and their batches, as Spark calls for them, but without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from strandline.lakehouse.query.naming import spec_named
from strandline.lakehouse.results.committing import Batch, ResultCommitter
from strandline.lakehouse.results.making import ready
from strandline.lakehouse.results.options import ResultOptions, parse_options
from strandline.lakehouse.results.proof import ResultReport, prove
from strandline.lakehouse.results.task import write_rows
from strandline.lakehouse.tables.committing import CommitResult
from strandline.lakehouse.tables.store import TableStore, open_store
from strandline.lakehouse.tables.written import TaskWrite

Schema = dict[str, pa.DataType]
SCHEMA: Schema = {"city": pa.string(), "count": pa.int32()}


def spark_schema(columns: Schema) -> StructType:
    """As Spark hands it over."""
    return from_arrow_schema(pa.schema(list(columns.items())), prefer_timestamp_ntz=True)


class ResultWorld:
    """What the options name; each call is a process of its own."""

    def __init__(self, **options: str) -> None:
        self.options: ResultOptions = parse_options(options)

    def saying(self, **fields: Any) -> ResultWorld:
        """The same with other `ResultOptions`."""
        other = ResultWorld(path=self.options.name)
        other.options = replace(self.options, **fields)
        return other

    def task(self, rows: Sequence[tuple[Any, ...]], schema: Schema = SCHEMA) -> TaskWrite:
        """What a task writes of rows."""
        store, columns = ready(self.options, spark_schema(schema))
        arrays = [
            pa.array([row[at] for row in rows], kind) for at, kind in enumerate(schema.values())
        ]
        batch = pa.RecordBatch.from_arrays(arrays, list(schema))
        return write_rows(store.spec, columns, {}, [batch] if rows else []).write

    def batch(
        self,
        query: str,
        number: int,
        rows: Sequence[tuple[Any, ...]],
        *,
        schema: Schema = SCHEMA,
        replaces: bool = False,
    ) -> CommitResult:
        """Write rows in two tasks, and commit them."""
        half = (len(rows) + 1) // 2
        writes = [self.task(part, schema) for part in (rows[:half], rows[half:])]
        return self.committer(schema).commit(Batch(query, number, replaces), writes)

    def job(self, rows: Sequence[tuple[Any, ...]], *, overwrite: bool = False) -> CommitResult:
        """Rows of no stream."""
        return self.batch("", -1, rows, replaces=overwrite)

    def committer(self, schema: Schema = SCHEMA) -> ResultCommitter:
        """As the driver has it."""
        return ResultCommitter(ready(self.options, spark_schema(schema)).store, self.options)

    @property
    def store(self) -> TableStore:
        """The table as others see it."""
        return open_store(spec_named(self.options.name, self.options.tables))

    def rows(self) -> list[tuple[Any, ...]]:
        """All rows, sorted."""
        found = self.store.dataset().to_table().to_pylist()
        return sorted((tuple(row.values()) for row in found), key=repr)

    def files(self) -> int:
        """Parquet files in the table's directory, of whatever version."""
        return len(list(self.store.spec.directory().local.glob("*.parquet")))

    def proof(self) -> ResultReport:
        """What verify shows."""
        return prove(self.store)
