"""What Spark calls: the format `strandline_table`, which reads and writes tables by their names.

    spark.read.format("strandline_table").load("orders")
    spark.read.format("strandline_table").option("commit", 12).load("orders")
    spark.read.format("strandline_table").option("since", 12).load("orders")

Theory: the planner lists the files of one moment, and tasks read them, each its share. Filters that
mean the same to pyarrow are handed to its reader, which passes over the row groups whose statistics
exclude them, and so over whole files of other partitions. Spark hands filters to Python sources
only where `spark.sql.python.filterPushdown.enabled` is set, and else refuses a reader that could
take them: so there are two readers. Writing is the business of `results`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from strandline.errors import InvalidSetting
from strandline.lakehouse.locations import stores
from strandline.lakehouse.locations.credentials import public_settings, take_settings
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.options import Options
from strandline.lakehouse.query.filters import expression_of
from strandline.lakehouse.query.moments import Scan, scan_of
from strandline.lakehouse.query.naming import spec_named
from strandline.lakehouse.results.format import ResultStreamWriter, ResultWriter
from strandline.lakehouse.tables.store import open_store

FORMAT: Final = "strandline_table"
_KNOWN: Final = ("path", "tables", "commit", "since")
_TASKS_MAX: Final = 200
_BATCH_ROWS: Final = 65_536
_PUSHES: Final = "pyspark.sql.worker.data_source_pushdown_filters"


class TableDataSource(DataSource):
    """Tables by name, or by their directory (`load`); see docs/spark.md for the options."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        """The columns at the commit that is read."""
        return from_arrow_schema(_scan(self.options).columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        scan = _scan(self.options)
        if schema != from_arrow_schema(scan.columns):
            raise InvalidSetting(
                "schema", "A table's columns are its own: leave schema() out and select."
            )
        return FilteringReader(scan) if _takes_filters() else TableReader(scan)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For the modes append and overwrite."""
        return ResultWriter(self.options, schema, overwrite=overwrite)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        """For the output modes append and, with `overwrite`, complete."""
        return ResultStreamWriter(self.options, schema, complete=overwrite)


@dataclass
class _Share(InputPartition):
    """The files of one task."""

    files: Sequence[Location]


class TableReader(DataSourceReader):
    """Reads the files of one moment."""

    def __init__(self, scan: Scan) -> None:
        self._scan = scan
        self._filters: list[Any] = [] if scan.rows is None else [scan.rows]
        self._stores: Mapping[str, str] = public_settings()

    def partitions(self) -> Sequence[InputPartition]:
        """A file per task, or several where there are many."""
        files = self._scan.files
        tasks = min(len(files), _TASKS_MAX)
        return [_Share(files[number::tasks]) for number in range(tasks)] or [_Share([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task."""
        assert isinstance(partition, _Share)
        take_settings(self._stores)
        if not partition.files:
            return
        rows = stores.dataset(partition.files, self._scan.columns)
        wanted = reduce(and_, self._filters) if self._filters else None
        for batch in rows.to_batches(filter=wanted, batch_size=_BATCH_ROWS):
            if batch.num_rows:
                yield batch


class FilteringReader(TableReader):
    """The same where Spark hands filters over."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Keep those that pyarrow carries out; the others are left to Spark."""
        for each in filters:
            found = expression_of(each, self._scan.columns)
            if found is None:
                yield each
            else:
                self._filters.append(found)


def _scan(given: Mapping[str, str]) -> Scan:
    options = Options(given, known=_KNOWN, what="format strandline_table")
    name = options.text("path")
    if not name:
        raise InvalidSetting("path", "Which table is read stands in load(): its name or directory.")
    store = open_store(spec_named(name, options.text("tables")))
    return scan_of(
        store, commit=options.number("commit"), since=options.number("since", at_least=0)
    )


def _takes_filters() -> bool:
    """Whether Spark asks for a reader in the process that hands filters over."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return (main is not None and main.name == _PUSHES) or _PUSHES in sys.modules
