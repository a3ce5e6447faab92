"""What a commit says of itself, and how the table's history is read back from it.

The text is JSON in Delta's commit information or in Iceberg's snapshot summary. It also holds what
must still happen to the side tables because of the commit: `settling` carries that out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import uuid4

from strandline.lakehouse.tables.backend import Commit, DataFile
from strandline.lakehouse.tables.identity import OffsetRange, ranges_from_json, ranges_to_json
from strandline.lakehouse.tables.written import WrittenFile

BATCH = "batch"
REPLAY = "replay"
COMPACTION = "compaction"
LOSS = "loss"
WIDENING = "widening"
UPGRADE = "upgrade"
EXPIRY = "expiry"
COMPLETE = "complete"
"""A batch of a query whose rows are all that the table has then."""
APPENDED = "append"
OVERWRITTEN = "overwrite"
"""What a job of Spark's wrote, beside the rows that there were or in their place."""

GAP_ACCEPTED: Final = "on_gap=accept"
"""What a batch came `through` that does not follow the one before it of its query."""
CHANGE: Final = "change"
"""The field of a commit's metadata with a name that no other commit has."""


class Counts(NamedTuple):
    """What became of the records of a commit: rows of the table, letters, and late rows.

    `dropped` are those for which the table's transform gave no row.
    """

    rows: int = 0
    dead_letters: int = 0
    late_rows: int = 0
    dropped: int = 0


NO_RECORDS: Final = Counts()


class SideChange(NamedTuple):
    """What a commit does to a side table: files that it gets, and names of those that it loses.

    With `wider`, the files are all that the side table then has, and that column holds doubles.
    With `renamed` they are so too, and its own columns have the names of today.
    """

    adds: tuple[WrittenFile, ...] = ()
    removes: tuple[str, ...] = ()
    wider: str = ""
    renamed: bool = False


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """One commit of this package. `at_ms` is the wall time of the commit.

    `through` is the label of the transform that the rows went through; empty without one.
    """

    sequence: int
    version: int
    at_ms: int
    kind: str
    query_id: str
    batch_id: int
    ranges: tuple[OffsetRange, ...]
    lost: tuple[OffsetRange, ...]
    rows: int
    dead_letters: int
    late_rows: int
    files_added: int
    files_removed: int
    dropped: int = 0
    through: str = ""


def describe(
    *,
    sequence: int,
    kind: str,
    query_id: str = "",
    batch_id: int = -1,
    through: str = "",
    ranges: Sequence[OffsetRange] = (),
    lost: Sequence[OffsetRange] = (),
    adds: Sequence[WrittenFile],
    removes: Sequence[DataFile],
    counts: Counts = NO_RECORDS,
    sides: Mapping[str, SideChange],
) -> dict[str, object]:
    """The metadata of a commit that adds and removes files of the table."""
    return {
        CHANGE: uuid4().hex,
        "sequence": sequence,
        "kind": kind,
        "query_id": query_id,
        "batch_id": batch_id,
        "through": through,
        "ranges": ranges_to_json(ranges),
        "lost": ranges_to_json(lost),
        **counts._asdict(),
        "files_added": len(adds),
        "files_removed": len(removes),
        "sides": {
            name: {
                "adds": [item.to_document() for item in change.adds],
                "removes": list(change.removes),
                "wider": change.wider,
                "renamed": change.renamed,
            }
            for name, change in sides.items()
            if change != SideChange()
        },
    }


def read_record(commit: Commit) -> CommitRecord | None:
    """A commit's account of itself; None for the commits of others, and of schema changes."""
    metadata: Mapping[str, Any] = commit.metadata
    if "sequence" not in metadata:
        return None
    return CommitRecord(
        sequence=metadata["sequence"],
        version=commit.version,
        at_ms=commit.at_ms,
        kind=metadata["kind"],
        query_id=metadata["query_id"],
        batch_id=metadata["batch_id"],
        ranges=ranges_from_json(metadata["ranges"]),
        lost=ranges_from_json(metadata["lost"]),
        rows=metadata["rows"],
        dead_letters=metadata["dead_letters"],
        late_rows=metadata["late_rows"],
        files_added=metadata["files_added"],
        files_removed=metadata["files_removed"],
        dropped=metadata.get("dropped", 0),  # commits of earlier releases lack these two
        through=metadata.get("through", ""),
    )


def read_sides(commit: Commit) -> dict[str, SideChange]:
    """What a commit of this package does to the side tables."""
    metadata: Mapping[str, Any] = commit.metadata
    return {
        name: SideChange(
            tuple(WrittenFile.from_document(item) for item in change["adds"]),
            tuple(change["removes"]),
            change["wider"],
            change.get("renamed", False),  # commits of earlier releases lack it
        )
        for name, change in metadata["sides"].items()
    }
