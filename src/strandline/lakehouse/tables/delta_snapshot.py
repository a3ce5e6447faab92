"""A Delta table at one version, as its log says it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.tables.backend import (
    Bounds,
    Commit,
    Conflict,
    DataFile,
    Snapshot,
    number_of,
)
from strandline.lakehouse.tables.delta_marks import Marks
from strandline.lakehouse.tables.errors import BadTable
from strandline.lakehouse.tables.transforms import Transform
from strandline.lakehouse.tables.types import as_stored

METADATA: Final = "strandline"
FOR_SPARK: Final[Mapping[str, str]] = {
    "strandline.writer": "spark",
    # Directories named after partition values would go through three ways of escaping, of Hive, of
    # Delta and of delta-rs, which differ beyond ASCII: a file that is removed under another name
    # than it was added is not removed. So these files lie in directories with random names.
    "delta.randomizeFilePrefixes": "true",
}
_CUT_US: Final = 999
"""So much below a file's greatest time its bound may be: Delta's own writer leaves milliseconds."""
_FROM_SPARK: Final = "userMetadata"
"""Where Spark's writer keeps what `METADATA` is for delta-rs: under it, in a JSON object."""


class DeltaSnapshot:
    """A Delta table at one version."""

    def __init__(
        self,
        table: DeltaTable,
        directory: Location,
        transforms: Sequence[Transform],
        marks: Marks,
    ) -> None:
        self._table = table
        self._marks = marks
        self._directory = directory
        self._transforms = transforms
        self.version = table.version()
        self.is_for_spark = FOR_SPARK.items() <= table.metadata().configuration.items()
        self.schema = as_stored(pa.schema(table.schema()))

    @property
    def table(self) -> DeltaTable:
        """The table itself; still at this version as long as no commit was made through it."""
        return self._table

    def mark(self, name: str) -> int | None:
        """As `Snapshot.mark`."""
        values, complete, _ = self._marks
        if complete or name in values:
            return values.get(name)
        found: int | None = self._table.transaction_version(name)
        if self._table.version() == self.version:
            values[name] = found
        return found

    def undated(self) -> Mapping[str, int] | None:
        """Marks of the table's own that have no time yet; None if that is not known."""
        if not self._marks.complete:
            return None
        values = self._marks.values
        return {
            name: number for name in self._marks.undated if (number := values[name]) is not None
        }

    def files(self) -> list[DataFile]:
        """As `Snapshot.files`."""
        actions = pa.table(self._table.get_add_actions(flatten=True)).to_pylist()
        return [
            DataFile(
                path=self._directory / unquote(row["path"]),
                size=row["size_bytes"],
                rows=row["num_records"],
                partition=tuple(
                    transform.from_shown(row.get(f"partition.{transform.name}"))
                    for transform in self._transforms
                ),
            )
            for row in actions
        ]

    def bounds(self, column: str) -> dict[Location, Bounds]:
        """As `Snapshot.bounds`: the statistics that the log keeps beside each file."""
        found = {}
        for row in pa.table(self._table.get_add_actions(flatten=True)).to_pylist():
            nulls = row.get(f"null_count.{column}")
            most = row.get(f"max.{column}")
            greatest = number_of(most, upper=True)
            if isinstance(most, datetime) and greatest is not None:
                greatest += _CUT_US
            found[self._directory / unquote(row["path"])] = Bounds(
                number_of(row.get(f"min.{column}"), upper=False),
                greatest,
                has_nulls=nulls is None or nulls > 0,
            )
        return found

    def history(self, limit: int | None) -> list[Commit]:
        """As `Snapshot.history`."""
        return [
            Commit(
                version=entry["version"],
                at_ms=entry["timestamp"],
                metadata=_metadata_of(entry),
            )
            for entry in self._table.history(limit)
        ]


def own(snapshot: Snapshot) -> DeltaSnapshot:
    """A snapshot whose table is still as it was there. Raises Conflict, BadTable."""
    if not isinstance(snapshot, DeltaSnapshot):
        raise BadTable("A snapshot of another format was handed to a Delta table.")
    if snapshot.table.version() != snapshot.version:
        raise Conflict("The table has moved on.")
    return snapshot


def own_table(snapshot: Snapshot) -> DeltaTable:
    """The table of a snapshot. Raises as `own`."""
    return own(snapshot).table


def _metadata_of(entry: Mapping[str, Any]) -> Mapping[str, object]:
    """What a commit of this package says of itself; nothing for the commits of others."""
    if METADATA in entry:
        found: Mapping[str, object] = json.loads(entry[METADATA])
        return found
    try:
        document = json.loads(entry.get(_FROM_SPARK) or "{}")
    except ValueError:
        return {}  # written by another program
    ours = document.get(METADATA) if isinstance(document, dict) else None
    return ours if isinstance(ours, dict) else {}
