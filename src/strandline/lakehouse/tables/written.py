"""What the tasks of a batch hand to the driver: files that are on disk and belong to no table yet.

Everything here is small, can be pickled, and has a text form, since a commit's metadata keeps the
files of side tables until those have committed them as well. This file writes nothing.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, TypeVar

import pyarrow as pa

from strandline.lakehouse.tables.transforms import PartitionValue


class OffsetsIn(NamedTuple):
    """Which records of one partition have rows in a file: least and greatest offset, and count."""

    topic: str
    partition: int
    least: int
    greatest: int
    rows: int


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """One closed and synced Parquet file.

    `path` is relative to its table's directory; `partition` has the value of each transform of the
    table; `stats` is Delta's JSON of column statistics; `schema` is the schema of the file's
    columns, serialized by Arrow.
    """

    path: str
    size: int
    rows: int
    partition: tuple[PartitionValue, ...]
    stats: str
    offsets: tuple[OffsetsIn, ...]
    schema: bytes

    def read_schema(self) -> pa.Schema:
        """The columns of the file."""
        return pa.ipc.read_schema(pa.py_buffer(self.schema))

    def placed(self, partition: tuple[PartitionValue, ...]) -> WrittenFile:
        """The file under the partition value that its rows are known to have."""
        return replace(self, partition=partition)

    def to_document(self) -> list[object]:
        """A JSON value that `from_document` reads."""
        return [
            self.path,
            self.size,
            self.rows,
            list(self.partition),
            self.stats,
            [list(item) for item in self.offsets],
            base64.b64encode(self.schema).decode(),
        ]

    @classmethod
    def from_document(cls, document: Iterable[object]) -> WrittenFile:
        """The inverse of `to_document`."""
        path, size, rows, partition, stats, offsets, schema = document
        return cls(
            path,  # type: ignore[arg-type]
            size,  # type: ignore[arg-type]
            rows,  # type: ignore[arg-type]
            tuple(partition),  # type: ignore[arg-type]
            stats,  # type: ignore[arg-type]
            tuple(OffsetsIn(*item) for item in offsets),  # type: ignore[attr-defined]
            base64.b64decode(schema),  # type: ignore[arg-type]
        )


class Placed(Protocol):
    """A file under a partition value: a `WrittenFile`, or one that a table has."""

    @property
    def partition(self) -> tuple[PartitionValue, ...]: ...


_File = TypeVar("_File", bound=Placed)


def by_partition(files: Iterable[_File]) -> dict[tuple[PartitionValue, ...], list[_File]]:
    """The files of each partition value, in the order in which the first of each comes."""
    found: dict[tuple[PartitionValue, ...], list[_File]] = {}
    for each in files:
        found.setdefault(each.partition, []).append(each)
    return found


class Places(NamedTuple):
    """Which offsets of one partition a task wrote rows of; `bits` as `places` packs them."""

    topic: str
    partition: int
    first: int
    bits: str


@dataclass(frozen=True, slots=True)
class TaskWrite:
    """Everything that one task wrote. `late_rows` counts late rows, wherever they went.

    `host` is the machine that the task ran on; empty where it is not known. `dropped` are files of
    the side table of that name, with so many records; `places` is noted on the way to and from a
    transform only, and no commit needs it.
    """

    files: tuple[WrittenFile, ...] = ()
    dead_letters: tuple[WrittenFile, ...] = ()
    late: tuple[WrittenFile, ...] = ()
    late_rows: int = 0
    max_event_time_us: int | None = None
    host: str = ""
    dropped: tuple[WrittenFile, ...] = ()
    dropped_records: int = 0
    places: tuple[Places, ...] = ()

    def sides(self) -> Mapping[str, tuple[WrittenFile, ...]]:
        """The files of the side tables by the name of the side."""
        return {"dead_letters": self.dead_letters, "late": self.late, "dropped": self.dropped}

    def to_json(self) -> str:
        """A text that `from_json` reads."""
        return json.dumps(
            {
                "files": [item.to_document() for item in self.files],
                "dead_letters": [item.to_document() for item in self.dead_letters],
                "late": [item.to_document() for item in self.late],
                "late_rows": self.late_rows,
                "max_event_time_us": self.max_event_time_us,
                "host": self.host,
                "dropped": [item.to_document() for item in self.dropped],
                "dropped_records": self.dropped_records,
                "places": self.places,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> TaskWrite:
        """The inverse of `to_json`."""
        document = json.loads(text)
        files, dead_letters, late, dropped = (
            tuple(WrittenFile.from_document(item) for item in document[name])
            for name in ("files", "dead_letters", "late", "dropped")
        )
        return cls(
            files,
            dead_letters,
            late,
            late_rows=document["late_rows"],
            max_event_time_us=document["max_event_time_us"],
            host=document["host"],
            dropped=dropped,
            dropped_records=document["dropped_records"],
            places=tuple(Places(*item) for item in document["places"]),
        )


def file_schema(schema: pa.Schema) -> bytes:
    """What `WrittenFile.schema` holds."""
    return schema.remove_metadata().serialize().to_pybytes()  # type: ignore[no-any-return]
