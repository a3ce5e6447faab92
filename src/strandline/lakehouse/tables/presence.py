"""Whether the files that a commit is to name, or a table names, are there for this process.

Theory: tasks say what they wrote, and a commit makes it the table's. A task on another machine, or
in another mount namespace, may have written to a disk that the driver does not see, and that no
reader will. So each file of a commit is looked at by the driver beforehand: its size, and the
number of rows in its footer, which is the last that is written of it. This file knows no format.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from strandline.lakehouse.locations import stores
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.tables.backend import DataFile
from strandline.lakehouse.tables.errors import BadTable, FilesMissing
from strandline.lakehouse.tables.written import TaskWrite, WrittenFile

WHAT_HELPS: Final = (
    "Put them back if they were moved, or mount their disk here; else make a new table of the "
    "topic, as far as its log still has the records."
)


class Absent(NamedTuple):
    """A file that a table names. `size` is what is there; None if nothing is."""

    file: DataFile
    size: int | None

    def is_readable(self) -> bool:
        """Whether there is a Parquet file all the same, though another one."""
        try:
            with stores.parquet(self.file.path):
                return True
        except (OSError, pa.ArrowInvalid):
            return False

    def __str__(self) -> str:
        if self.size is None:
            return f"{self.file.path} is not there"
        return f"{self.file.path} has {self.size:,} bytes, not {self.file.size:,}"


def check_written(directory: Location, files: Iterable[WrittenFile], host: str = "") -> None:
    """That files below `directory` are there, whole. Raises FilesMissing."""
    written = list(files)
    sizes = stores.sizes([directory / item.path for item in written])
    for item, size in zip(written, sizes, strict=True):
        fault = _fault(directory / item.path, item, size)
        if fault is not None:
            raise FilesMissing(refusal(directory / item.path, fault, host))


def check_writes(
    writes: Iterable[TaskWrite], directory: Location, sides: Mapping[str, Location]
) -> None:
    """That everything that tasks wrote is there, side tables' files too. Raises FilesMissing."""
    for write in writes:
        check_written(directory, write.files, write.host)
        for side, files in write.sides().items():
            check_written(sides[side], files, write.host)


def absent_files(files: Iterable[DataFile]) -> list[Absent]:
    """Those of a table's files that are not there in their size; each directory is listed once."""
    listed: dict[Location, dict[str, int]] = {}
    found = []
    for item in files:
        directory = item.path.parent
        if directory not in listed:
            entries = stores.listed(directory)
            listed[directory] = {each.location.name: each.size for each in entries}
        size = listed[directory].get(item.path.name)
        if size != item.size:
            found.append(Absent(item, size))
    return found


def absence(absent: Sequence[Absent], files: int) -> str:
    """What to tell of files that are not there, out of so many."""
    rows = sum(each.file.rows for each in absent)
    more = f", and so for {len(absent) - 1:,} more" if len(absent) > 1 else ""
    return (
        f"{len(absent):,} of {files:,} files that the table names, with {rows:,} rows, are not "
        f"what it was given: {absent[0]}{more}."
    )


def check_present(files: Sequence[DataFile]) -> None:
    """That a table's files are there. Raises BadTable."""
    absent = absent_files(files)
    if absent:
        raise BadTable(f"{absence(absent, len(files))} {WHAT_HELPS}")


def _fault(path: Location, item: WrittenFile, size: int | None) -> str | None:
    """What is wrong with a file, as the end of a sentence; None if it is as it was written.

    In a store a file is there as a whole, and its size says enough.
    """
    if size is None:
        return "it is not there"
    if size != item.size:
        return f"it has {size:,} bytes there, and not {item.size:,}"
    if not path.is_local:
        return None
    try:
        with stores.parquet(path) as file:
            rows = file.metadata.num_rows
    except (OSError, pa.ArrowInvalid) as error:
        return f"it cannot be read there ({error})"
    return None if rows == item.rows else f"it has {rows:,} rows there, and not {item.rows:,}"


def refusal(path: Location, fault: str, host: str = "") -> str:
    """Why a batch is refused, one of whose files has a fault here, and what to do."""
    here = socket.gethostname()
    who = f"A task on host {host}" if host else "A task"
    said = (
        f"{who} wrote {path}, and this process, on host {here}, looked for it in vain: {fault}. "
        "Nothing of the batch was committed."
    )
    if not path.is_local:
        return (
            f"{said} The driver and all of Spark's executors must mean the same store by that "
            "address: see which AWS_ENDPOINT_URL, or the like, each machine has."
        )
    return (
        f"{said} The driver and all of Spark's executors must see the "
        "table's directory as one and the same: keep it on a file system that is mounted at one "
        "path on all of them (table create --tables DIR), or run with --master 'local[*,4]'."
    )
