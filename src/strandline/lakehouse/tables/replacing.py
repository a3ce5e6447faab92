"""Files of a table and of its side tables in the place of others, in one commit that is no batch.

Theory: such a commit touches neither frontier nor fence, so a run goes on beside it. It may come
after commits that were made meanwhile, as long as every file that it replaces is still there. A
merge by key may have replaced some: where rows stay the same, the commit goes on without the files
that were to take their place. What happens to a side table is listed in the commit of the table,
and followed (`settling`), so that the two cannot disagree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.tables import marks
from strandline.lakehouse.tables.backend import Backend, Change, Conflict, DataFile, Snapshot
from strandline.lakehouse.tables.committing import Committer
from strandline.lakehouse.tables.definition import TableSpec
from strandline.lakehouse.tables.files import remove_files
from strandline.lakehouse.tables.history import SideChange, describe
from strandline.lakehouse.tables.landing import land
from strandline.lakehouse.tables.presence import check_written
from strandline.lakehouse.tables.removals import stamp_removed
from strandline.lakehouse.tables.settling import SideTables
from strandline.lakehouse.tables.written import WrittenFile

_ATTEMPTS: Final = 20


@dataclass(slots=True)
class Replaced:
    """Of one table: files that go, and those that come with the same rows, or fewer."""

    side: str | None
    removes: list[DataFile] = field(default_factory=list)
    adds: list[WrittenFile] = field(default_factory=list)


class Replacing:
    """Makes such commits of one table."""

    def __init__(
        self, spec: TableSpec, backend: Backend, sides: SideTables, committer: Committer
    ) -> None:
        self._spec = spec
        self._backend = backend
        self._sides = sides
        self._committer = committer

    def commit(
        self,
        snapshot: Snapshot,
        replaced: Sequence[Replaced],
        kind: str,
        *,
        same_rows: bool,
        moved: Mapping[str, int] | None = None,
    ) -> list[Replaced]:
        """Make it; gives what of it was made. New files of the rest are gone.

        None of it is made if files were replaced meanwhile, or, if it leaves the `same_rows`, that
        part of it. `kind` is what the history calls it, and `moved` are further marks.
        """
        for item in replaced:
            check_written(self._spec.directory(item.side), item.adds)
        stamp_removed(file for item in replaced for file in item.removes)
        for _ in range(_ATTEMPTS):
            live = self._live(snapshot, replaced)
            if not same_rows and len(live) < len(replaced):
                live = []
            self.forget(each for each in replaced if each not in live)
            replaced = live
            if not replaced:
                return []
            change = _change(snapshot, replaced, kind, moved or {}, same_rows=same_rows)
            try:
                # After any other error than a conflict, a commit may name the files: they stay.
                land(self._backend, change, partial(self._backend.commit, snapshot, change))
            except Conflict:
                snapshot = self._committer.settled()
                continue
            self._committer.settled()
            return [*replaced]
        self.forget(replaced)
        return []

    def forget(self, replaced: Iterable[Replaced]) -> None:
        """Remove the new files, when no commit can name them."""
        for item in replaced:
            remove_files(self._spec.directory(item.side), item.adds)

    def _live(self, snapshot: Snapshot, replaced: Sequence[Replaced]) -> list[Replaced]:
        """Those whose files are all still there."""
        there: dict[str | None, set[Location]] = {}
        for side in {item.side for item in replaced}:
            present = snapshot if side is None else self._sides.load(side)
            there[side] = set() if present is None else {file.path for file in present.files()}
        return [
            item for item in replaced if all(file.path in there[item.side] for file in item.removes)
        ]


def _change(
    snapshot: Snapshot,
    replaced: Sequence[Replaced],
    kind: str,
    moved: Mapping[str, int],
    *,
    same_rows: bool,
) -> Change:
    sequence = (snapshot.mark(marks.SEQUENCE) or 0) + 1
    tables: dict[str | None, Replaced] = {None: Replaced(None)}
    for item in replaced:
        table = tables.setdefault(item.side, Replaced(item.side))
        table.removes += item.removes
        table.adds += item.adds
    main = tables.pop(None)
    changes = {
        side: SideChange(tuple(table.adds), tuple(file.path.name for file in table.removes))
        for side, table in tables.items()
        if side is not None
    }
    # A side table that gets and loses nothing is owed nothing, and gets no mark that says so.
    sides = {side: change for side, change in changes.items() if change != SideChange()}
    return Change(
        adds=main.adds,
        removes=main.removes,
        marks={
            **moved,
            marks.SEQUENCE: sequence,
            **{marks.side_mark(side): sequence for side in sides},
        },
        metadata=describe(
            sequence=sequence, kind=kind, adds=main.adds, removes=main.removes, sides=sides
        ),
        same_rows=same_rows,
    )
