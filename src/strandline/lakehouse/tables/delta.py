"""Delta tables, through delta-rs.

Theory: a commit is one new file in the table's log, and fails if that file is there already: with
no retry, it succeeds only on the very table that was read. Marks are application transactions,
which survive checkpoints and the log's clean-up. Delta divides tables by plain columns only, so a
transform becomes a column of its own, which is in the log and not in the files.

The one trap that this file is built around: delta-rs can abort the interpreter's exit after reading
data (`to_pyarrow_table`); so data is never read through it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from strandline.lakehouse.tables.backend import (
    Change,
    Commit,
    Conflict,
    DataFile,
    Snapshot,
    check_division,
    divided_by,
)
from strandline.lakehouse.tables.errors import BadTable, TableExists, TableMissing
from strandline.lakehouse.tables.transforms import Transform
from strandline.lakehouse.tables.types import as_stored

_METADATA: Final = "strandline"
_PARTITIONING: Final = "strandline.partitioning"


class DeltaSnapshot:
    """A Delta table at one version."""

    def __init__(self, table: DeltaTable, directory: Path, transforms: Sequence[Transform]) -> None:
        self._table = table
        self._directory = directory
        self._transforms = transforms
        self.version = table.version()
        self.schema = as_stored(pa.schema(table.schema()))

    @property
    def table(self) -> DeltaTable:
        """The table itself; still at this version as long as no commit was made through it."""
        return self._table

    def mark(self, name: str) -> int | None:
        """As `Snapshot.mark`."""
        return self._table.transaction_version(name)

    def files(self) -> list[DataFile]:
        """As `Snapshot.files`."""
        actions = pa.table(self._table.get_add_actions(flatten=True)).to_pylist()
        return [
            DataFile(
                path=self._directory / unquote(row["path"]),
                size=row["size_bytes"],
                rows=row["num_records"],
                partition=tuple(
                    transform.from_shown(row.get(f"partition.{transform.name}"))
                    for transform in self._transforms
                ),
            )
            for row in actions
        ]

    def history(self, limit: int | None) -> list[Commit]:
        """As `Snapshot.history`."""
        return [
            Commit(
                version=entry["version"],
                at_ms=entry["timestamp"],
                metadata=json.loads(entry.get(_METADATA, "{}")),
            )
            for entry in self._table.history(limit)
        ]


class DeltaBackend:
    """The Delta table in `directory`, divided by `transforms`."""

    def __init__(self, directory: Path, transforms: Sequence[Transform]) -> None:
        self._directory = directory
        self._transforms = transforms
        self._table: DeltaTable | None = None

    def exists(self) -> bool:
        """As `Backend.exists`."""
        return (self._directory / "_delta_log").is_dir() and DeltaTable.is_deltatable(
            str(self._directory)
        )

    def create(self, schema: pa.Schema, transforms: Sequence[Transform]) -> None:
        """As `Backend.create`."""
        columns = list(schema)
        names = set(schema.names)
        for transform in transforms:
            if transform.name not in names:
                source = schema.field(transform.column).type
                columns.append(pa.field(transform.name, transform.result_type(source)))
        if (self._directory / "metadata").exists():
            raise TableExists(f"There is an Iceberg table in {self._directory}.")
        self._directory.mkdir(parents=True, exist_ok=True)
        try:
            DeltaTable.create(
                str(self._directory),
                schema=Schema.from_arrow(pa.schema(columns)),
                partition_by=[transform.name for transform in transforms],
                mode="error",
                configuration={_PARTITIONING: divided_by(transforms)},
                raise_if_key_not_exists=False,
            )
        except CommitFailedError as error:
            raise TableExists(f"There is a table in {self._directory} already.") from error

    def load(self) -> DeltaSnapshot:
        """As `Backend.load`. The log is read from where the last load ended."""
        try:
            if self._table is None:
                self._table = DeltaTable(str(self._directory))
            else:
                self._table.update_incremental()
        except TableNotFoundError:
            raise TableMissing(f"There is no Delta table in {self._directory}.") from None
        check_division(
            self._directory,
            self._table.metadata().configuration.get(_PARTITIONING, ""),
            self._transforms,
        )
        return DeltaSnapshot(self._table, self._directory, self._transforms)

    def evolve(self, snapshot: Snapshot, schema: pa.Schema) -> None:
        """As `Backend.evolve`: a commit of its own, which adds nothing but columns."""
        table = _own(snapshot)
        try:
            write_deltalake(
                table,
                schema.empty_table(),
                mode="append",
                schema_mode="merge",
                commit_properties=CommitProperties(max_commit_retries=0),
            )
        except CommitFailedError as error:
            self._table = None
            raise Conflict(str(error)) from error

    def commit(self, snapshot: Snapshot, change: Change) -> int:
        """As `Backend.commit`."""
        table = _own(snapshot)
        return self._write(snapshot, change, table.schema(), change.removes)

    def replace(self, snapshot: Snapshot, change: Change, schema: pa.Schema) -> int:
        """As `Backend.replace`: an overwrite, which removes what the table has by itself."""
        return self._write(snapshot, change, Schema.from_arrow(schema), None)

    def _write(
        self,
        snapshot: Snapshot,
        change: Change,
        schema: Schema,
        removes: Sequence[DataFile] | None,
    ) -> int:
        table = _own(snapshot)
        now_ms = int(time.time() * 1000)
        actions: list[AddAction | RemoveAction] = [
            self._add(item, snapshot.schema, now_ms, same_rows=change.same_rows)
            for item in change.adds
        ]
        actions += [
            self._remove(item, snapshot.schema, now_ms, same_rows=change.same_rows)
            for item in removes or ()
        ]
        try:
            table.create_write_transaction(
                actions,
                "overwrite" if removes is None else "append",
                schema,
                [transform.name for transform in self._transforms],
                commit_properties=CommitProperties(
                    custom_metadata={_METADATA: json.dumps(change.metadata)},
                    max_commit_retries=0,
                    app_transactions=[
                        Transaction(name, number) for name, number in change.marks.items()
                    ],
                ),
            )
        except CommitFailedError as error:
            self._table = None
            raise Conflict(str(error)) from error
        return snapshot.version + 1

    def tidy(self, snapshot: Snapshot) -> None:
        """As `Backend.tidy`: a checkpoint; log files older than Delta's retention (30 days) go."""
        table = _own(snapshot)
        table.create_checkpoint()
        table.cleanup_metadata()

    def orphans(self, snapshot: Snapshot, *, before_ms: int) -> list[Path]:
        """As `Backend.orphans`; a file that a commit removed bears the time of its removal."""
        live = {item.path for item in snapshot.files()}
        return [
            path
            for path in sorted(self._directory.glob("*.parquet"))
            if path not in live and path.stat().st_mtime * 1000 < before_ms
        ]

    def _add(self, item: Any, schema: pa.Schema, now_ms: int, *, same_rows: bool) -> AddAction:
        return AddAction(
            path=item.path,
            size=item.size,
            partition_values=self._partition_values(item.partition, schema),
            modification_time=now_ms,
            data_change=not same_rows,
            stats=item.stats,
        )

    def _remove(
        self, item: DataFile, schema: pa.Schema, now_ms: int, *, same_rows: bool
    ) -> RemoveAction:
        return RemoveAction(
            path=item.path.relative_to(self._directory).as_posix(),
            data_change=not same_rows,
            deletion_timestamp=now_ms,
            size=item.size,
            partition_values=self._partition_values(item.partition, schema),
        )

    def _partition_values(self, values: Sequence[Any], schema: pa.Schema) -> dict[str, str | None]:
        return {
            transform.name: transform.shown(value, schema.field(transform.column).type)
            for transform, value in zip(self._transforms, values, strict=True)
        }


def _own(snapshot: Snapshot) -> DeltaTable:
    if not isinstance(snapshot, DeltaSnapshot):
        raise BadTable("A snapshot of another format was handed to a Delta table.")
    if snapshot.table.version() != snapshot.version:
        raise Conflict("The table has moved on.")
    return snapshot.table
