"""Delta tables, through delta-rs.

Theory: a commit is one new file in the table's log, and fails if that file is there already: with
no retry, it succeeds only on the very table that was read. Marks are application transactions,
which survive checkpoints and the log's clean-up. Delta divides tables by plain columns only, so a
transform becomes a column of its own, which is in the log and not in the files.

A table that was made for Spark's writer says so in its properties. `delta_spark` writes batches to
it; everything else is committed from here, under the lock that keeps the two apart.

The one trap that this file is built around: delta-rs can abort the interpreter's exit after reading
data (`to_pyarrow_table`); so data is never read through it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import (
    CommitProperties,
    DeltaTable,
    PostCommitHookProperties,
    Schema,
    write_deltalake,
)
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from strandline.lakehouse.locations import stores
from strandline.lakehouse.locations.credentials import for_delta
from strandline.lakehouse.locations.errors import StoreTrouble, sentence
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.tables.backend import (
    Change,
    Conflict,
    DataFile,
    OutcomeUnknown,
    Snapshot,
    check_division,
    check_names,
    divided_by,
)
from strandline.lakehouse.tables.commit_lock import locked_log
from strandline.lakehouse.tables.delta_features import check_readable, check_writable
from strandline.lakehouse.tables.delta_marks import MarkReader, Marks
from strandline.lakehouse.tables.delta_renaming import check_protocol, put, renaming
from strandline.lakehouse.tables.delta_snapshot import (
    FOR_SPARK,
    METADATA,
    DeltaSnapshot,
    own,
    own_table,
)
from strandline.lakehouse.tables.delta_upkeep import transactions, upkeep_properties
from strandline.lakehouse.tables.errors import BadTable, TableExists, TableMissing
from strandline.lakehouse.tables.names import OwnNames
from strandline.lakehouse.tables.removals import old_files
from strandline.lakehouse.tables.transforms import Transform, partition_names

PARTITIONING: Final = "strandline.partitioning"
_PLACES: Final = ("", "[!_]*/")
"""Where a table's files lie; names with an underscore are those of Delta's own directories."""


_NO_HOOKS: Final = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""After each commit delta-rs would look through the log for what is to go: that is `tidy`'s."""


