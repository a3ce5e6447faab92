"""The side tables (letters, late rows, dropped and expired records), as the table's commits say.

Theory: a commit of the table lists what it does to its side tables, and marks its number as due. A
side table marks the number of the last commit that it followed, in the change that follows it; so
following twice does nothing. Since every commit settles its predecessor first, at most one is due
at any time, of all writers.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from strandline.lakehouse.tables import marks
from strandline.lakehouse.tables.backend import Backend, Change, Conflict, Snapshot
from strandline.lakehouse.tables.definition import (
    DEAD_LETTERS,
    DROPPED,
    EXPIRED,
    LATE,
    TableSpec,
)
from strandline.lakehouse.tables.errors import BadTable, FencedWriter, TableExists
from strandline.lakehouse.tables.history import SideChange, read_sides
from strandline.lakehouse.tables.names import FIRST, dropped_schema
from strandline.lakehouse.tables.opening import open_backend, side_partitioning
from strandline.lakehouse.tables.schemas import settle_schema
from strandline.lakehouse.tables.types import as_doubles

SIDES: Final = (DEAD_LETTERS, LATE, DROPPED, EXPIRED)
_ATTEMPTS: Final = 20
_RECENT: Final = 20


class SideTables:
    """The side tables of one table."""

    def __init__(self, spec: TableSpec) -> None:
        self._spec = spec
        self._backends = {side: open_backend(spec, side) for side in SIDES}
        self._followed: dict[str, int] = {}

    def load(self, side: str) -> Snapshot | None:
        """A side table now; None as long as nothing ever went there."""
        backend = self._backends[side]
        return backend.load() if backend.exists() else None

    def backend(self, side: str) -> Backend:
        """The side table itself."""
        return self._backends[side]

    def settle(self, snapshot: Snapshot) -> None:
        """Let the side tables follow the newest commit of the table that concerns them.

        Raises BadTable when the history that should say what to do is gone.
        """
        for side in SIDES:
            due = snapshot.mark(marks.side_mark(side))
            if due is None or self._followed.get(side) == due:
                continue
            present = self.load(side)
            done = None if present is None else present.mark(marks.SEQUENCE)
            if done is None or done < due:
                self._follow(side, due, self._change_of(snapshot, side, due))
            self._followed[side] = due

    def _change_of(self, snapshot: Snapshot, side: str, due: int) -> SideChange:
        for limit in (_RECENT, None):
            for commit in snapshot.history(limit):
                if commit.metadata.get("sequence") == due:
                    # Expiries of earlier versions could owe `expired` a change that is none.
                    return read_sides(commit).get(side, SideChange())
        raise BadTable(
            f"The table {self._spec.name} owes its {side} the files of commit {due}, "
            "and its history does not reach back to it any more."
        )

    def _follow(self, side: str, due: int, change: SideChange) -> None:
        backend = self._backends[side]
        for _ in range(_ATTEMPTS):
            try:
                present = self._ready(backend, side, change)
                done = present.mark(marks.SEQUENCE)
                if done is not None and done >= due:
                    return
                gone = set(change.removes)
                files = present.files() if gone else ()
                following = Change(
                    adds=change.adds,
                    removes=[item for item in files if item.path.name in gone],
                    marks={marks.SEQUENCE: due},
                    metadata={"follows": due},
                )
                if change.renamed:
                    backend.rename(
                        present,
                        following,
                        FIRST.renamed(self._spec.names, letters=side == DEAD_LETTERS),
                    )
                elif change.wider:
                    backend.replace(present, following, as_doubles(present.schema, change.wider))
                else:
                    backend.commit(present, following)
            except Conflict:
                continue
            return
        raise FencedWriter(f"The {side} of table {self._spec.name} change all the time.")

    def _ready(self, backend: Backend, side: str, change: SideChange) -> Snapshot:
        """The side table with the columns that the files need."""
        if not backend.exists():
            # With its own columns even if it gets no rows yet: its mark says what it followed.
            first = (
                dropped_schema(self._spec.names) if side in (DROPPED, EXPIRED) else pa.schema([])
            )
            schema = settle_schema(first, change.adds).schema
            try:
                backend.create(schema, side_partitioning(self._spec, side))
            except TableExists as error:
                raise Conflict(str(error)) from error
        present = backend.load()
        if change.wider or change.renamed:
            return present
        wanted = settle_schema(present.schema, change.adds)
        if not wanted.schema.equals(present.schema):
            backend.evolve(present, wanted.schema)
            return backend.load()
        return present
