"""Iceberg tables, through pyiceberg, with a catalog in one SQLite file beside the table.

Theory: a commit swaps the table's metadata, under the requirement that the newest snapshot is the
one that was read; so every commit makes a snapshot, if only an empty one. Marks are table
properties, which change in the same swap. pyiceberg's own retry would repeat a commit on a table
without checking it again, and is off (`commit.retry.num-retries`).

The metadata names every snapshot, and is written with each commit: it must be kept short, which
`tidy` does by forgetting old snapshots, and merged manifests by being few.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import parse_transform
from pyiceberg.typedef import Record
from sqlalchemy.exc import DatabaseError, IntegrityError, OperationalError

from strandline.lakehouse.locations import stores
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.tables.backend import (
    Change,
    Commit,
    Conflict,
    DataFile,
    Snapshot,
    check_division,
    check_names,
    divided_by,
)
from strandline.lakehouse.tables.errors import BadTable, TableExists, TableMissing
from strandline.lakehouse.tables.names import OwnNames
from strandline.lakehouse.tables.removals import old_files
from strandline.lakehouse.tables.transforms import Transform, partition_names
from strandline.lakehouse.tables.types import as_stored
from strandline.lakehouse.tables.written import WrittenFile

CATALOG_FILE: Final = "catalog.db"
NAMESPACE: Final = "strandline"

_METADATA: Final = "strandline"
_PARTITIONING: Final = "strandline.partitioning"
SNAPSHOTS_KEPT: Final = 100
"""What `tidy` leaves: as much history as a table tells."""
_PROPERTIES: Final[Mapping[str, str]] = {
    TableProperties.COMMIT_NUM_RETRIES: "0",
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "format-version": "2",
}


class IcebergSnapshot:
    """An Iceberg table at one moment."""

    def __init__(self, table: Table) -> None:
        self.table = table
        newest = table.current_snapshot()
        self.version = 0 if newest is None else newest.sequence_number or 0
        self.schema = as_stored(schema_to_pyarrow(table.schema()))

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
        """The files as Iceberg describes them."""
        return {
            Location.parse(task.file.file_path): task.file
            for task in self.table.scan().plan_files()
        }

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
                    (item.summary.additional_properties if item.summary else {}).get(
                        _METADATA, "{}"
                    )
                ),
            )
            for item in newest[:limit]
        ]


class IcebergBackend:
    """The Iceberg table in `directory`; `catalog` is the directory of the catalog's file.

    `names` are what `load` expects the table's own columns to be called.
    """

    def __init__(
        self,
        directory: Location,
        transforms: Sequence[Transform],
        *,
        catalog: Location,
        names: OwnNames | None = None,
    ) -> None:
        self._names = names
        self._directory = directory
        self._transforms = transforms
        self._catalog_directory = catalog
        self._name = (NAMESPACE, directory.name)
        self._metadata = directory / "metadata"

    def exists(self) -> bool:
        """As `Backend.exists`."""
        if not stores.exists(self._catalog_directory / CATALOG_FILE):
            return False
        with self._readable():
            return self._catalog.table_exists(self._name)

    def create(self, schema: pa.Schema, transforms: Sequence[Transform]) -> None:
        """As `Backend.create`."""
        if stores.exists(self._directory / "_delta_log"):
            raise TableExists(f"There is a Delta table in {self._directory}.")
        stores.make_directory(self._directory)
        try:
            self._catalog.create_namespace_if_not_exists(NAMESPACE)
            transaction = self._catalog.create_table_transaction(
                self._name,
                schema,
                location=self._directory.uri,
                properties={**_PROPERTIES, _PARTITIONING: divided_by(transforms)},
            )
            with transaction.update_spec() as partitioning:
                for item in transforms:
                    partitioning.add_field(item.column, parse_transform(_words(item)), item.name)
            names = transaction.table_metadata.schema().name_mapping
            transaction.set_properties(
                {TableProperties.DEFAULT_NAME_MAPPING: names.model_dump_json()}
            )
            transaction.commit_transaction()
        except (TableAlreadyExistsError, CommitFailedException, IntegrityError) as error:
            raise TableExists(f"There is a table in {self._directory} already.") from error

    def load(self) -> IcebergSnapshot:
        """As `Backend.load`."""
        with self._readable():
            table = self._catalog.load_table(self._name)
        snapshot = IcebergSnapshot(table)
        check_names(self._directory, snapshot.schema.names, self._names)
        check_division(self._directory, table.properties.get(_PARTITIONING, ""), self._transforms)
        return snapshot

    def evolve(self, snapshot: Snapshot, schema: pa.Schema) -> None:
        """As `Backend.evolve`; refused when the columns changed meanwhile."""
        try:
            with _own(snapshot).table.update_schema() as columns:
                columns.union_by_name(schema)
        except (CommitFailedException, OperationalError) as error:
            raise _conflict(error) from error

    def commit(self, snapshot: Snapshot, change: Change) -> int:
        """As `Backend.commit`."""
        return self._write(_own(snapshot), change)

    def replace(self, snapshot: Snapshot, change: Change, schema: pa.Schema) -> int:
        """As `Backend.replace`; a column of another type is a new one of the same name."""
        own = _own(snapshot)
        return self._write(own, change, lambda begun: _retype(begun, own.schema, schema))

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
        summary = {_METADATA: json.dumps(change.metadata)}
        try:
            with own.table.transaction() as transaction:
                begin(transaction)
                columns = transaction.table_metadata.schema()
                update = transaction.update_snapshot(snapshot_properties=summary)
                producer: Any = update.overwrite() if change.removes else update.merge_append()
                with producer as files:
                    for added in change.adds:
                        files.append_data_file(
                            self._describe(transaction.table_metadata, columns, added)
                        )
                    for removed in change.removes:
                        files.delete_data_file(own.own_files[removed.path])
                transaction.set_properties(
                    {name: str(number) for name, number in change.marks.items()}
                )
        except (CommitFailedException, OperationalError) as error:
            raise _conflict(error) from error
        return own.version + 1

    def tidy(self, snapshot: Snapshot) -> None:
        """As `Backend.tidy`: only the newest 100 snapshots stay."""
        table = _own(snapshot).table
        newest = sorted(
            table.metadata.snapshots, key=lambda item: item.sequence_number or 0, reverse=True
        )
        old = [item.snapshot_id for item in newest[SNAPSHOTS_KEPT:]]
        if not old:
            return
        try:
            table.maintenance.expire_snapshots().by_ids(old).commit()
        except (CommitFailedException, OperationalError) as error:
            raise _conflict(error) from error

    def orphans(self, snapshot: Snapshot, *, before_ms: int) -> list[Location]:
        """As `Backend.orphans`: no snapshot that is kept names them."""
        table = _own(snapshot).table
        named = {
            Location.parse(item) for item in table.inspect.all_files()["file_path"].to_pylist()
        }
        for item in table.metadata.snapshots:
            named.add(Location.parse(item.manifest_list))
            named |= {Location.parse(part.manifest_path) for part in item.manifests(table.io)}
        found = [
            each
            for directory, suffix in ((self._directory, ".parquet"), (self._metadata, ".avro"))
            for each in stores.listed(directory)
            if each.location.name.endswith(suffix) and each.location not in named
        ]
        return old_files(found, self._directory, before_ms=before_ms)

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Raises TableMissing, and BadTable for a catalog or metadata that cannot be read."""
        try:
            yield
        except NoSuchTableError:
            raise TableMissing(f"There is no Iceberg table in {self._directory}.") from None
        except (DatabaseError, OSError, ValueError) as error:
            if isinstance(error, OperationalError) and "locked" in str(error):
                raise
            raise BadTable(
                f"The Iceberg table in {self._directory}, or its catalog "
                f"{self._catalog_directory / CATALOG_FILE}, cannot be read: {error}."
            ) from error

    @cached_property
    def _catalog(self) -> SqlCatalog:
        stores.make_directory(self._catalog_directory)
        return SqlCatalog(
            "strandline",
            uri=f"sqlite:///{self._catalog_directory / CATALOG_FILE}",
            warehouse=self._catalog_directory.uri,
        )

    def _describe(self, table: TableMetadata, schema: Schema, file: WrittenFile) -> IcebergFile:
        """A file for the manifest, with the bounds of its columns, from its footer."""
        path = self._directory / file.path
        try:
            with stores.parquet(path) as opened:
                footer = opened.metadata
        except (OSError, pa.ArrowInvalid) as error:
            raise BadTable(f"The file {path} cannot be read: {error}.") from error
        statistics = data_file_statistics_from_parquet_metadata(
            parquet_metadata=footer,
            stats_columns=compute_statistics_plan(schema, table.properties),
            parquet_column_mapping=parquet_path_to_id_mapping(schema),
        )
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
            **statistics.to_serialized_dict(),
        )


def _words(transform: Transform) -> str:
    """A transform as Iceberg writes it."""
    width = f"[{transform.width}]" if transform.width else ""
    return f"{transform.kind.value}{width}"


def _retype(transaction: Transaction, present: pa.Schema, wanted: pa.Schema) -> None:
    """Give columns other types: the old column goes, and one of its name comes."""
    other = [field for field in wanted if not field.type.equals(present.field(field.name).type)]
    with transaction.update_schema(allow_incompatible_changes=True) as columns:
        for field in other:
            columns.delete_column(field.name)
    with transaction.update_schema() as columns:
        columns.union_by_name(pa.schema(other))


def _conflict(error: Exception) -> Exception:
    """The error to raise: another error of the catalog's file than its lock proves nothing."""
    locked = not isinstance(error, OperationalError) or "locked" in str(error)
    return Conflict(str(error)) if locked else error


def _own(snapshot: Snapshot) -> IcebergSnapshot:
    if not isinstance(snapshot, IcebergSnapshot):
        raise BadTable("A snapshot of another format was handed to an Iceberg table.")
    return snapshot
