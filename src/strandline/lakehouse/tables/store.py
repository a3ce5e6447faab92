"""A table as its writers and readers use it: the way in for everything outside this package.

This file only puts the parts together: `writing` makes files, `committing` gets them in exactly
once, `maintenance` keeps the table fast. It knows no format.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as pads

from strandline.lakehouse.locations import stores
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.tables import marks
from strandline.lakehouse.tables.backend import Backend, DataFile, Snapshot
from strandline.lakehouse.tables.committing import (
    NOTHING_NEW,
    REPLAYED,
    CommitResult,
    Committer,
    check_marks,
)
from strandline.lakehouse.tables.definition import SPEC_FILE, TableSpec, partitioning
from strandline.lakehouse.tables.errors import TableExists, TableMissing
from strandline.lakehouse.tables.expiring import Expired, Expiring, FileAge
from strandline.lakehouse.tables.files import remove_files
from strandline.lakehouse.tables.history import BATCH, CommitRecord, read_record
from strandline.lakehouse.tables.identity import (
    BatchIdentity,
    Frontier,
    OffsetRange,
    TableState,
)
from strandline.lakehouse.tables.made import forget, gone, note_made, was_made
from strandline.lakehouse.tables.maintenance import CompactionResult, Maintenance
from strandline.lakehouse.tables.opening import check_commits, open_backend, open_for_run
from strandline.lakehouse.tables.parts import Carrier
from strandline.lakehouse.tables.reading import offsets_in, table_dataset
from strandline.lakehouse.tables.settling import SIDES, SideTables
from strandline.lakehouse.tables.troubles import left_for_later
from strandline.lakehouse.tables.upgrading import upgrade
from strandline.lakehouse.tables.widening import widen
from strandline.lakehouse.tables.written import TaskWrite
from strandline.lakehouse.values.making import table_columns
from strandline.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_RECENT = 20
TIDY_EVERY = 50
"""Commits between two shortenings of what must be read to load the table."""


class TableStore:
    """One table. Not for several threads at once; several processes may each have one.

    `backend` is what changes the table, if not what the definition's format says.
    """

    def __init__(self, spec: TableSpec, backend: Backend | None = None) -> None:
        self.spec = spec
        self._backend = backend or open_backend(spec)
        self._sides = SideTables(spec)
        self.committer = Committer(spec, self._backend, self._sides)
        self._maintenance = Maintenance(spec, self._backend, self._sides, self.committer)
        self._expiring = Expiring(spec, self._backend, self._sides, self.committer)

    @property
    def backend(self) -> Backend:
        """What changes the table, for commits that `committer` does not make."""
        return self._backend

    def carry_out_by(self, carrier: Carrier) -> None:
        """Have files written again, and merged into by key, elsewhere than in this process."""
        self.committer.carrier = self._maintenance.carrier = carrier

    def create(self, columns: pa.Schema | None = None) -> None:
        """Make the empty table; raises TableExists, and InvalidSetting for an unsafe store.

        A table that queries fill has the `columns` of their rows, and is missing without them.
        """
        if columns is None and self.spec.is_of_queries:
            raise TableMissing(f"No query has written the table {self.spec.name} yet.")
        check_commits(self.spec)
        if columns is None:
            columns = pa.schema([*table_columns(self.spec), *self.spec.own_columns()])
        self._backend.create(columns, partitioning(self.spec))
        note_made(self.spec)

    def exists(self) -> bool:
        """Whether the table was made. Raises BadTable for one that was, and is gone."""
        if self._backend.exists():
            return True
        # Another process may have made it meanwhile: the note comes after the table.
        if was_made(self.spec) and not self._backend.exists():
            raise gone(self.spec)
        return False

    def make_sure(self, columns: pa.Schema | None = None) -> None:
        """Make the table if it never was. Raises as `create` and `exists`."""
        if self.exists():
            note_made(self.spec)  # earlier versions did not
        else:
            with suppress(TableExists):  # another process was first
                self.create(columns)

    def state(self) -> TableState:
        """The table now: what a batch is written against. Raises TableMissing, and BadTable for one
        that has lost what says so."""
        snapshot = self._backend.load()
        check_marks(self.spec, snapshot)
        return self.state_of(snapshot)

    def state_of(self, snapshot: Snapshot) -> TableState:
        """The table at one moment."""
        return TableState(
            sequence=snapshot.mark(marks.SEQUENCE) or 0,
            version=snapshot.version,
            schema=snapshot.schema,
            frontiers=marks.read_frontiers(snapshot.mark, self.spec.topics),
            watermark_us=snapshot.mark(marks.WATERMARK),
        )

    def frontier(self, place: TopicPartition) -> Frontier | None:
        """How far the table holds one partition; None if it has nothing of it."""
        return marks.read_frontier(self._backend.load().mark, place)

    def committed(self, query_id: str) -> int | None:
        """The newest batch of a query that is in the table."""
        return self._backend.load().mark(marks.query_mark(query_id))

    def commit(self, identity: BatchIdentity, writes: Sequence[TaskWrite]) -> CommitResult:
        """Put a batch into the table, exactly once; the files of one that is not new are deleted.

        Raises FencedWriter, RangeGap, RangeOverlap, TopicRecreated, SchemaMoved; then nothing of
        the batch is in the table, and `discard` removes its files.
        """
        result = self.committer.commit_batch(identity, writes)
        if result.outcome in (REPLAYED, NOTHING_NEW):
            self.discard(writes)
        elif result.sequence % TIDY_EVERY == 0:
            self._shorten()
        return result

    def declare_lost(self, lost: Sequence[OffsetRange]) -> CommitResult:
        """Move the frontier past ranges that the log no longer has; they become dead letters.

        Ranges begin at, or below, the frontier, or in a partition that the table does not have yet.
        Unlike a batch, this does not take the table from the query that fills it.
        """
        return self.committer.commit_lost(lost)

    def settle(self) -> None:
        """Let the side tables follow what a crashed predecessor committed."""
        self.committer.settled()

    def discard(self, writes: Sequence[TaskWrite]) -> int:
        """Delete the files of a batch unless a table names them; gives their number."""
        snapshot = self.committer.settled()
        kept = {item.path for item in snapshot.files()}
        for side in SIDES:
            if (present := self._sides.load(side)) is not None:
                kept |= {item.path for item in present.files()}
        removed = 0
        for write in writes:
            for directory, files in (
                (self.spec.directory(), write.files),
                *((self.spec.directory(side), part) for side, part in write.sides().items()),
            ):
                unnamed = [each for each in files if directory / each.path not in kept]
                removed += remove_files(directory, unnamed)
        return removed

    def history(self, limit: int | None = None) -> list[CommitRecord]:
        """The newest `limit` commits of batches, replays and compactions, newest first."""
        found = []
        for commit in self._backend.load().history(None):
            if (record := read_record(commit)) is not None:
                found.append(record)
                if limit is not None and len(found) >= limit:
                    break
        return found

    def last_batch(self) -> CommitRecord | None:
        """The newest commit of a batch."""
        snapshot = self._backend.load()
        for limit in (_RECENT, None):
            for commit in snapshot.history(limit):
                record = read_record(commit)
                if record is not None and record.kind == BATCH:
                    return record
        return None

    def snapshot_at(self, version: int | None) -> Snapshot:
        """The table at a version of its format, or now. Raises BadTable for one that is gone."""
        return self.committer.settled() if version is None else self._backend.load_at(version)

    def files(self, side: str | None = None) -> list[DataFile]:
        """The files whose rows are the table's, or a side table's (settled first)."""
        snapshot = self._snapshot(side)
        return [] if snapshot is None else snapshot.files()

    def offsets_in(self, side: str | None = None) -> dict[Location, tuple[int, int] | None]:
        """The least and greatest offset in each file; None where the format does not know."""
        snapshot = self._snapshot(side)
        return {} if snapshot is None else offsets_in(self.spec.names, snapshot)

    def dataset(self, side: str | None = None) -> pads.Dataset:
        """All rows with all columns but Delta's partition columns, for pyarrow."""
        return table_dataset(self.spec, side, self._snapshot(side))

    def compact(self, *, target_bytes: int = 128 << 20, min_files: int = 4) -> CompactionResult:
        """Join small files, of the side tables too; readers see the same rows before and after."""
        return self._maintenance.compact(target_bytes=target_bytes, min_files=min_files)

    def expire(self, *, now_ms: int) -> Expired:
        """Remove rows, late rows and letters that are older than the definition allows.

        Their places are noted in the side table `expired`. If files are replaced by others
        meanwhile, nothing is removed.
        """
        return self._expiring.expire(now_ms=now_ms)

    def ages(self) -> dict[str | None, list[FileAge]]:
        """How old the rows of each file are, of the table and of side tables whose rows age."""
        return dict(self._expiring.ages(self.committer.settled()))

    def with_old_rows(
        self, side: str | None, files: Sequence[DataFile], *, limit_us: int
    ) -> list[DataFile]:
        """Those files, of the table or of a side table, with a row from before a time.

        The time is in microseconds since 1970. The files are read. Raises BadTable if one is gone.
        """
        return self._expiring.with_old_rows(side, files, limit_us=limit_us)

    def widen(self, column: str) -> int:
        """Make a column of integers one of doubles, which writes every file again; counts them.

        Raises InvalidSetting when the column is no such one, or holds an integer that no double
        is, and FencedWriter when the table changes whenever the copies are to be committed.
        """
        return widen(self.spec, self._backend, self._sides, self.committer, column)

    def upgrade(self) -> int:
        """Give the table's own columns the names of today, which writes every file again.

        Gives their number; the table is then opened anew, with its definition of then. Raises
        BadTable for one that cannot have these names, and FencedWriter when it does not stay the
        same for as long as it takes.
        """
        return upgrade(self.spec, self._sides, self.committer)

    def vacuum(
        self, *, now_ms: int, older_than_ms: int = 7 * 86_400_000, dry_run: bool = False
    ) -> list[str]:
        """Delete files that no reader can need and that are older; gives their paths.

        The age must exceed the time that a batch takes: its files belong to no table before its
        commit.
        """
        return self._maintenance.vacuum(before_ms=now_ms - older_than_ms, dry_run=dry_run)

    def checkpoint(self) -> None:
        """Shorten what must be read to load the table and its side tables.

        Raises as `Backend.tidy`.
        """
        self._backend.tidy(self._backend.load())
        for side in SIDES:
            if (present := self._sides.load(side)) is not None:
                self._sides.backend(side).tidy(present)

    def _shorten(self) -> None:
        """As `checkpoint`. The batch is committed: trouble is left for the next time."""
        with left_for_later(log, f"The metadata of table {self.spec.name} is not shortened now"):
            self.checkpoint()

    def _snapshot(self, side: str | None) -> Snapshot | None:
        snapshot = self.committer.settled()
        return snapshot if side is None else self._sides.load(side)


def drop_table(spec: TableSpec) -> None:
    """Delete a table with all that belongs to it: its names in catalogs, definition, files.

    Raises StoreTrouble.
    """
    # Without its definition it is no table any more, however far the rest comes.
    stores.remove(spec.place / SPEC_FILE)
    forget(spec)
    for side in (None, *SIDES):
        open_backend(spec, side).drop()
    stores.remove_tree(spec.place)


def open_store(
    spec: TableSpec, *, create: bool = False, spark: SparkSession | None = None
) -> TableStore:
    """The store of a table; with `create`, as `TableStore.make_sure` leaves it.

    With a session, batches are committed by the writer that the definition names; without one,
    everything by this package. Raises InvalidSetting when the session lacks that writer.
    """
    store = TableStore(spec, None if spark is None else open_for_run(spec, spark))
    if create:
        store.make_sure()
    return store
