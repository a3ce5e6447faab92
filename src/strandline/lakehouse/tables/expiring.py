"""Rows, late rows and dead letters that are too old, removed: the time to live of a table's data.

Theory: a row's time is that of its event, or its record's where it has none or the table knows no
event time. Files whose youngest row is too old go as a whole. A file with old and young rows is
written again without the old ones, but only when its oldest row has outlived its time by a tenth:
so each file is written again at most about ten times in its life. Bounds say how old rows may be,
and only the rows how old they are: of a file where some rows have no event time, the oldest record
may be of a young event. Such a file is read, and left as it is if no row of it goes. In the same
commit the places of what goes are noted in the side table `expired`, so that the proof still finds
each record once. Where a record may have several rows, its own time counts for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from strandline.lakehouse.locations import stores
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.tables import marks
from strandline.lakehouse.tables.backend import Backend, Bounds, DataFile, Snapshot
from strandline.lakehouse.tables.committing import Committer
from strandline.lakehouse.tables.definition import DEAD_LETTERS, EXPIRED, LATE, TableSpec
from strandline.lakehouse.tables.files import PartitionedFiles
from strandline.lakehouse.tables.history import EXPIRY
from strandline.lakehouse.tables.names import TIMESTAMP
from strandline.lakehouse.tables.presence import check_present
from strandline.lakehouse.tables.reading import read_batches, stored_columns
from strandline.lakehouse.tables.replacing import Replaced, Replacing
from strandline.lakehouse.tables.settling import SideTables
from strandline.lakehouse.transforming.places import PlaceNotes, as_rows

AGEING: Final = (None, LATE, DEAD_LETTERS)
"""The table and those beside it whose rows get too old."""
_DAY_US: Final = 86_400_000_000
_SLACK: Final = 10
"""A row may outlive its time by this part of it."""
_ROWS_PER_COMMIT: Final = 4_000_000


class Expired(NamedTuple):
    """How many records went, and how many files of them as a whole or written again."""

    records: int = 0
    whole_files: int = 0
    rewritten_files: int = 0


class FileAge(NamedTuple):
    """A file, and the times of its oldest and youngest row in microseconds; None: not known."""

    file: DataFile
    oldest_us: int | None
    youngest_us: int | None


@dataclass(slots=True)
class Doomed:
    """Of one table, what is to go now: files as a whole, and files with old and young rows."""

    side: str | None
    whole: list[DataFile] = field(default_factory=list)
    part: list[DataFile] = field(default_factory=list)


class Expiring:
    """Removes what is too old from one table and its side tables."""

    def __init__(
        self, spec: TableSpec, backend: Backend, sides: SideTables, committer: Committer
    ) -> None:
        self._spec = spec
        self._sides = sides
        self._committer = committer
        self._replacing = Replacing(spec, backend, sides, committer)

    def ages(self, snapshot: Snapshot) -> Iterator[tuple[str | None, list[FileAge]]]:
        """Of the files of each table whose rows get too old."""
        for side in AGEING:
            present = snapshot if side is None else self._sides.load(side)
            if present is not None:
                yield side, ages(self._spec, side, present)

    def expire(self, *, now_ms: int) -> Expired:
        """Remove what is older than the definition allows; nothing if it does not say."""
        if self._spec.expire_rows_ms is None:
            return Expired()
        limit_us = (now_ms - self._spec.expire_rows_ms) * 1000
        total = Expired()
        spared: set[Location] = set()
        while True:  # portions, so that memory is bounded however much is too old
            done = self._portion(self._spec.expire_rows_ms, limit_us, spared)
            if done is None:
                return total
            total = Expired(*(sum(pair) for pair in zip(total, done, strict=True)))

    def with_old_rows(
        self, side: str | None, files: Sequence[DataFile], *, limit_us: int
    ) -> list[DataFile]:
        """As `TableStore.with_old_rows`."""
        if not files:
            return []
        check_present(files)
        schema = self._stored(side, self._committer.settled())
        return [each for each in files if _holds_old(self._spec, side, each, schema, limit_us)]

    def _portion(self, lifetime_ms: int, limit_us: int, spared: set[Location]) -> Expired | None:
        """One commit; None if nothing is to go, or files were replaced meanwhile.

        Files of which no row is to go are added to those that are `spared`.
        """
        snapshot = self._committer.settled()
        found = portion_of(
            [
                doomed(
                    lifetime_ms,
                    side,
                    [each for each in files if each.file.path not in spared],
                    limit_us,
                )
                for side, files in self.ages(snapshot)
            ]
        )
        if not found:
            return None
        schemas = {each.side: self._stored(each.side, snapshot) for each in found}
        for each in found:
            check_present([*each.whole, *each.part])
            schema = schemas[each.side]
            for file in [*each.part]:
                if not _holds_old(self._spec, each.side, file, schema, limit_us):
                    each.part.remove(file)
                    spared.add(file.path)
        found = [each for each in found if each.whole or each.part]
        if not found:
            return Expired()  # there may be more beyond this portion
        gone = PlaceNotes(self._spec.names)
        replaced: list[Replaced] = []
        try:
            for each in found:
                replaced.append(Replaced(each.side))
                self._take(each, replaced[-1], schemas[each.side], limit_us, gone)
            places = gone.whole()
            output = PartitionedFiles(self._spec.directory(EXPIRED), (), "expired")
            output.write(as_rows(places, self._spec.names))
            replaced.append(Replaced(EXPIRED, [], list(output.finish())))
        except BaseException:
            self._replacing.forget(replaced)
            raise
        reached = max(limit_us, snapshot.mark(marks.EXPIRED) or limit_us)
        if not self._replacing.commit(
            snapshot, replaced, EXPIRY, same_rows=False, moved={marks.EXPIRED: reached}
        ):
            return None
        return Expired(
            sum(map(len, places.values())),
            sum(len(each.whole) for each in found),
            sum(len(each.part) for each in found),
        )

    def _stored(self, side: str | None, snapshot: Snapshot) -> pa.Schema:
        """The columns that files have, of the table as it is in `snapshot` or of a side table."""
        present = snapshot if side is None else self._sides.load(side)
        assert present is not None
        return stored_columns(self._spec, side, present.schema)

    def _take(
        self, each: Doomed, replaced: Replaced, schema: pa.Schema, limit_us: int, gone: PlaceNotes
    ) -> None:
        """Note what goes, and write again what stays of files that hold both."""
        side, spec = each.side, self._spec
        for file in each.whole:
            for batch in _columns(file.path, [*spec.names.record]):
                gone.add(batch)
        for file in each.part:
            # Divided by nothing: a file has one partition value, which is kept.
            with PartitionedFiles(spec.directory(side), (), "young") as output:
                for batch in read_batches([file.path], schema):
                    is_old = _is_old(spec, side, batch, limit_us)
                    gone.add(batch.select(list(spec.names.record)).filter(is_old))
                    output.write(batch.filter(pc.invert(is_old)))
                replaced.adds += [made.placed(file.partition) for made in output.finish()]
        replaced.removes += [*each.whole, *each.part]


def ages(spec: TableSpec, side: str | None, snapshot: Snapshot) -> list[FileAge]:
    """Of each file, from the statistics that the format keeps."""
    files = snapshot.files()
    recorded = snapshot.bounds(spec.names.time)
    event = _event_column(spec, side)
    happened = snapshot.bounds(event) if event is not None else {}
    if event in snapshot.schema.names and pa.types.is_date(snapshot.schema.field(event).type):
        happened = {path: _over(each) for path, each in happened.items()}
    return [FileAge(each, *_age(happened.get(each.path), recorded[each.path])) for each in files]


def doomed(lifetime_ms: int, side: str | None, files: list[FileAge], limit_us: int) -> Doomed:
    """What is to go, of files with rows from before `limit_us`."""
    found = Doomed(side)
    for each in files:
        if each.oldest_us is None:
            continue
        if each.youngest_us is not None and each.youngest_us < limit_us:
            found.whole.append(each.file)
        elif each.oldest_us < limit_us - patience_us(lifetime_ms):
            found.part.append(each.file)
    return found


def patience_us(lifetime_ms: int) -> int:
    """How much longer than its time the oldest row of a file with young rows may stay."""
    return lifetime_ms * 1000 // _SLACK


def portion_of(found: list[Doomed]) -> list[Doomed]:
    """As much of it as one commit takes."""
    chosen: list[Doomed] = []
    rows = 0
    for each in found:
        mine = Doomed(each.side)
        for taken, files in ((mine.whole, each.whole), (mine.part, each.part)):
            for file in files:
                if rows < _ROWS_PER_COMMIT:
                    taken.append(file)
                    rows += file.rows
        if mine.whole or mine.part:
            chosen.append(mine)
    return chosen


def _over(days: Bounds) -> Bounds:
    """The moments when days are over, from bounds whose least is the first moment of a day."""
    least = None if days.least is None else days.least + _DAY_US - 1
    return days._replace(least=least)


def _age(happened: Bounds | None, recorded: Bounds) -> tuple[int | None, int | None]:
    """The oldest and the youngest time of a file's rows, as far as bounds tell."""
    used = [each for each in (happened, recorded) if each is not None]
    if happened is not None and not happened.has_nulls:
        used = [happened]
    oldest = [each.least for each in used if each.least is not None]
    youngest = [each.greatest for each in used if each.greatest is not None]
    # A row without any time stays; only notes of lost ranges are such.
    if recorded.has_nulls and (happened is None or happened.has_nulls):
        youngest = []
    return min(oldest, default=None), max(youngest, default=None)


