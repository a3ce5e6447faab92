"""An integer column becomes one of doubles, by writing the table's files again.

Theory: neither format can widen a long to a double in place, since old files would be misread. So
every file is written again with the wider column, and one commit swaps all files and the schema;
late rows follow as a side table does. Only if each value is exactly a double: nothing is rounded.
Batches that were written against the narrow column do not fit any more, and are written again
(`SchemaMoved`). A query that goes on meanwhile makes the commit fail: then only files that came
since are written, so that it succeeds before long.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final, TypeAlias

import pyarrow as pa

from strandline.errors import InvalidSetting
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.tables import marks
from strandline.lakehouse.tables.backend import Backend, Change, Conflict, Snapshot
from strandline.lakehouse.tables.committing import Committer
from strandline.lakehouse.tables.definition import LATE, TableSpec, partitioning
from strandline.lakehouse.tables.errors import FencedWriter
from strandline.lakehouse.tables.files import remove_files
from strandline.lakehouse.tables.history import WIDENING, SideChange, describe
from strandline.lakehouse.tables.landing import land
from strandline.lakehouse.tables.parts import Carrier
from strandline.lakehouse.tables.reading import stored_columns
from strandline.lakehouse.tables.removals import stamp_removed
from strandline.lakehouse.tables.rewriting import Copies, Rewritten, rewrite
from strandline.lakehouse.tables.settling import SideTables
from strandline.lakehouse.tables.types import as_doubles

_ATTEMPTS: Final = 20
"""The first writes the whole table, and each later one what has come since."""

_Kept: TypeAlias = dict[str | None, dict[Location, Copies]]
"""Of the table and each side table, the copies that there are, by the file that each is of."""


def widen(
    spec: TableSpec, backend: Backend, sides: SideTables, committer: Committer, column: str
) -> int:
    """As `TableStore.widen`."""
    kept: _Kept = {}
    for _ in range(_ATTEMPTS):
        made: dict[str | None, Rewritten] = {}
        try:
            snapshot = committer.settled()
            _check(spec, snapshot, column)
            made[None] = _rewrite(spec, None, snapshot, column, committer.carrier, kept)
            late = sides.load(LATE)
            if late is not None and column in late.schema.names:
                made[LATE] = _rewrite(spec, LATE, late, column, committer.carrier, kept)
        except BaseException:
            _forget(spec, kept, {})
            raise
        for item in made.values():
            stamp_removed(item.removes)
        change, wider = _change(snapshot, made, column), as_doubles(snapshot.schema, column)
        try:
            land(backend, change, partial(backend.replace, snapshot, change, wider))
        except Conflict:
            continue
        _forget(spec, kept, made)
        committer.settled()
        return sum(len(item.adds) for item in made.values())
    _forget(spec, kept, {})
    raise FencedWriter(
        f"The table {spec.name} is changed faster than it can be written again: "
        "stop its query meanwhile."
    )


def _forget(spec: TableSpec, kept: _Kept, made: Mapping[str | None, Rewritten]) -> None:
    """Remove copies that no commit names: of files that were replaced by others meanwhile."""
    for side, copies in kept.items():
        used = {file.path for file in made[side].removes} if side in made else set()
        for path, files in copies.items():
            if path not in used:
                remove_files(spec.directory(side), files)


def _check(spec: TableSpec, snapshot: Snapshot, column: str) -> None:
    if column in spec.names.own or column not in snapshot.schema.names:
        raise InvalidSetting("column", f"The table {spec.name} has no column {column} of values.")
    kind = snapshot.schema.field(column).type
    if not pa.types.is_int64(kind):
        raise InvalidSetting("column", f"Column {column} is {kind}: only int64 can be widened.")
    if any(transform.column == column for transform in partitioning(spec)):
        raise InvalidSetting("column", f"The table is divided by column {column}.")


def _rewrite(
    spec: TableSpec,
    side: str | None,
    snapshot: Snapshot,
    column: str,
    carrier: Carrier,
    kept: _Kept,
) -> Rewritten:
    """All files, of which those that have no copies yet get them."""
    schema = as_doubles(stored_columns(spec, side, snapshot.schema), column)
    files = snapshot.files()
    copies = kept.setdefault(side, {})
    new = [each for each in files if each.path not in copies]
    try:
        fresh = rewrite(spec.directory(side), new, schema, task="widen", carrier=carrier)
    except pa.ArrowInvalid as error:
        raise InvalidSetting(
            "column", f"Column {column} has a value that is no double exactly: {error}."
        ) from error
    copies.update(zip((each.path for each in new), fresh.copies, strict=True))
    return Rewritten(tuple(files), tuple(copies[each.path] for each in files))


def _change(snapshot: Snapshot, made: dict[str | None, Rewritten], column: str) -> Change:
    sequence = (snapshot.mark(marks.SEQUENCE) or 0) + 1
    sides = {
        side: SideChange(
            item.adds,
            tuple(file.path.name for file in item.removes),
            wider=column,
        )
        for side, item in made.items()
        if side is not None
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
            sequence=sequence, kind=WIDENING, adds=main.adds, removes=main.removes, sides=sides
        ),
        same_rows=True,
    )
