"""How a batch of a query gets into a table exactly once.

Theory: the number of a query's newest batch is a mark of the table (`marks.result_mark`), set in
the same atomic change as the files of that batch. Spark repeats at most the last batch, and numbers
them without gaps; so a batch up to the mark is in the table, the next one is new, and any other
means that the table or the checkpoint is not what it was. A second mark names the query that
writes: one that was followed by another is refused. A job outside of a stream has no number; what
recognises its commit, if the answer is lost, is the name of the change (`tables.landing`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from strandline.client.clock import SystemClock
from strandline.lakehouse.locations.errors import StoreTrouble
from strandline.lakehouse.results.merging import check_rows, merge_rows
from strandline.lakehouse.results.options import ResultOptions
from strandline.lakehouse.tables import marks
from strandline.lakehouse.tables.backend import Change, Conflict, DataFile, Snapshot
from strandline.lakehouse.tables.caring import care_for
from strandline.lakehouse.tables.committing import (
    COMMITTED,
    REPLAYED,
    CommitResult,
    check_marks,
    evolved,
)
from strandline.lakehouse.tables.definition import partitioning
from strandline.lakehouse.tables.dividing import check_divided
from strandline.lakehouse.tables.errors import BadTable, FencedWriter, SchemaMoved, TableError
from strandline.lakehouse.tables.files import remove_files
from strandline.lakehouse.tables.history import (
    APPENDED,
    BATCH,
    COMPLETE,
    GAP_ACCEPTED,
    OVERWRITTEN,
    Counts,
    describe,
)
from strandline.lakehouse.tables.landing import land
from strandline.lakehouse.tables.parts import Carrier, here
from strandline.lakehouse.tables.presence import check_writes, check_written
from strandline.lakehouse.tables.removals import stamp_removed
from strandline.lakehouse.tables.schemas import settle_schema
from strandline.lakehouse.tables.settling import SIDES
from strandline.lakehouse.tables.store import TIDY_EVERY, TableStore
from strandline.lakehouse.tables.troubles import left_for_later
from strandline.lakehouse.tables.written import TaskWrite, WrittenFile

log = logging.getLogger(__name__)

_ATTEMPTS: Final = 50
_JOINED_BYTES: Final = 32 << 20


class Batch(NamedTuple):
    """A batch of a query; without a `query_id`, the rows of a job outside of a stream.

    `replaces`: its rows are all that the table has then (the output mode complete, or overwrite).
    """

    query_id: str
    batch_id: int
    replaces: bool

    @property
    def kind(self) -> str:
        """What the history calls its commit."""
        if self.query_id:
            return COMPLETE if self.replaces else BATCH
        return OVERWRITTEN if self.replaces else APPENDED


@dataclass
class ResultCommitter:
    """Commits to one table, as the options allow. Not for several threads at once."""

    store: TableStore
    options: ResultOptions
    carrier: Carrier = here

    def __post_init__(self) -> None:
        self._spec = self.store.spec
        self._backend = self.store.backend

    def commit(self, batch: Batch, writes: Sequence[TaskWrite]) -> CommitResult:
        """Put a batch into the table. The files of one that is there already are deleted.

        Raises FencedWriter, BadTable, SchemaMoved, FilesMissing, UnfitRows: nothing was committed,
        and the files are gone; and StoreTrouble, after which the commit may have been made.
        """
        try:
            result = self._attempts(batch, writes)
        except StoreTrouble:
            raise
        except Exception:
            with suppress(StoreTrouble, TableError):
                self.store.discard(writes)
            raise
        if result.outcome == REPLAYED:
            log.info("Batch %d of query %s is in the table already.", *batch[:2])
            self.store.discard(writes)
        elif result.sequence % TIDY_EVERY == 0:
            self._care()
        return result

    def _attempts(self, batch: Batch, writes: Sequence[TaskWrite]) -> CommitResult:
        beside = {side: self._spec.directory(side) for side in SIDES}
        check_writes(writes, self._spec.directory(), beside)
        check_divided((one for each in writes for one in each.files), partitioning(self._spec))
        for _ in range(_ATTEMPTS):
            snapshot = self._backend.load()
            check_marks(self._spec, snapshot)
            if batch.query_id and self._is_known(snapshot, batch):
                sequence = snapshot.mark(marks.SEQUENCE) or 0
                return CommitResult(REPLAYED, sequence, snapshot.version)
            try:
                return self._propose(
                    snapshot, batch, [one for each in writes for one in each.files]
                )
            except Conflict:
                continue
        raise FencedWriter(f"The table {self._spec.name} is changed all the time by others.")

    def _is_known(self, snapshot: Snapshot, batch: Batch) -> bool:
        """Whether the table has the batch. Raises FencedWriter, and BadTable for a gap."""
        known = snapshot.mark(marks.result_mark(batch.query_id))
        if known is not None and known >= batch.batch_id:
            return True
        name, query = self._spec.name, batch.query_id
        writer = snapshot.mark(marks.WRITER)
        if not self.options.shared and writer not in (None, marks.writer_of(query)):
            if known is not None:
                raise FencedWriter(
                    f"Another query writes the table {name} since batch {known} of query {query}; "
                    "this one must stop."
                )
            if not self.options.takes_over:
                raise FencedWriter(
                    f"The table {name} is written by another query than {query}. If that one has "
                    "ended for good (a checkpoint was lost or left, say), the option takeover=true "
                    "gives the table to this one, whose rows come beside those that are there; "
                    "queries=many, in all of them, lets several append to it."
                )
        expected = 0 if known is None else known + 1
        if batch.batch_id != expected and not self.options.accepts_gap:
            raise BadTable(
                f"Batch {batch.batch_id} of query {query} cannot follow: the table {name} "
                + ("has none of this query" if known is None else f"has batch {known} of it")
                + f", and would lack what came from batch {expected} on. Begin with another "
                "checkpoint, or accept that with the option on_gap=accept."
            )
        return False

    def _propose(
        self, snapshot: Snapshot, batch: Batch, files: Sequence[WrittenFile]
    ) -> CommitResult:
        snapshot = self._with_columns(snapshot, files)
        directory = self._spec.directory()
        adds: Sequence[WrittenFile] = files
        removes: Sequence[DataFile] = ()
        merges = bool(self._spec.keys) and not batch.replaces
        if batch.replaces:
            removes = snapshot.files()
            if self._spec.keys:
                check_rows(self._spec, snapshot, files, self.carrier)
        elif merges:
            adds, removes = merge_rows(self._spec, snapshot, files, self.carrier)
            check_written(directory, adds)
        sequence = (snapshot.mark(marks.SEQUENCE) or 0) + 1
        known = snapshot.mark(marks.result_mark(batch.query_id))
        follows = not batch.query_id or batch.batch_id == (-1 if known is None else known) + 1
        moved = {marks.SEQUENCE: sequence}
        if batch.query_id:
            moved[marks.result_mark(batch.query_id)] = batch.batch_id
            moved[marks.WRITER] = marks.writer_of(batch.query_id)
        rows = sum(each.rows for each in files)
        change = Change(
            adds=adds,
            removes=removes,
            marks=moved,
            metadata=describe(
                sequence=sequence,
                kind=batch.kind,
                query_id=batch.query_id,
                batch_id=batch.batch_id,
                through="" if follows else GAP_ACCEPTED,
                adds=adds,
                removes=removes,
                counts=Counts(rows=rows),
                sides={},
            ),
        )
        stamp_removed(removes)
        try:
            version = land(self._backend, change, lambda: self._backend.commit(snapshot, change))
        except Conflict:
            if merges:
                remove_files(directory, adds)
            raise
        if merges:
            remove_files(directory, files)
        return CommitResult(COMMITTED, sequence, version, rows)

    def _with_columns(self, snapshot: Snapshot, files: Sequence[WrittenFile]) -> Snapshot:
        settled = settle_schema(snapshot.schema, files)
        if settled.misfits:
            raise SchemaMoved(
                f"The columns of table {self._spec.name} changed while the batch was written: "
                f"{settled.reason} Start the query again."
            )
        return evolved(self._backend, snapshot, settled.schema)

    def _care(self) -> None:
        """Keep the table fast. The commit is made: trouble is left for the next time."""
        with left_for_later(log, f"The table {self._spec.name} is not cared for now"):
            self.store.checkpoint()
            self.store.compact(target_bytes=_JOINED_BYTES)
            care_for(self.store, now_ms=SystemClock().wall_ms())
