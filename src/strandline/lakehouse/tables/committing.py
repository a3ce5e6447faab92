"""How a batch gets into a table exactly once.

Theory (design note 0013): one atomic change of the table is the moment at which a batch is in it:
its files, identity, ranges and watermark, and the list of what belongs into the side tables, which
follow it (`settling`). The change succeeds only on the very table that all checks were made on;
after any other change they are made again. A batch that the table knows is skipped. A query that
another one has taken the table over from is refused for good. This file knows no format, and no
Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from shlex import quote
from typing import Final, NamedTuple

import pyarrow as pa

from strandline.lakehouse.deadletters.letters import lost as lost_letters
from strandline.lakehouse.tables import marks
from strandline.lakehouse.tables.backend import Backend, Change, Conflict, DataFile, Snapshot
from strandline.lakehouse.tables.definition import (
    DEAD_LETTERS,
    SPEC_FILE,
    TableSpec,
    partitioning,
)
from strandline.lakehouse.tables.dividing import check_divided
from strandline.lakehouse.tables.errors import BadTable, FencedWriter, SchemaMoved
from strandline.lakehouse.tables.files import PartitionedFiles, remove_files
from strandline.lakehouse.tables.history import BATCH, LOSS, REPLAY, Counts, SideChange, describe
from strandline.lakehouse.tables.identity import BatchIdentity, OffsetRange
from strandline.lakehouse.tables.landing import land
from strandline.lakehouse.tables.parts import Carrier, here
from strandline.lakehouse.tables.presence import check_writes, check_written
from strandline.lakehouse.tables.ranges import check_files, lost_now, new_ranges
from strandline.lakehouse.tables.removals import stamp_removed
from strandline.lakehouse.tables.schemas import settle_schema, wider_columns
from strandline.lakehouse.tables.settling import SIDES, SideTables
from strandline.lakehouse.tables.upsert import DELETED, merge_changes
from strandline.lakehouse.tables.written import TaskWrite, WrittenFile

COMMITTED: Final = "committed"
REPLAYED: Final = "replayed"
NOTHING_NEW: Final = "nothing_new"

_ATTEMPTS: Final = 50


class CommitResult(NamedTuple):
    """What became of a batch: COMMITTED, REPLAYED (the table knew it), or NOTHING_NEW.

    `ranges` is what was new; `rows` went into the table, `dead_letters` and `late_rows` beside it
    (late rows that are counted only are in `rows` as well); a transform `dropped` records.
    """

    outcome: str
    sequence: int
    version: int
    rows: int = 0
    dead_letters: int = 0
    late_rows: int = 0
    dropped: int = 0
    ranges: tuple[OffsetRange, ...] = ()


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a commit is to contain; where rows are upserted, `files` are changes and not yet rows.

    `removes` names files of the dead letters that the commit makes superfluous.
    """

    kind: str
    query_id: str = ""
    batch_id: int = -1
    ranges: tuple[OffsetRange, ...] = ()
    lost: tuple[OffsetRange, ...] = ()
    writes: tuple[TaskWrite, ...] = ()
    marks: Mapping[str, int] = field(default_factory=dict)
    removes: tuple[str, ...] = ()
    through: str = ""

    @property
    def files(self) -> list[WrittenFile]:
        """The files with rows, of all tasks."""
        return [item for write in self.writes for item in write.files]


