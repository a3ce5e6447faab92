"""Files of a table and of its side tables in the place of others, in one commit that is no batch.

Theory: such a commit touches neither frontier nor fence, so a run goes on beside it. It may come
after commits that were made meanwhile, as long as every file that it replaces is still there. What
happens to a side table is listed in the commit of the table, and followed (`settling`), so that the
two cannot disagree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

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
    """Of one table: files that go, and those that come."""

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
    ) -> bool:
        """Whether it was made; if not, files were replaced meanwhile, and the new ones are gone.

        `kind` is what the history calls it, and `moved` are further marks.
        """
        for item in replaced:
            check_written(self._spec.directory(item.side), item.adds)
        stamp_removed(file for item in replaced for file in item.removes)
        try:
            self._attempts(snapshot, replaced, kind, moved or {}, same_rows=same_rows)
        except Conflict:
            self.forget(replaced)  # after any other error, a commit may name the files
            return False
        return True

    def forget(self, replaced: Sequence[Replaced]) -> None:
        """Remove the new files, when no commit can name them."""
        for item in replaced:
            remove_files(self._spec.directory(item.side), item.adds)

    def _attempts(
        self,
        snapshot: Snapshot,
        replaced: Sequence[Replaced],
        kind: str,
        moved: Mapping[str, int],
        *,
        same_rows: bool,
    ) -> None:
        for _ in range(_ATTEMPTS):
            self._check_live(snapshot, replaced)
            change = _change(snapshot, replaced, kind, moved, same_rows=same_rows)
            try:
                land(self._backend, change, partial(self._backend.commit, snapshot, change))
            except Conflict:
                snapshot = self._committer.settled()
                continue
            self._committer.settled()
            return
        raise Conflict("The table changes all the time.")

    def _check_live(self, snapshot: Snapshot, replaced: Sequence[Replaced]) -> None:
        for item in replaced:
            present = snapshot if item.side is None else self._sides.load(item.side)
            live = set() if present is None else {file.path for file in present.files()}
            if any(file.path not in live for file in item.removes):
                raise Conflict("Files that were to be replaced were so meanwhile.")


def _change(
    snapshot: Snapshot,
    replaced: Sequence[Replaced],
    kind: str,
    moved: Mapping[str, int],
    *,
    same_rows: bool,
) -> Change:
    sequence = (snapshot.mark(marks.SEQUENCE) or 0) + 1
    main = next((item for item in replaced if item.side is None), Replaced(None))
    sides = {
        item.side: SideChange(tuple(item.adds), tuple(file.path.name for file in item.removes))
        for item in replaced
        if item.side is not None
    }
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