def _event_column(spec: TableSpec, side: str | None) -> str | None:
    """The column of the event time, where a row's age is its event's."""
    if side == DEAD_LETTERS or spec.explode or spec.event_time in (None, spec.names.time):
        return None
    return spec.event_time


def _holds_old(
    spec: TableSpec, side: str | None, file: DataFile, schema: pa.Schema, limit_us: int
) -> bool:
    """Whether a file, with the columns of `schema`, has a row from before `limit_us`."""
    read = (spec.names.time, _event_column(spec, side))
    times = pa.schema([field for field in schema if field.name in read])
    return any(
        pc.any(_is_old(spec, side, batch, limit_us)).as_py()
        for batch in read_batches([file.path], times)
    )


def _is_old(spec: TableSpec, side: str | None, batch: pa.RecordBatch, limit_us: int) -> pa.Array:
    is_old = pc.less(_times(spec, side, batch), pa.scalar(limit_us, TIMESTAMP))
    return pc.fill_null(is_old, fill_value=False)


def _times(spec: TableSpec, side: str | None, batch: pa.RecordBatch) -> pa.Array:
    recorded = batch.column(spec.names.time)
    event = _event_column(spec, side)
    if event is None or event not in batch.schema.names:
        return recorded
    happened = batch.column(event)
    if pa.types.is_date(happened.type):
        # A day is over with its last moment.
        happened = pc.add(happened.cast(pa.timestamp("us")).cast(pa.int64()), _DAY_US - 1)
    return pc.coalesce(happened.cast(pa.int64()).cast(TIMESTAMP), recorded)


def _columns(file: Location, names: list[str]) -> Iterator[pa.RecordBatch]:
    with stores.parquet(file) as opened:
        yield from opened.iter_batches(columns=names)