class Committer:
    """Commits to one table."""

    def __init__(self, spec: TableSpec, backend: Backend, sides: SideTables) -> None:
        self._spec = spec
        self._backend = backend
        self._sides = sides
        self.carrier: Carrier = here
        """Where changes are merged into files by key."""

    def settled(self) -> Snapshot:
        """The table now, after its side tables have followed it."""
        snapshot = self._backend.load()
        self._sides.settle(snapshot)
        return snapshot

    def commit_batch(self, identity: BatchIdentity, writes: Sequence[TaskWrite]) -> CommitResult:
        """Put a batch into the table; as `TableStore.commit`."""
        for _ in range(_ATTEMPTS):
            snapshot = self.settled()
            known = snapshot.mark(marks.query_mark(identity.query_id))
            sequence = snapshot.mark(marks.SEQUENCE) or 0
            check_marks(self._spec, snapshot)
            if known is not None and known >= identity.batch_id:
                return CommitResult(REPLAYED, sequence, snapshot.version)
            self._check_fence(snapshot, identity.query_id, known)
            ranges = new_ranges(identity, partial(marks.read_frontier, snapshot.mark))
            check_files(ranges, writes)
            if not ranges:
                return CommitResult(NOTHING_NEW, sequence, snapshot.version)
            proposal = Proposal(
                kind=BATCH,
                query_id=identity.query_id,
                batch_id=identity.batch_id,
                ranges=ranges,
                lost=lost_now(identity, ranges),
                writes=tuple(writes),
                marks=self._marks(snapshot, identity, ranges, writes),
                through=identity.through,
            )
            try:
                return self.propose(snapshot, proposal)
            except Conflict:
                continue
        raise FencedWriter(f"The table {self._spec.name} is changed all the time by others.")

    def commit_lost(self, lost: Sequence[OffsetRange]) -> CommitResult:
        """Put the loss of ranges on record; as `TableStore.declare_lost`."""
        ends = tuple(item._replace(start=item.end) for item in lost)
        identity = BatchIdentity(LOSS, 0, ends, tuple(lost))
        for _ in range(_ATTEMPTS):
            snapshot = self.settled()
            check_marks(self._spec, snapshot)
            ranges = new_ranges(identity, partial(marks.read_frontier, snapshot.mark))
            if not ranges:
                sequence = snapshot.mark(marks.SEQUENCE) or 0
                return CommitResult(NOTHING_NEW, sequence, snapshot.version)
            proposal = Proposal(
                kind=LOSS,
                ranges=ranges,
                lost=lost_now(identity, ranges),
                marks=marks.marks_of_ranges(snapshot.mark, ranges),
            )
            try:
                return self.propose(snapshot, proposal)
            except Conflict:
                continue
        raise FencedWriter(f"The table {self._spec.name} is changed all the time by others.")

    def propose(self, snapshot: Snapshot, proposal: Proposal) -> CommitResult:
        """Try one commit on `snapshot`; raises Conflict, TableError, StoreTrouble.

        After the last of these the commit may have been made, and all of its files stay.
        """
        directory = self._spec.directory()
        beside = {side: self._spec.directory(side) for side in SIDES}
        check_writes(proposal.writes, directory, beside)
        late = [file for each in proposal.writes for file in each.late]
        check_divided((*proposal.files, *late), partitioning(self._spec))
        snapshot = self._with_columns(snapshot, proposal)
        sequence = (snapshot.mark(marks.SEQUENCE) or 0) + 1
        adds: Sequence[WrittenFile] = proposal.files
        removes: Sequence[DataFile] = ()
        if self._spec.mode == "upsert":
            adds, removes = merge_changes(self._spec, snapshot, proposal.files, self.carrier)
            check_written(directory, adds)
        lost_letter_files = self._lost_range_letters(proposal, sequence)
        sides = _side_changes(proposal, lost_letter_files)
        counts = _count(proposal, self._spec.mode)
        change = Change(
            adds=adds,
            removes=removes,
            marks={
                **proposal.marks,
                marks.SEQUENCE: sequence,
                **{marks.side_mark(side): sequence for side in sides},
            },
            metadata=describe(
                sequence=sequence,
                kind=proposal.kind,
                query_id=proposal.query_id,
                batch_id=proposal.batch_id,
                through=proposal.through,
                ranges=proposal.ranges,
                lost=proposal.lost,
                adds=adds,
                removes=removes,
                counts=counts,
                sides=sides,
            ),
        )
        stamp_removed(removes)
        try:
            version = land(self._backend, change, lambda: self._backend.commit(snapshot, change))
        except Conflict:
            if self._spec.mode == "upsert":
                remove_files(self._spec.directory(), adds)
            remove_files(self._spec.directory(DEAD_LETTERS), lost_letter_files)
            raise
        if sides:
            self._sides.settle(self._backend.load())
        if self._spec.mode == "upsert":
            remove_files(self._spec.directory(), proposal.files)
        return CommitResult(COMMITTED, sequence, version, *counts, proposal.ranges)

    def _check_fence(self, snapshot: Snapshot, query_id: str, known: int | None) -> None:
        """A query that committed before must still be the last one that did."""
        writer = snapshot.mark(marks.WRITER)
        if known is not None and writer != marks.writer_of(query_id):
            raise FencedWriter(
                f"Another query writes the table {self._spec.name} since batch {known} of query "
                f"{query_id}; this one must stop."
            )

    def _marks(
        self,
        snapshot: Snapshot,
        identity: BatchIdentity,
        ranges: Sequence[OffsetRange],
        writes: Sequence[TaskWrite],
    ) -> dict[str, int]:
        moved = marks.marks_of_ranges(snapshot.mark, ranges)
        moved[marks.query_mark(identity.query_id)] = identity.batch_id
        moved[marks.WRITER] = marks.writer_of(identity.query_id)
        times = [item.max_event_time_us for item in writes if item.max_event_time_us is not None]
        if times and self._spec.watermark_ms is not None:
            reached = max(times) - self._spec.watermark_ms * 1000
            before = snapshot.mark(marks.WATERMARK)
            moved[marks.WATERMARK] = reached if before is None else max(before, reached)
        return moved

    def _with_columns(self, snapshot: Snapshot, proposal: Proposal) -> Snapshot:
        """The table with the columns that the files need; raises SchemaMoved for misfits."""
        late = [item for write in proposal.writes for item in write.late]
        settled = settle_schema(snapshot.schema, [*proposal.files, *late], without=(DELETED,))
        snapshot = evolved(self._backend, snapshot, settled.schema)
        if settled.misfits:
            raise SchemaMoved(
                f"The schema of table {self._spec.name} had to be settled before the batch: "
                f"{settled.reason} The batch must be written again.",
                wider_columns(snapshot.schema, settled.misfits),
            )
        return snapshot

    def _lost_range_letters(self, proposal: Proposal, sequence: int) -> tuple[WrittenFile, ...]:
        """A file with a letter for each range whose loss was accepted."""
        if not proposal.lost:
            return ()
        files = PartitionedFiles(self._spec.directory(DEAD_LETTERS), (), "lost")
        files.write(lost_letters(proposal.lost, sequence=sequence - 1, names=self._spec.names))
        made = files.finish()
        check_written(self._spec.directory(DEAD_LETTERS), made)
        return made


