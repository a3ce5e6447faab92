"""A table that an earlier release made gets the names of today for its own columns.

Theory: files have names and no field ids, and are read by name, by users too. So a change of the
metadata alone would leave two names for one column, and Delta would need mapped columns for it.
Every file is written again instead, and one commit swaps all files and the names; the side tables
follow it as ever, and then the definition (`upgraded`). Marks stay, so that exactly once goes on.
A process that opened the table before is refused at its next look at the table (`check_names`).
"""

from __future__ import annotations

from functools import partial
from typing import Final

from strandline.lakehouse.locations import stores
from strandline.lakehouse.tables import marks
from strandline.lakehouse.tables.backend import Change, Conflict, Snapshot
from strandline.lakehouse.tables.committing import Committer
from strandline.lakehouse.tables.definition import (
    DEAD_LETTERS,
    SPEC_VERSION,
    UPGRADE_FILE,
    TableSpec,
)
from strandline.lakehouse.tables.errors import BadTable, FencedWriter
from strandline.lakehouse.tables.history import UPGRADE, SideChange, describe
from strandline.lakehouse.tables.landing import land
from strandline.lakehouse.tables.names import FIRST, NAMES
from strandline.lakehouse.tables.opening import open_backend, side_partitioning
from strandline.lakehouse.tables.parts import Carrier
from strandline.lakehouse.tables.reading import stored_columns
from strandline.lakehouse.tables.removals import stamp_removed
from strandline.lakehouse.tables.rewriting import Rewritten, forget, rewrite
from strandline.lakehouse.tables.settling import SIDES, SideTables
from strandline.lakehouse.tables.upgraded import RENAMED, announce, conclude, upgraded

_ATTEMPTS: Final = 3
"""Each writes the whole table; who loses as often should stop the table's query meanwhile."""


def upgrade(spec: TableSpec, sides: SideTables, committer: Committer) -> int:
    """As `TableStore.upgrade`."""
    if spec.version == SPEC_VERSION:
        _end(spec)
        return 0
    newer = upgraded(spec)
    backend = open_backend(newer)
    found = open_backend(newer, with_any_names=True)
    for _ in range(_ATTEMPTS):
        snapshot = committer.settled()
        _check(spec, newer, snapshot)
        backend.check_rename(snapshot)
        made: dict[str | None, Rewritten] = {}
        try:
            for side in (None, *SIDES):
                present = snapshot if side is None else sides.load(side)
                if present is not None:
                    made[side] = _rewrite(spec, side, present, committer.carrier)
        except BaseException:
            forget(spec, made)
            raise
        announce(spec)
        for item in made.values():
            stamp_removed(item.removes)
        change = _change(snapshot, made)
        try:
            land(found, change, partial(backend.rename, snapshot, change, RENAMED))
        except Conflict:
            forget(spec, made)
            continue
        _end(newer)
        return sum(len(item.adds) for item in made.values())
    raise FencedWriter(
        f"The table {spec.name} is changed faster than it can be written again: "
        "stop its query meanwhile."
    )


def _check(spec: TableSpec, newer: TableSpec, snapshot: Snapshot) -> None:
    """That no other column of the table stands in the way. Raises BadTable."""
    derived = {item.name for item in side_partitioning(spec, None)}
    taken = NAMES.reserved | {item.name.lower() for item in side_partitioning(newer, None)}
    for name in snapshot.schema.names:
        is_own = name in RENAMED or name in derived
        if not is_own and name.lower() in taken:
            raise BadTable(
                f"The table {spec.name} has a column {name} of its values, which in an upgraded "
                "table would be one of its own, or one that engines keep for themselves: it cannot "
                "be upgraded, and goes on as it is. Make another table of the topic."
            )


def _rewrite(spec: TableSpec, side: str | None, snapshot: Snapshot, carrier: Carrier) -> Rewritten:
    schema = stored_columns(spec, side, snapshot.schema)
    directory = spec.directory(side)
    return rewrite(
        directory,
        snapshot.files(),
        schema,
        names=FIRST.renamed(NAMES, letters=side == DEAD_LETTERS),
        task="upgrade",
        carrier=carrier,
    )


def _change(snapshot: Snapshot, made: dict[str | None, Rewritten]) -> Change:
    sequence = (snapshot.mark(marks.SEQUENCE) or 0) + 1
    sides = {
        side: SideChange(item.adds, renamed=True) for side, item in made.items() if side is not None
    }
    main = made[None]
    return Change(
        adds=main.adds,
        removes=main.removes,
        marks={
            marks.SEQUENCE: sequence,
            **{marks.side_mark(side): sequence for side in sides},
        },
        metadata=describe(
            sequence=sequence, kind=UPGRADE, adds=main.adds, removes=main.removes, sides=sides
        ),
        same_rows=True,
    )


def _end(spec: TableSpec) -> None:
    """What is left to do after the commit, whichever process made it."""
    if not stores.exists(spec.place / UPGRADE_FILE):
        return
    Committer(spec, open_backend(spec), SideTables(spec)).settled()
    conclude(spec)
