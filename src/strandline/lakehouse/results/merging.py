"""Rows by key, as the commit of a batch makes them: new rows in the place of those with their keys.

Theory: tasks wrote a batch's rows into files; per division of the table, the files that hold one of
their keys are written again without it, and the others stay. Keys are compared as numbers that
equal keys share (`keys`). Memory holds some keys of one division, a row group of a file and a bit
for each of its rows, however large table and batch are. Files whose bounds exclude all keys are not
read. A key that stands twice in a batch is refused, since nothing
says which of its rows is newer. Divisions share no file: each is a part (`tables.parts`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.results.errors import UnfitRows
from strandline.lakehouse.results.keys import BatchKeys, doubled, met
from strandline.lakehouse.tables.backend import DataFile, Snapshot, number_of
from strandline.lakehouse.tables.definition import TableSpec, partitioning
from strandline.lakehouse.tables.files import PartitionedFiles
from strandline.lakehouse.tables.parts import Carrier
from strandline.lakehouse.tables.presence import check_present
from strandline.lakehouse.tables.reading import read_batches, stored_columns
from strandline.lakehouse.tables.transforms import Transform
from strandline.lakehouse.tables.upsert import Merged, merge_parts
from strandline.lakehouse.tables.written import WrittenFile, by_partition


class Division(NamedTuple):
    """What is merged into one division: files of new rows, and live files that may hold keys."""

    directory: Location
    transforms: tuple[Transform, ...]
    keys: tuple[str, ...]
    columns: pa.Schema
    changes: tuple[Location, ...]
    rows: int
    """Of these changes."""
    files: tuple[DataFile, ...]

    @property
    def only_keys(self) -> pa.Schema:
        """The columns of keys."""
        return pa.schema([self.columns.field(name) for name in self.keys])


def merge_rows(
    spec: TableSpec, snapshot: Snapshot, changes: Sequence[WrittenFile], carrier: Carrier
) -> Merged:
    """Write what the table becomes; nothing is removed yet. Raises UnfitRows, BadTable."""
    live = snapshot.files() if changes else []
    check_present(live)
    parts = _parts(spec, snapshot, changes, live)
    return merge_parts(merge_division, parts, changes, spec.directory(), carrier)


def check_rows(
    spec: TableSpec, snapshot: Snapshot, changes: Sequence[WrittenFile], carrier: Carrier
) -> None:
    """That new rows in the place of all others have each key once. Raises UnfitRows."""
    parts = _parts(spec, snapshot, changes, [])
    size = sum(item.size for item in changes)
    carrier(check_division, parts, size=size, undo=lambda _: None)


def _parts(
    spec: TableSpec, snapshot: Snapshot, changes: Sequence[WrittenFile], live: Sequence[DataFile]
) -> list[Division]:
    directory = spec.directory()
    columns = stored_columns(spec, None, snapshot.schema)
    limits = _Limits(spec, snapshot) if live else None
    parts = []
    for division, mine in by_partition(_as_logged(spec, item) for item in changes).items():
        paths = tuple(directory / item.path for item in mine)
        files = [item for item in live if item.partition == division]
        if limits is not None and files:
            files = limits.touched(paths, files)
        parts.append(
            Division(
                directory,
                partitioning(spec),
                spec.keys,
                columns,
                paths,
                sum(item.rows for item in mine),
                tuple(files),
            )
        )
    return parts


def _as_logged(spec: TableSpec, file: WrittenFile) -> WrittenFile:
    """A file under the partition value that it has once it is live: Delta's log takes empty text
    for null, so that rows with either share a division."""
    if spec.format != "delta":
        return file
    return file.placed(tuple(None if value == "" else value for value in file.partition))


def merge_division(part: Division) -> Merged:
    """Write what one division becomes."""
    with PartitionedFiles(part.directory, part.transforms, "merge") as output:
        removes = _merge(part, output)
        return Merged(output.finish(), tuple(removes))


def check_division(part: Division) -> None:
    """As `check_rows`, of one division."""
    with _keys_of(part) as keys:
        _check_single(keys)


def _keys_of(part: Division) -> BatchKeys:
    """The keys of the new rows."""
    return BatchKeys(part.rows, read_batches(part.changes, part.only_keys), part.only_keys)


def _merge(part: Division, output: PartitionedFiles) -> list[DataFile]:
    replaced = []
    with _keys_of(part) as keys:
        _check_single(keys)
        for file in part.files:
            met_at = _met_in(file, keys, part.only_keys)
            if not met_at.any():
                continue
            replaced.append(file)
            start = 0
            for rows in read_batches([file.path], part.columns):
                stays = ~met_at[start : start + rows.num_rows]
                output.write(rows.filter(pa.array(stays)))
                start += rows.num_rows
    for batch in read_batches(part.changes, part.columns):
        output.write(batch)
    return replaced


def _met_in(file: DataFile, keys: BatchKeys, only_keys: pa.Schema) -> NDArray[np.bool_]:
    """Which rows of a file have a key of the batch. A slice of keys is asked of all row groups
    before the next one is read."""
    found: NDArray[np.bool_] | None = None
    for some in keys:
        groups = [
            met(pa.Table.from_batches([rows]), some)
            for rows in read_batches([file.path], only_keys)
        ]
        here = np.concatenate(groups) if groups else np.zeros(0, np.bool_)
        found = here if found is None else found | here
    return np.zeros(0, np.bool_) if found is None else found


def _check_single(keys: BatchKeys) -> None:
    for some in keys:
        if (twice := doubled(some)) is not None:
            shown = ", ".join(f"{name}={value}" for name, value in twice.items())
            raise UnfitRows(
                f"A batch has two rows of one key ({shown}), and nothing says which is newer: the "
                "option keys must name the columns by which the query groups."
            )


class _Limits:
    """Which files can hold keys, by what the format knows of their columns."""

    def __init__(self, spec: TableSpec, snapshot: Snapshot) -> None:
        self._columns = [name for key in spec.keys for name in _bounded(snapshot.schema.field(key))]
        self._schema = snapshot.schema
        self._bounds = {name: snapshot.bounds(name) for name in self._columns}

    def touched(self, changes: Sequence[Location], files: list[DataFile]) -> list[DataFile]:
        """Those of `files` that are not known to lie beside all new rows."""
        for name in self._columns:
            least, greatest, has_nulls = self._span(changes, name)
            found = []
            for file in files:
                bounds = self._bounds[name].get(file.path)
                is_beside = (
                    bounds is not None
                    and not (has_nulls and bounds.has_nulls)
                    and None not in (bounds.least, bounds.greatest, least, greatest)
                    and (bounds.greatest < least or bounds.least > greatest)  # type: ignore[operator]
                )
                if not is_beside:
                    found.append(file)
            files = found
        return files

    def _span(self, changes: Sequence[Location], name: str) -> tuple[int | None, int | None, bool]:
        least: list[int] = []
        greatest: list[int] = []
        has_nulls = False
        only = pa.schema([self._schema.field(name.partition(".")[0])])
        for rows in read_batches(changes, only):
            column = _column(pa.Table.from_batches([rows]), name)
            has_nulls = has_nulls or column.null_count > 0
            found = pc.min_max(column).as_py()
            low, high = number_of(found["min"], upper=False), number_of(found["max"], upper=True)
            if low is not None and high is not None:
                least.append(low)
                greatest.append(high)
        return min(least, default=None), max(greatest, default=None), has_nulls


def _column(table: pa.Table, name: str) -> pa.ChunkedArray:
    """A column, or a field of a struct."""
    first, *rest = name.split(".")
    return pc.struct_field(table.column(first), rest) if rest else table.column(first)


def _bounded(field: pa.Field, path: str = "") -> Iterator[str]:
    """Numbers and times of a key, with dots where it is a struct."""
    kind, name = field.type, f"{path}{field.name}"
    if pa.types.is_struct(kind):
        for part in kind:
            yield from _bounded(part, f"{name}.")
    elif pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        yield name
