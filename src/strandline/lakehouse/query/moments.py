"""The rows of a table at a commit, and those that came after another one.

A commit is known by its number, as `table history` and each run tell it. How far back one can read
is how far the format keeps its history, and the files that a compaction replaced until a vacuum.
Needs no Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from strandline.errors import InvalidSetting
from strandline.lakehouse.locations import stores
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.tables import marks
from strandline.lakehouse.tables.backend import Snapshot
from strandline.lakehouse.tables.history import CommitRecord
from strandline.lakehouse.tables.identity import OffsetRange
from strandline.lakehouse.tables.names import OwnNames
from strandline.lakehouse.tables.reading import stored_columns
from strandline.lakehouse.tables.store import TableStore


class Scan(NamedTuple):
    """What is to be read: files, their columns, and a filter of rows (None: all of them)."""

    files: list[Location]
    columns: pa.Schema
    rows: Any | None


def scan_of(store: TableStore, *, commit: int | None = None, since: int | None = None) -> Scan:
    """The rows at a commit (the newest by default), and of these what came after `since`.

    `since` takes rows by the offsets of later commits: rows of replayed dead letters are not among
    them. Raises InvalidSetting for commits that are not known (any more).
    """
    if since is not None and store.spec.is_of_queries:
        raise InvalidSetting(
            "since",
            f"The table {store.spec.name} has the results of queries, whose rows do not say which "
            "commit they came with: since is for tables of topics.",
        )
    if commit is None:
        snapshot = store.snapshot_at(None)  # before the history, which then has all of its commits
        history = [] if since is None else store.history()
    else:
        history = store.history()
        snapshot = store.snapshot_at(_of(history, commit).version)
    rows = None
    if since is not None:
        if since or snapshot.mark(marks.SEQUENCE):
            _of(history, since or 1)  # since 0 is all that came: from the first commit on
        later = [
            each
            for record in history
            if record.sequence > since and (commit is None or record.sequence <= commit)
            for each in record.ranges
        ]
        rows = _within(store.spec.names, later)
    return _scan(store, snapshot, rows)


def arrow_of(
    store: TableStore,
    columns: Sequence[str] | None,
    where: Any | None,
    *,
    commit: int | None,
    since: int | None,
) -> pa.Table:
    """The rows of a scan in memory; raises as `scan_of`, and InvalidSetting for other columns."""
    scan = scan_of(store, commit=commit, since=since)
    for name in columns or ():
        if name not in scan.columns.names:
            raise InvalidSetting("columns", f"The table {store.spec.name} has no column {name!r}.")
    if not scan.files:
        return scan.columns.empty_table().select(list(columns or scan.columns.names))
    parts = [each for each in (scan.rows, where) if each is not None]
    wanted = parts[0] & parts[1] if len(parts) > 1 else parts[0] if parts else None
    rows = stores.dataset(scan.files, scan.columns)
    return rows.to_table(columns=None if columns is None else list(columns), filter=wanted)


def _scan(store: TableStore, snapshot: Snapshot, rows: Any | None) -> Scan:
    columns = stored_columns(store.spec, None, snapshot.schema)
    return Scan([each.path for each in snapshot.files()], columns, rows)


def _of(history: Sequence[CommitRecord], commit: int) -> CommitRecord:
    for record in history:
        if record.sequence == commit:
            return record
    known = [record.sequence for record in history]
    there = f"The commits {min(known)} to {max(known)} are known." if known else "There is none."
    raise InvalidSetting("commit", f"There is no commit {commit}, or none any more. {there}")


def _within(names: OwnNames, ranges: Sequence[OffsetRange]) -> Any:
    found = pc.scalar(value=False)
    spans: dict[tuple[str, int], tuple[int, int]] = {}
    for each in ranges:
        low, high = spans.get((each.topic, each.partition), (each.start, each.end))
        spans[each.topic, each.partition] = (min(low, each.start), max(high, each.end))
    for (topic, partition), (start, end) in spans.items():
        found |= (
            (pc.field(names.topic) == topic)
            & (pc.field(names.partition) == partition)
            & (pc.field(names.offset) >= start)
            & (pc.field(names.offset) < end)
        )
    return found
