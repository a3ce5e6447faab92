"""What a table format must be able to do for `committing` and `maintenance`.

Theory: the two need little: to see a table as it is, and to change it in one step that fails when
another writer has changed it since. All that makes a batch land once is built on that one step,
above this interface.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from typing import Final, NamedTuple, Protocol

import pyarrow as pa

from strandline.lakehouse.locations.errors import StoreTrouble
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.tables.errors import BadTable, FencedWriter
from strandline.lakehouse.tables.names import FIRST, NAMES, OwnNames
from strandline.lakehouse.tables.transforms import PartitionValue, Transform
from strandline.lakehouse.tables.written import WrittenFile


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file that a table has. `partition` has a value for each transform."""

    path: Location
    size: int
    rows: int
    partition: tuple[PartitionValue, ...]


class Bounds(NamedTuple):
    """Of one column in one file: least and greatest value, and whether a row has none.

    Times are microseconds since 1970, dates those of their first and their last moment. None: no
    row has a value, or the file does not say.
    """

    least: int | None = None
    greatest: int | None = None
    has_nulls: bool = True


def number_of(value: object, *, upper: bool) -> int | None:
    """A bound of a column of integers, times or dates as `Bounds` has it."""
    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
        return (moment - _EPOCH) // timedelta(microseconds=1)
    if isinstance(value, date):
        days = value.toordinal() - _EPOCH.toordinal() + upper
        return days * 86_400_000_000 - upper
    return value if isinstance(value, int) and not isinstance(value, bool) else None


@dataclass(frozen=True, slots=True)
class Change:
    """One atomic change. `marks` are set; `metadata` is kept in the commit, as JSON.

    `same_rows` says that readers see the same rows before and after.
    """

    adds: Sequence[WrittenFile] = ()
    removes: Sequence[DataFile] = ()
    marks: Mapping[str, int] = field(default_factory=dict)
    metadata: Mapping[str, object] = field(default_factory=dict)
    same_rows: bool = False


@dataclass(frozen=True, slots=True)
class Commit:
    """A change as the table's history tells it. `metadata` is empty for those of other writers."""

    version: int
    at_ms: int
    metadata: Mapping[str, object]


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Conflict(Exception):
    """The table is not any more what the change was made for. Nothing was changed."""


_RENAMED: Final = "; names of version 2"
"""Stands behind the division that a table keeps once its own columns were renamed. Version 0.1.0
looks at the division before each commit, and refuses a table with one that it does not know."""


def divided_by(transforms: Sequence[Transform], *, renamed: bool = False) -> str:
    """How a table is divided, as the table itself keeps it."""
    return ", ".join(map(str, transforms)) + (_RENAMED if renamed else "")


def earlier(transforms: Sequence[Transform]) -> list[Transform]:
    """The same, with the names of the first version for the table's own columns."""
    names = NAMES.renamed(FIRST)
    return [replace(item, column=names.get(item.column, item.column)) for item in transforms]


def check_division(directory: Location, kept: str, transforms: Sequence[Transform]) -> None:
    """Raises BadTable when a definition says now that the table is divided otherwise.

    A side table may still be divided by the names of the first version, until it has followed.
    """
    wanted = divided_by(transforms)
    if kept.removesuffix(_RENAMED) not in (wanted, divided_by(earlier(transforms))):
        raise BadTable(
            f"The table in {directory} is divided by ({kept}), and its definition says ({wanted}): "
            "that cannot change. Make a new table, or restore the definition."
        )


def check_names(directory: Location, columns: Sequence[str], names: OwnNames | None) -> None:
    """That a table's own columns have the names of its definition; None: they may have any.

    Raises FencedWriter when the table was upgraded since the definition was read, and BadTable
    when the definition is ahead of the table.
    """
    if names is None or names.offset in columns:
        return
    if NAMES.offset in columns:
        raise FencedWriter(
            f"The table in {directory} was upgraded by another process: its column "
            f"{names.offset} is called {NAMES.offset} now. Run the command again."
        )
    raise BadTable(
        f"The table in {directory} has no column {names.offset}, which its definition says by its "
        'version. Restore the definition ("version": 1), and then type: strandline table upgrade.'
    )


class OutcomeUnknown(StoreTrouble):
    """The store, or the catalog, did not say whether the change was made (`landing` finds out)."""


class Snapshot(Protocol):
    """A table at one moment."""

    @property
    def version(self) -> int:
        """The format's own number of this moment."""

    @property
    def schema(self) -> pa.Schema:
        """All columns."""

    def mark(self, name: str) -> int | None:
        """The number under a name."""

    def files(self) -> list[DataFile]:
        """The files whose rows are the table's; costs time in proportion to their number."""

    def bounds(self, column: str) -> dict[Location, Bounds]:
        """Of each file; costs as `files`."""

    def history(self, limit: int | None) -> list[Commit]:
        """The newest changes first, as far back as the format keeps them."""


class Backend(Protocol):
    """One table of one format in one directory."""

    def exists(self) -> bool:
        """Whether there is a table."""

    def create(self, schema: pa.Schema, transforms: Sequence[Transform]) -> None:
        """Make an empty table; raises TableExists."""

    def drop(self) -> None:
        """Take the table out of a catalog that outlasts its directory; files stay."""

    def load(self) -> Snapshot:
        """The table now; raises TableMissing."""

    def load_at(self, version: int) -> Snapshot:
        """The table as it was at one of the format's versions; raises BadTable if that is gone."""

    def evolve(self, snapshot: Snapshot, schema: pa.Schema) -> None:
        """Give the table further columns or fields; raises Conflict."""

    def commit(self, snapshot: Snapshot, change: Change) -> int:
        """Change the table as it was in `snapshot`, and give the new version.

        Raises Conflict and OutcomeUnknown, as what follows does.
        """

    def replace(self, snapshot: Snapshot, change: Change, schema: pa.Schema) -> int:
        """As `commit` of a change that removes all files, and gives the table other columns."""

    def check_rename(self, snapshot: Snapshot) -> None:
        """That `rename` can be done with what others made of the table; raises BadTable."""

    def rename(self, snapshot: Snapshot, change: Change, names: Mapping[str, str]) -> int:
        """As `replace`, where columns keep their types and get new names, by the present ones.

        This table is opened as it is divided afterwards; `snapshot` is of before.
        """

    def tidy(self, snapshot: Snapshot) -> None:
        """Shorten what must be read to load the table; history beyond the format's limits goes.

        Raises Conflict, StoreTrouble, BadTable, and OSError for a local disk.
        """

    def orphans(self, snapshot: Snapshot, *, before_ms: int) -> list[Location]:
        """Files below the directory that no reader can need: unnamed or removed before then."""