def evolved(backend: Backend, snapshot: Snapshot, schema: pa.Schema) -> Snapshot:
    """A table with the columns of `schema`, and otherwise as in `snapshot`; raises Conflict.

    What was checked of `snapshot` need not hold behind a commit that came in between.
    """
    if schema.equals(snapshot.schema):
        return snapshot
    sequence = snapshot.mark(marks.SEQUENCE)
    backend.evolve(snapshot, schema)
    present = backend.load()
    if not present.schema.equals(schema) or present.mark(marks.SEQUENCE) != sequence:
        raise Conflict("The table changed in between.")
    return present


def check_marks(spec: TableSpec, snapshot: Snapshot) -> None:
    """Raises BadTable for a table that had marks, and has none: a batch would double its rows.

    What they said is not made out of rows again: they do not tell what was compacted, expired or
    dropped, nor how far the watermark was.
    """
    if snapshot.mark(marks.SEQUENCE) is not None:
        return
    for commit in snapshot.history(None):
        if (sequence := commit.metadata.get("sequence")) is not None:
            raise BadTable(
                f"The table {spec.name} has lost its marks, which say what is in it: its history "
                f"has commit {sequence}, and another engine removed what that noted. A batch could "
                "double rows, so none is committed; the rows can still be read (strandline table "
                f"query). Put a copy of the table from before in its place, or {_anew(spec)}"
            )


def _anew(spec: TableSpec) -> str:
    """How to have the table once more, and keep the present one."""
    if spec.is_of_queries:
        return "write another one by queries with new checkpoints."
    if not spec.place.is_local or spec.format != "delta":  # Iceberg's paths are absolute
        return "make another table of its topics: strandline table create."
    place = spec.location
    old = f"{place}-old"
    return (
        f"fill it anew from what the logs of its topics still have, beside the old one: mv "
        f"{quote(place)} {quote(old)} && mkdir {quote(place)} && cp {quote(f'{old}/{SPEC_FILE}')} "
        f"{quote(place)} && strandline table run {spec.name}"
    )


def _side_changes(
    proposal: Proposal, lost_letter_files: Sequence[WrittenFile]
) -> dict[str, SideChange]:
    adds: dict[str, list[WrittenFile]] = {side: [] for side in SIDES}
    adds[DEAD_LETTERS] += lost_letter_files
    for write in proposal.writes:
        for side, files in write.sides().items():
            adds[side] += files
    removes = {DEAD_LETTERS: proposal.removes}
    changes = {side: SideChange(tuple(adds[side]), removes.get(side, ())) for side in SIDES}
    return {side: change for side, change in changes.items() if change != SideChange()}


def _count(proposal: Proposal, mode: str) -> Counts:
    letters = [item for write in proposal.writes for item in write.dead_letters]
    dropped = sum(write.dropped_records for write in proposal.writes)
    rows = sum(item.rows for item in proposal.files)
    return Counts(
        # What is dropped is a change of an upserted table: the key's row goes.
        rows=rows - dropped if mode == "upsert" else rows,
        dropped=dropped,
        # A replay only moves letters from one file to another.
        dead_letters=0 if proposal.kind == REPLAY else sum(item.rows for item in letters),
        late_rows=sum(write.late_rows for write in proposal.writes),
    )
