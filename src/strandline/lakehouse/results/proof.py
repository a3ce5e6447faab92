"""What can be shown of a table that queries fill: each batch is in it once, and its rows are there.

Theory: the results themselves cannot be computed again here, since only Spark and the checkpoint
know how. But a batch is in the table by one commit, which names it. So the history must have the
batches of each query one after the other, the table's mark must be the last of them, the rows of
its files must be as many as its commits say, and with keys no key may be there twice. Held against
a checkpoint: what that says is committed, the table has; and the table has nothing that the
checkpoint has not begun. Needs no Spark.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, NamedTuple

import pyarrow as pa

from strandline.errors import InvalidSetting
from strandline.lakehouse.locations import stores
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.results.keys import BatchKeys, doubled_keys
from strandline.lakehouse.tables import marks
from strandline.lakehouse.tables.backend import DataFile, Snapshot
from strandline.lakehouse.tables.definition import TableSpec
from strandline.lakehouse.tables.history import (
    APPENDED,
    BATCH,
    COMPLETE,
    GAP_ACCEPTED,
    OVERWRITTEN,
    CommitRecord,
)
from strandline.lakehouse.tables.presence import absence, absent_files
from strandline.lakehouse.tables.reading import read_batches, stored_columns
from strandline.lakehouse.tables.store import TableStore
from strandline.lakehouse.tables.written import by_partition

_OF_STREAMS: Final = (BATCH, COMPLETE)
_REPLACING: Final = (COMPLETE, OVERWRITTEN)
_ADDING: Final = (BATCH, APPENDED)


class QueryBatches(NamedTuple):
    """Of one query: its first and last batch in the history, and how many of them are there."""

    query_id: str
    first: int
    last: int
    batches: int


@dataclass(slots=True)
class ResultReport:
    """Of a table that queries fill, at one commit."""

    table: str
    commits: int
    rows: int
    queries: list[QueryBatches] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """Whether nothing is wrong."""
        return not self.wrong

    def sentences(self) -> list[str]:
        """What was found, for people."""
        return [
            *self.wrong,
            *self.notes,
            "Proven: each batch is in the table once, and the table has the rows of its commits."
            if self.is_good
            else "The table is not what its commits say.",
        ]

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "table": self.table,
            "commits": self.commits,
            "good": self.is_good,
            "rows": self.rows,
            "queries": [each._asdict() for each in self.queries],
            "wrong": self.wrong,
            "sentences": self.sentences(),
        }


def written_by(history: Sequence[CommitRecord]) -> list[CommitRecord]:
    """The last batch of each query, the newest first; `history` begins with the newest commit."""
    found: dict[str, CommitRecord] = {}
    for each in history:
        if each.kind in _OF_STREAMS:
            found.setdefault(each.query_id, each)
    return list(found.values())


def prove(store: TableStore, checkpoint: Location | None = None) -> ResultReport:
    """Raises TableError, StoreTrouble, and InvalidSetting for what is no checkpoint of a query."""
    snapshot = store.snapshot_at(None)
    history = list(reversed(store.history()))
    files = snapshot.files()
    report = ResultReport(
        store.spec.name, snapshot.mark(marks.SEQUENCE) or 0, sum(each.rows for each in files)
    )
    absent = absent_files(files)
    if absent:
        report.wrong.append(absence(absent, len(files)))
    _check_order(report, history)
    for query_id in dict.fromkeys(each.query_id for each in history if each.kind in _OF_STREAMS):
        _check_query(report, snapshot, history, query_id)
    if store.spec.keys:
        if not absent:
            _check_keys(report, store.spec, snapshot, files)
    else:
        _check_rows(report, history)
    if checkpoint is not None:
        _check_checkpoint(report, snapshot, history, checkpoint)
    elif report.queries:
        report.notes.append(
            "Whether it has all that a query's checkpoint says is shown with --checkpoint DIR."
        )
    return report


def _check_order(report: ResultReport, history: Sequence[CommitRecord]) -> None:
    numbers = [each.sequence for each in history]
    if numbers and (numbers[-1] != report.commits or _jumps(numbers)):
        report.wrong.append("The commits of the table's history do not follow one another.")
    if numbers and numbers[0] > 1:
        report.notes.append(
            f"The format keeps the history from commit {numbers[0]} on: earlier ones are not seen."
        )


def _check_query(
    report: ResultReport, snapshot: Snapshot, history: Sequence[CommitRecord], query_id: str
) -> None:
    mine = [each for each in history if each.query_id == query_id]
    numbers = [each.batch_id for each in mine]
    report.queries.append(QueryBatches(query_id, numbers[0], numbers[-1], len(numbers)))
    for before, after in pairwise(mine):
        if after.batch_id <= before.batch_id:
            report.wrong.append(
                f"Batch {after.batch_id} of query {query_id} is in the table more than once."
            )
        elif after.batch_id > before.batch_id + 1:
            _tell_gap(report, after, before.batch_id + 1)
    if history[0].sequence == 1 and numbers[0] > 0:
        _tell_gap(report, mine[0], 0)
    if snapshot.mark(marks.result_mark(query_id)) != numbers[-1]:
        report.wrong.append(f"The table's mark of query {query_id} is not that of its last commit.")


def _tell_gap(report: ResultReport, at: CommitRecord, first: int) -> None:
    sentence = f"Batches {first} to {at.batch_id - 1} of query {at.query_id} are not in the table"
    if at.through == GAP_ACCEPTED:
        report.notes.append(f"{sentence}: the query was allowed to go on behind them.")
    else:
        report.wrong.append(f"{sentence}.")


def _check_rows(report: ResultReport, history: Sequence[CommitRecord]) -> None:
    known = 0 if history and history[0].sequence == 1 else None
    for each in history:
        if each.kind in _REPLACING:
            known = each.rows
        elif each.kind in _ADDING and known is not None:
            known += each.rows
    if known is not None and known != report.rows:
        report.wrong.append(
            f"The commits say that there are {known:,} rows, and the table's files have "
            f"{report.rows:,}."
        )


def _check_keys(
    report: ResultReport, spec: TableSpec, snapshot: Snapshot, files: Sequence[DataFile]
) -> None:
    columns = stored_columns(spec, None, snapshot.schema)
    wanted = pa.schema([columns.field(name) for name in spec.keys])
    doubled = 0
    for division in by_partition(files).values():
        batches = read_batches([each.path for each in division], wanted)
        with BatchKeys(sum(each.rows or 0 for each in division), batches, wanted) as keys:
            doubled += sum(map(doubled_keys, keys))
    if doubled:
        report.wrong.append(f"{doubled:,} keys have more than one row.")


def _check_checkpoint(
    report: ResultReport, snapshot: Snapshot, history: Sequence[CommitRecord], place: Location
) -> None:
    query_id = _query_of(place)
    committed, begun = _numbers(place / "commits"), _numbers(place / "offsets")
    mark = snapshot.mark(marks.result_mark(query_id))
    if not committed and mark is None:
        report.notes.append(f"The query of {place} has committed no batch yet.")
        return
    newest = max(committed, default=-1)
    if mark is None:
        report.wrong.append(f"The table has no batch of the query {query_id} of {place}.")
        return
    if mark < newest:
        report.wrong.append(
            f"Batches {mark + 1} to {newest} are committed in {place}, and not in the table."
        )
    if mark > max(begun, default=-1):
        report.wrong.append(
            f"The table has batch {mark} of query {query_id}, which {place} has not begun: it is "
            "an older copy of the checkpoint, or another table's."
        )
    elif mark > newest:
        report.notes.append(
            f"Batch {mark} is in the table and not yet committed in {place}: Spark will repeat it, "
            "and the table knows it."
        )
    held = [each.batch_id for each in history if each.query_id == query_id]
    lost = [each for each in committed if held and held[0] <= each <= mark and each not in held]
    if lost:
        report.wrong.append(
            f"Batch {lost[0]} is committed in {place}, and the table's history has it not."
        )


def _query_of(place: Location) -> str:
    try:
        return str(json.loads(stores.read_text(place / "metadata"))["id"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidSetting(
            "checkpoint",
            f"{place} is no checkpoint of a query: its file metadata cannot be read "
            f"({type(error).__name__}).",
        ) from error


def _numbers(directory: Location) -> list[int]:
    """The batches that a log of a checkpoint still has; Spark keeps the newest hundred."""
    names = [each.location.name for each in stores.listed(directory)]
    return sorted(int(name) for name in names if name.isdecimal())


def _jumps(numbers: Sequence[int]) -> bool:
    return any(after != before + 1 for before, after in pairwise(numbers))