class DeltaBackend:
    """The Delta table in `directory`, divided by `transforms`.

    `for_spark` is for `create`: the table will get its batches from Spark's writer. `names` are
    what `load` expects its own columns to be called.
    """

    def __init__(
        self,
        directory: Location,
        transforms: Sequence[Transform],
        *,
        for_spark: bool = False,
        names: OwnNames | None = None,
        keep_history_ms: int | None = None,
    ) -> None:
        self._names = names
        self._upkeep = upkeep_properties(keep_history_ms, for_spark=for_spark)
        self._directory = directory
        self._transforms = transforms
        self._for_spark = for_spark
        self._options = None if directory.is_local else for_delta(directory)
        self._table: DeltaTable | None = None
        self._marks = MarkReader(directory)

    def exists(self) -> bool:
        """As `Backend.exists`."""
        # delta-rs makes the directory that it looks into on a disk.
        if self._directory.is_local and not (self._directory / "_delta_log").local.is_dir():
            return False
        try:
            self._newest()
        except TableMissing:
            return False
        return True

    def create(self, schema: pa.Schema, transforms: Sequence[Transform]) -> None:
        """As `Backend.create`."""
        columns = list(schema)
        names = set(schema.names)
        for transform in transforms:
            if transform.name not in names:
                source = schema.field(transform.column).type
                columns.append(pa.field(transform.name, transform.result_type(source)))
        if stores.exists(self._directory / "metadata"):
            raise TableExists(f"There is an Iceberg table in {self._directory}.")
        stores.make_directory(self._directory)
        try:
            DeltaTable.create(
                str(self._directory),
                storage_options=self._options,
                schema=Schema.from_arrow(pa.schema(columns)),
                partition_by=[transform.name for transform in transforms],
                mode="error",
                configuration={
                    PARTITIONING: divided_by(transforms),
                    **(FOR_SPARK if self._for_spark else {}),
                    **self._upkeep,
                },
                raise_if_key_not_exists=False,
            )
        except (DeltaError, OSError) as error:
            if _is_conflict(error) or "already exists" in str(error):
                raise TableExists(f"There is a table in {self._directory} already.") from error
            if self._directory.is_local:
                raise
            raise StoreTrouble(sentence(self._directory, "written", error)) from error

    def drop(self) -> None:
        """As `Backend.drop`: a Delta table is in no catalog."""

    def load(self) -> DeltaSnapshot:
        """As `Backend.load`. The log is read from where the last load ended."""
        table = self._newest()
        check_readable(self._directory, table)
        marks = self._marks.at(table.version())
        snapshot = DeltaSnapshot(table, self._directory, self._transforms, marks)
        check_names(self._directory, snapshot.schema.names, self._names)
        check_division(
            self._directory,
            table.metadata().configuration.get(PARTITIONING, ""),
            self._transforms,
        )
        return snapshot

    def load_at(self, version: int) -> DeltaSnapshot:
        """As `Backend.load_at`."""
        self._newest()
        try:
            table = DeltaTable(str(self._directory), version=version, storage_options=self._options)
        except (DeltaError, OSError) as error:
            raise BadTable(
                f"The table in {self._directory} has no version {version} any more: {error}"
            ) from error
        check_readable(self._directory, table)
        return DeltaSnapshot(table, self._directory, self._transforms, Marks({}))

    def evolve(self, snapshot: Snapshot, schema: pa.Schema) -> None:
        """As `Backend.evolve`: a commit of its own, which adds nothing but columns."""
        table = own_table(snapshot)
        try:
            with self._alone(snapshot):
                write_deltalake(
                    table,
                    schema.empty_table(),
                    mode="append",
                    schema_mode="merge",
                    commit_properties=CommitProperties(max_commit_retries=0),
                )
        except (DeltaError, OSError) as error:
            self._table = None
            check_writable(self._directory, error)
            if _is_conflict(error):
                raise Conflict(str(error)) from error
            if self._directory.is_local:
                raise
            raise StoreTrouble(sentence(self._directory, "committed to", error)) from error

    def commit(self, snapshot: Snapshot, change: Change) -> int:
        """As `Backend.commit`."""
        table = own_table(snapshot)
        return self._write(snapshot, change, table.schema(), change.removes)

    def replace(self, snapshot: Snapshot, change: Change, schema: pa.Schema) -> int:
        """As `Backend.replace`: an overwrite, which removes what the table has by itself."""
        return self._write(snapshot, change, Schema.from_arrow(schema), None)

    def check_rename(self, snapshot: Snapshot) -> None:
        """As `Backend.check_rename`."""
        check_protocol(self._directory, own_table(snapshot))

    def rename(self, snapshot: Snapshot, change: Change, names: Mapping[str, str]) -> int:
        """As `Backend.rename`. delta-rs cannot change what divides a table: `delta_renaming`."""
        table = own_table(snapshot)
        now_ms = int(time.time() * 1000)
        schema = pa.schema(
            [field.with_name(names.get(field.name, field.name)) for field in snapshot.schema]
        )
        actions = renaming(
            table,
            {**names, **partition_names(self._transforms, names)},
            [self._add(item, schema, now_ms, same_rows=change.same_rows) for item in change.adds],
            change.marks,
            information={METADATA: json.dumps(change.metadata)},
            configuration={PARTITIONING: divided_by(self._transforms, renamed=True)},
            now_ms=now_ms,
        )
        try:
            with self._alone(snapshot):
                put(self._directory, snapshot.version + 1, actions)
        except FileExistsError as error:
            self._table = None
            raise Conflict(str(error)) from error
        return snapshot.version + 1

    def _write(
        self,
        snapshot: Snapshot,
        change: Change,
        schema: Schema,
        removes: Sequence[DataFile] | None,
    ) -> int:
        table = own_table(snapshot)
        marks = {**(own(snapshot).undated() or {}), **change.marks}
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
            with self._alone(snapshot):
                table.create_write_transaction(
                    actions,
                    "overwrite" if removes is None else "append",
                    schema,
                    [transform.name for transform in self._transforms],
                    post_commithook_properties=_NO_HOOKS,
                    commit_properties=CommitProperties(
                        custom_metadata={METADATA: json.dumps(change.metadata)},
                        max_commit_retries=0,
                        app_transactions=transactions(marks, now_ms),
                    ),
                )
        except (DeltaError, OSError) as error:
            self._table = None
            check_writable(self._directory, error)
            if _is_conflict(error):
                raise Conflict(str(error)) from error
            if self._directory.is_local:
                raise
            raise OutcomeUnknown(sentence(self._directory, "committed to", error)) from error
        self._marks.made(snapshot.version + 1, marks)
        return snapshot.version + 1

    def tidy(self, snapshot: Snapshot) -> None:
        """As `Backend.tidy`: a checkpoint; log files older than Delta's retention go.

        Marks of queries that committed nothing for a week are in no checkpoint any more.
        """
        table = own_table(snapshot)
        log = self._directory / "_delta_log"
        # Hadoop's checksum of the note that Spark's writer left, in whose place another comes.
        if self._directory.is_local:
            stores.remove(log / "._last_checkpoint.crc")
        try:
            lacks = not self._upkeep.items() <= table.metadata().configuration.items()
            # They make Spark forget marks without a time, which the next commit gives one.
            if lacks and own(snapshot).undated() == {}:
                # Another writer may be first; then the next time.
                with suppress(CommitFailedError), self._alone(snapshot):
                    table.alter.set_table_properties(dict(self._upkeep), raise_if_not_exists=False)
            table.create_checkpoint()
            table.cleanup_metadata()
        except (DeltaError, OSError) as error:
            if not self._directory.is_local:
                raise StoreTrouble(sentence(log, "shortened", error)) from error
            if isinstance(error, OSError):
                raise
            raise BadTable(f"The log {log} could not be shortened: {error}.") from error

    def orphans(self, snapshot: Snapshot, *, before_ms: int) -> list[Location]:
        """As `Backend.orphans`; a file that a commit removed bears the time of its removal."""
        live = {item.path for item in snapshot.files()}
        if not self._directory.is_local:
            files = [
                each
                for each in stores.listed(self._directory)
                if each.location.name.endswith(".parquet") and each.location not in live
            ]
            return old_files(files, self._directory, before_ms=before_ms)
        return [*map(Location.parse, self._local_orphans({each.local for each in live}, before_ms))]

    def _local_orphans(self, live: set[Path], before_ms: int) -> list[Path]:
        directory = self._directory.local
        found = [
            path
            for place in _PLACES
            for path in directory.glob(f"{place}*.parquet")
            if path not in live
        ]
        # What Hadoop keeps beside each file that Spark wrote.
        found += [
            path
            for place in _PLACES
            for path in directory.glob(f"{place}.*.parquet.crc")
            if path.with_name(path.name[1 : -len(".crc")]) not in live
        ]
        return [path for path in sorted(found) if _was_written(path, before_ms)]

    def _newest(self) -> DeltaTable:
        with self._readable():
            if self._table is None:
                self._table = DeltaTable(str(self._directory), storage_options=self._options)
                self._marks = MarkReader(self._directory)
            else:
                self._table.update_incremental()
        return self._table

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Raises TableMissing, and BadTable for a log that cannot be read."""
        try:
            yield
        except TableNotFoundError:
            raise TableMissing(f"There is no Delta table in {self._directory}.") from None
        except (DeltaError, OSError) as error:
            self._table = None
            if not self._directory.is_local:
                raise StoreTrouble(sentence(self._directory, "read", error)) from error
            raise BadTable(
                f"The log of the Delta table in {self._directory} cannot be read: {error}."
            ) from error

    def _alone(self, snapshot: Snapshot) -> AbstractContextManager[None]:
        """Keeps Spark's writer from committing meanwhile, where there is one."""
        shared = isinstance(snapshot, DeltaSnapshot) and snapshot.is_for_spark
        return locked_log(self._directory) if shared else nullcontext()

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
            path=item.path.relative_to(self._directory),
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


def _was_written(path: Path, before_ms: int) -> bool:
    """Whether a file is from before a time; one that another process has removed is none."""
    try:
        return path.stat().st_mtime * 1000 < before_ms
    except FileNotFoundError:
        return False


def _is_conflict(error: Exception) -> bool:
    """Whether a commit failed because there is another one of its version."""
    return isinstance(error, CommitFailedError)
