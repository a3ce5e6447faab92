"""All files of a table, written again with other columns; belonging to nothing until a commit.

Groups of files are parts that may be written elsewhere (`parts`). What is made here replaces what
was there in one commit of the table, whose side tables follow it: `widening` and `upgrading` say
with which columns, and commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple, TypeAlias

import pyarrow as pa

from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.tables.backend import DataFile
from strandline.lakehouse.tables.definition import TableSpec
from strandline.lakehouse.tables.files import PartitionedFiles, remove_files
from strandline.lakehouse.tables.parts import Carrier, portions
from strandline.lakehouse.tables.presence import check_present, check_written
from strandline.lakehouse.tables.reading import read_batches
from strandline.lakehouse.tables.written import WrittenFile

NO_NAMES: Mapping[str, str] = {}


Copies: TypeAlias = tuple[WrittenFile, ...]
"""What one file becomes: one, or several."""


class Rewritten(NamedTuple):
    """Files of a table, and the copies of each that replace it."""

    removes: tuple[DataFile, ...]
    copies: tuple[Copies, ...]

    @property
    def adds(self) -> tuple[WrittenFile, ...]:
        """All new files."""
        return tuple(chain.from_iterable(self.copies))


class Again(NamedTuple):
    """A part: files of one table that are written again, in the columns of `schema`."""

    directory: Location
    files: tuple[DataFile, ...]
    schema: pa.Schema
    names: Mapping[str, str]
    task: str


class _Made(NamedTuple):
    """What became of a part. `unfit` tells of a value that does not fit; then no file is left."""

    copies: tuple[Copies, ...]
    unfit: str = ""

    @property
    def adds(self) -> tuple[WrittenFile, ...]:
        return tuple(chain.from_iterable(self.copies))


def rewrite(
    directory: Location,
    files: Sequence[DataFile],
    schema: pa.Schema,
    *,
    names: Mapping[str, str] = NO_NAMES,
    task: str,
    carrier: Carrier,
) -> Rewritten:
    """Write the rows of `files` again, in the columns of `schema`, in as many files or more.

    Columns get `names` by those that they have. `task` is a part of the new files' names. Raises
    BadTable if files are gone, FilesMissing, and `pyarrow.ArrowInvalid` for a value that does not
    fit its column's new type; then nothing new is left.
    """
    check_present(files)
    parts = [Again(directory, tuple(mine), schema, names, task) for mine in portions(files)]
    made = carrier(
        write_again,
        parts,
        size=sum(item.size for item in files),
        undo=lambda done: remove_files(directory, done.adds),
    )
    adds = [file for each in made for file in each.adds]
    unfit = next((each.unfit for each in made if each.unfit), "")
    if unfit:
        remove_files(directory, adds)
        raise pa.ArrowInvalid(unfit)
    try:
        check_written(directory, adds)
    except BaseException:
        remove_files(directory, adds)
        raise
    return Rewritten(tuple(files), tuple(copies for each in made for copies in each.copies))


def write_again(part: Again) -> _Made:
    """Carry out one part. That a value does not fit is told, since a task's error is but text."""
    called = [part.names.get(name, name) for name in part.schema.names]
    copies: list[Copies] = []
    try:
        for item in part.files:
            # Divided by nothing: a file has one partition value, which is kept.
            with PartitionedFiles(part.directory, (), part.task) as output:
                for batch in read_batches([item.path], part.schema):
                    output.write(batch.rename_columns(called))
                copies.append(tuple(made.placed(item.partition) for made in output.finish()))
    except BaseException as error:
        remove_files(part.directory, _Made(tuple(copies)).adds)
        if isinstance(error, pa.ArrowInvalid):
            return _Made((), str(error))
        raise
    return _Made(tuple(copies))


def forget(spec: TableSpec, made: Mapping[str | None, Rewritten]) -> None:
    """Remove what was made for a table and its side tables, when no commit can name it."""
    for side, item in made.items():
        remove_files(spec.directory(side), item.adds)
