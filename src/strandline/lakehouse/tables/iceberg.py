"""Iceberg tables, through pyiceberg; which catalog they are in is the business of `catalogs`.

Theory: a commit swaps the table's metadata, under the requirement that the newest snapshot is the
one that was read; so every commit makes a snapshot, if only an empty one. Marks are table
properties, which change in the same swap. pyiceberg's own retry would repeat a commit on a table
without checking it again, and is off (`commit.retry.num-retries`).

The metadata names every snapshot, and is written with each commit: it must be kept short, which
`tidy` does by forgetting old snapshots, and merged manifests by being few.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot as IcebergMoment
from pyiceberg.transforms import parse_transform
from pyiceberg.typedef import Record
from sqlalchemy.exc import IntegrityError, OperationalError

from strandline.lakehouse.locations import stores
from strandline.lakehouse.locations.errors import StoreTrouble
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.tables.backend import (
    Bounds,
    Change,
    Commit,
    Conflict,
    DataFile,
    OutcomeUnknown,
    Snapshot,
    check_division,
    check_names,
    divided_by,
)
from strandline.lakehouse.tables.catalog_errors import CATALOG_ERRORS, trouble
from strandline.lakehouse.tables.catalogs import CatalogEntry
from strandline.lakehouse.tables.errors import BadTable, TableExists, TableMissing
from strandline.lakehouse.tables.iceberg_escaped import (
    at_its_place,
    escaped_metadata,
    lead,
    readdress,
)
from strandline.lakehouse.tables.iceberg_foreign import ColumnNames, check_spec, planned
from strandline.lakehouse.tables.iceberg_schema import retype, statistics_of, words_of
from strandline.lakehouse.tables.iceberg_transaction import CommitTransaction
from strandline.lakehouse.tables.iceberg_upkeep import METADATA, bounds_of, superfluous, unnamed
from strandline.lakehouse.tables.names import OwnNames
from strandline.lakehouse.tables.presence import WHAT_HELPS
from strandline.lakehouse.tables.removals import old_files
from strandline.lakehouse.tables.transforms import Transform, partition_names
from strandline.lakehouse.tables.types import as_stored
from strandline.lakehouse.tables.written import WrittenFile

_PARTITIONING: Final = "strandline.partitioning"
_PROPERTIES: Final[Mapping[str, str]] = {
    TableProperties.COMMIT_NUM_RETRIES: "0",
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "format-version": "2",
}


_UNREADABLE: Final[tuple[type[Exception], ...]] = (*CATALOG_ERRORS, ValueError)


class IcebergSnapshot:
    """An Iceberg table at one moment."""

    def __init__(self, table: Table, directory: Location, at: IcebergMoment | None = None) -> None:
        """At `at`, or now."""
        self.table = table
        self._directory = directory
        self._at = at
        newest = table.current_snapshot() if at is None else at
        self.version = 0 if newest is None else newest.sequence_number or 0
        schema = table.schema()
        if at is not None and at.schema_id is not None:
            schema = table.schemas()[at.schema_id]
        self.schema = as_stored(schema_to_pyarrow(schema))

    def mark(self, name: str) -> int | None:
        """As `Snapshot.mark`."""
        text = self.table.properties.get(name)
        return None if text is None else int(text)

    def files(self) -> list[DataFile]:
        """As `Snapshot.files`."""
        return [
            DataFile(
                path=Location.parse(item.file_path),
                size=item.file_size_in_bytes,
                rows=item.record_count,
                partition=tuple(item.partition[at] for at in range(len(item.partition))),
            )
            for item in self.own_files.values()
        ]

    @cached_property
    def own_files(self) -> dict[Location, IcebergFile]:
        """The files as Iceberg describes them. Raises BadTable."""
        moment = None if self._at is None else self._at.snapshot_id
        return planned(self.table, self._directory, moment)

    def bounds(self, column: str) -> dict[Location, Bounds]:
        """As `Snapshot.bounds`."""
        try:
            field = self.table.schema().find_field(column)
        except ValueError:
            return dict.fromkeys(self.own_files, Bounds())
        return {path: bounds_of(file, field) for path, file in self.own_files.items()}

    def history(self, limit: int | None) -> list[Commit]:
        """As `Snapshot.history`: the snapshots that are kept."""
        newest = sorted(
            self.table.metadata.snapshots, key=lambda item: item.sequence_number or 0, reverse=True
        )
        return [
            Commit(
                version=item.sequence_number or 0,
                at_ms=item.timestamp_ms,
                metadata=json.loads(
                    (item.summary.additional_properties if item.summary else {}).get(METADATA, "{}")
                ),
            )
            for item in newest[:limit]
        ]


class IcebergBackend:
    """The Iceberg table in `directory`, called as `catalog` says.

    `names` are what `load` expects the table's own columns to be called.
    """

    def __init__(
        self,
        directory: Location,
        transforms: Sequence[Transform],
        *,
        catalog: CatalogEntry,
        names: OwnNames | None = None,
        keep_history_ms: int | None = None,
    ) -> None:
        self._names = names
        self._keep_history_ms = keep_history_ms
        self._directory = directory
        self._transforms = transforms
        self._entry = catalog
        self._columns = ColumnNames(directory)

    def exists(self) -> bool:
        """As `Backend.exists`."""
        if not self._entry.may_be_there():
            return False
        try:
            with self._readable():
                return self._catalog.table_exists(self._entry.name)
        except TableMissing:
            return False

    def create(self, schema: pa.Schema, transforms: Sequence[Transform]) -> None:
        """As `Backend.create`."""
        if stores.exists(self._directory / "_delta_log"):
            raise TableExists(f"There is a Delta table in {self._directory}.")
        stores.make_directory(self._directory)
        try:
            with self._readable():
                self._make(schema, transforms)
        except (TableAlreadyExistsError, CommitFailedException, IntegrityError) as error:
            raise TableExists(
                f"There is a table {'.'.join(self._entry.name)} in {self._entry.shown} already."
            ) from error

    def _make(self, schema: pa.Schema, transforms: Sequence[Transform]) -> None:
        namespace = self._entry.name[:-1]
        for depth in range(1, len(namespace) + 1):
            self._catalog.create_namespace_if_not_exists(namespace[:depth])
        transaction = self._catalog.create_table_transaction(
            self._entry.name,
            schema,
            location=self._directory.uri,
            properties={**_PROPERTIES, _PARTITIONING: divided_by(transforms)},
        )
        with transaction.update_spec() as partitioning:
            for item in transforms:
                partitioning.add_field(item.column, parse_transform(words_of(item)), item.name)
        names = transaction.table_metadata.schema().name_mapping
        transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: names.model_dump_json()})
        transaction.commit_transaction()

    def drop(self) -> None:
        """As `Backend.drop`."""
        for each in escaped_metadata(self._directory).values():
            stores.remove(each.location)
        if self._entry.is_own:
            return  # its file goes with the directory
        with suppress(TableMissing), self._readable():
            self._catalog.drop_table(self._entry.name)

    def load(self) -> IcebergSnapshot:
        """As `Backend.load`."""
        table = self._newest()
        snapshot = IcebergSnapshot(table, self._directory)
        check_names(self._directory, snapshot.schema.names, self._names)
        check_division(self._directory, table.properties.get(_PARTITIONING, ""), self._transforms)
        check_spec(self._directory, table, self._transforms)
        return snapshot

    def load_at(self, version: int) -> IcebergSnapshot:
        """As `Backend.load_at`."""
        table = self._newest()
        for each in table.metadata.snapshots:
            if each.sequence_number == version:
                return IcebergSnapshot(table, self._directory, each)
        raise BadTable(f"The table in {self._directory} has no snapshot {version} any more.")

    def evolve(self, snapshot: Snapshot, schema: pa.Schema) -> None:
        """As `Backend.evolve`; refused when the columns changed meanwhile."""
        with self._committing(), _own(snapshot).table.update_schema() as columns:
            columns.union_by_name(schema)

    def commit(self, snapshot: Snapshot, change: Change) -> int:
        """As `Backend.commit`."""
        return self._write(_own(snapshot), change)

    def replace(self, snapshot: Snapshot, change: Change, schema: pa.Schema) -> int:
        """As `Backend.replace`; a column of another type is a new one of the same name."""
        own = _own(snapshot)
        return self._write(own, change, lambda begun: retype(begun, own.schema, schema))

    def check_rename(self, snapshot: Snapshot) -> None:
        """As `Backend.check_rename`: each column has an id, whatever it is called."""

    def rename(self, snapshot: Snapshot, change: Change, names: Mapping[str, str]) -> int:
        """As `Backend.rename`; columns keep their ids, so that older snapshots can be read."""
        own = _own(snapshot)
        everything = replace(change, removes=own.files())
        return self._write(own, everything, lambda begun: self._rename(begun, names))

    def _rename(self, transaction: Transaction, names: Mapping[str, str]) -> None:
        present = transaction.table_metadata.schema().as_struct().fields
        with transaction.update_schema() as columns:
            for field in present:
                if field.name in names:
                    columns.rename_column(field.name, names[field.name])
        with transaction.update_spec() as partitioning:
            for old, new in partition_names(self._transforms, names).items():
                partitioning.rename_field(old, new)
        transaction.set_properties({_PARTITIONING: divided_by(self._transforms, renamed=True)})

    def _write(
        self,
        own: IcebergSnapshot,
        change: Change,
        begin: Callable[[Transaction], None] = lambda _: None,
    ) -> int:
        summary = {METADATA: json.dumps(change.metadata)}
        table = at_its_place(own.table, self._directory)
        moves = table is not own.table
        with self._committing(), CommitTransaction(table) as transaction:
            if moves:
                lead(transaction, self._directory)
            begin(transaction)
            metadata = transaction.table_metadata
            columns = metadata.schema()
            update = transaction.update_snapshot(snapshot_properties=summary)
            replaces = moves or change.removes
            producer: Any = update.overwrite() if replaces else update.merge_append()
            with producer as files:
                for added in change.adds:
                    files.append_data_file(self._describe(metadata, columns, added))
                for removed in change.removes:
                    files.delete_data_file(own.own_files[removed.path])
                if moves:
                    readdress(files, own.own_files, change.removes)
            transaction.set_properties({name: str(number) for name, number in change.marks.items()})
        return own.version + 1

    def tidy(self, snapshot: Snapshot) -> None:
        """As `Backend.tidy`; marks of queries go with the last snapshot that they made."""
        table = _own(snapshot).table
        old, marks = superfluous(
            table.metadata, now_ms=int(time.time() * 1000), keep_ms=self._keep_history_ms
        )
        if not old:
            return
        with self._committing():
            table.maintenance.expire_snapshots().by_ids(old).commit()
            if marks:
                with table.transaction() as transaction:
                    transaction.remove_properties(*marks)

    def orphans(self, snapshot: Snapshot, *, before_ms: int) -> list[Location]:
        """As `Backend.orphans`: no snapshot that is kept names them."""
        found = unnamed(_own(snapshot).table, self._directory)
        return old_files(found, self._directory, before_ms=before_ms)

    def _newest(self) -> Table:
        with self._readable():
            table = self._catalog.load_table(self._entry.name)
        self._columns.check(table.metadata)
        return table

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Raises TableMissing, and BadTable for a catalog or metadata that cannot be read."""
        try:
            yield
        except (NoSuchTableError, NoSuchNamespaceError):
            raise TableMissing(
                f"There is no Iceberg table {'.'.join(self._entry.name)} in {self._entry.shown}."
            ) from None
        except (TableAlreadyExistsError, CommitFailedException, IntegrityError):
            raise
        except _UNREADABLE as error:
            if not self._entry.is_own:
                raise StoreTrouble(self._sentence(error)) from error
            if isinstance(error, OperationalError) and "locked" in str(error):
                raise
            helps = f" {WHAT_HELPS}" if isinstance(error, FileNotFoundError) else ""
            raise BadTable(
                f"The Iceberg table in {self._directory}, or {self._entry.shown}, cannot be "
                f"read: {error}.{helps}"
            ) from error

    @contextmanager
    def _committing(self) -> Iterator[None]:
        """Raises Conflict, and OutcomeUnknown for an error that does not say what became of it."""
        try:
            yield
        except CommitFailedException as error:
            raise Conflict(str(error)) from error
        except CATALOG_ERRORS as error:
            if isinstance(error, OperationalError) and "locked" in str(error):
                raise Conflict(str(error)) from error
            if self._entry.is_own:
                raise
            raise OutcomeUnknown(self._sentence(error)) from error

    def _sentence(self, error: Exception) -> str:
        return trouble(self._entry, self._directory, error)

    @cached_property
    def _catalog(self) -> Catalog:
        return self._entry.open()

    def _describe(self, table: TableMetadata, schema: Schema, file: WrittenFile) -> IcebergFile:
        """A file for the manifest, with the bounds of its columns, from its footer."""
        path = self._directory / file.path
        try:
            with stores.parquet(path) as opened:
                footer = opened.metadata
        except (OSError, pa.ArrowInvalid) as error:
            raise BadTable(f"The file {path} cannot be read: {error}.") from error
        return IcebergFile.from_args(
            content=DataFileContent.DATA,
            file_path=path.uri,
            file_format=FileFormat.PARQUET,
            partition=Record(*file.partition),
            file_size_in_bytes=file.size,
            sort_order_id=None,
            spec_id=table.default_spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics_of(footer, schema, table.properties),
        )


def _own(snapshot: Snapshot) -> IcebergSnapshot:
    if not isinstance(snapshot, IcebergSnapshot):
        raise BadTable("A snapshot of another format was handed to an Iceberg table.")
    return snapshot
