"""The marks of a Delta table: read once, and then followed from commit to commit.

Theory: delta-rs looks a mark up by reading the table's log from its newest checkpoint on, each name
anew. A commit needs a handful of marks, and five for each partition that it holds: that came to
more than a thousand reads of a store. So all marks are read at once, the way every reader of Delta
reads them: from the checkpoint, and from the commits after it. Later versions differ by what the
commits between set, and by nothing else; and what a commit of this process sets is known.

Where the log is one that this file does not read (checkpoints of Delta's version 2, a commit that
was cleaned away), marks are looked up through delta-rs, as they are asked for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.lakehouse.locations import stores
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.tables.marks import is_of_query

_FOLLOWED: Final = 100
"""Commits that are read one by one. After more of them there is a checkpoint."""


class Marks(NamedTuple):
    """Of one version. If they are `complete`, a name without a value has none.

    `undated` are those of the table's own that have no time.
    """

    values: dict[str, int | None]
    complete: bool = False
    undated: frozenset[str] = frozenset()


class MarkReader:
    """The marks of the table in `directory`, of one version after the other."""

    def __init__(self, directory: Location) -> None:
        self._log = directory / "_delta_log"
        self._version = -1
        self._marks = Marks({})
        self._made: tuple[int, Mapping[str, int]] | None = None

    def at(self, version: int) -> Marks:
        """The marks of a version that the table has. Raises StoreTrouble."""
        if version != self._version:
            self._marks = self._after(version) or self._anew(version)
            self._version = version
        return self._marks

    def made(self, version: int, marks: Mapping[str, int]) -> None:
        """This process made the commit `version`, which set `marks`."""
        self._made = version, marks

    def _after(self, version: int) -> Marks | None:
        """By what the commits since the last look set; None if that cannot be known."""
        if not 0 <= self._version < version <= self._version + _FOLLOWED:
            return None
        found = _Found(dict(self._marks.values), set(self._marks.undated))  # a snapshot has those
        try:
            for each in range(self._version + 1, version + 1):
                found.take(self._set_by(each))
        except FileNotFoundError:
            return None
        return found.marks(complete=self._marks.complete)

    def _anew(self, version: int) -> Marks:
        try:
            found, base = self._checkpoint(version)
            if version - base > _FOLLOWED:
                return Marks({})
            for each in range(base + 1, version + 1):
                found.take(self._set_by(each))
        except (FileNotFoundError, pa.ArrowInvalid, _UnknownCheckpoint):
            return Marks({})
        return found.marks(complete=True)

    def _set_by(self, version: int) -> Iterable[_Mark]:
        if self._made is not None and self._made[0] == version:
            return [_Mark(name, number, is_dated=True) for name, number in self._made[1].items()]
        return _set_in(stores.read_text(self._log / f"{version:020}.json"))

    def _checkpoint(self, version: int) -> tuple[_Found, int]:
        """The marks in the newest checkpoint, and its version; -1 if there is none yet."""
        try:
            note = json.loads(stores.read_text(self._log / "_last_checkpoint"))
        except FileNotFoundError:
            return _Found({}, set()), -1
        except ValueError:  # it is written over in place: this may be a half of it
            raise _UnknownCheckpoint from None
        base = note.get("version")
        if not isinstance(base, int) or base > version or note.get("v2Checkpoint") is not None:
            raise _UnknownCheckpoint
        parts = note.get("parts")
        names = (
            [f"{base:020}.checkpoint.parquet"]
            if parts is None
            else [f"{base:020}.checkpoint.{n:010}.{parts:010}.parquet" for n in range(1, parts + 1)]
        )
        found = _Found({}, set())
        for name in names:
            with stores.parquet(self._log / name) as file:
                found.take(_set_at(file))
        return found, base


class _UnknownCheckpoint(Exception):
    """There is none that this file reads."""


class _Mark(NamedTuple):
    name: str
    number: int
    is_dated: bool


@dataclass(slots=True)
class _Found:
    """The marks up to some version."""

    values: dict[str, int | None]
    undated: set[str]

    def take(self, newer: Iterable[_Mark]) -> None:
        for mark in newer:
            self.values[mark.name] = mark.number
            self.undated.discard(mark.name)
            if not mark.is_dated and not is_of_query(mark.name):
                self.undated.add(mark.name)

    def marks(self, *, complete: bool) -> Marks:
        return Marks(self.values, complete, frozenset(self.undated))


def _set_in(text: str) -> Iterator[_Mark]:
    """What a commit sets. Its lines end with "\\n" only: statistics hold what else ends a line."""
    for line in text.split("\n"):
        action: dict[str, Any] = json.loads(line) if line.strip() else {}
        if (mark := action.get("txn")) is not None:
            yield _Mark(mark["appId"], mark["version"], mark.get("lastUpdated") is not None)


def _set_at(file: pq.ParquetFile) -> Iterator[_Mark]:
    """What a part of a checkpoint holds; each mark is in one row of one part."""
    if "txn" not in file.schema_arrow.names:
        return
    for batch in file.iter_batches(columns=["txn"]):
        column = batch.column("txn")
        for mark in column.drop_null().to_pylist():
            if mark["appId"] is not None:
                yield _Mark(mark["appId"], mark["version"], mark.get("lastUpdated") is not None)
