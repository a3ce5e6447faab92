"""Rows by key: the changes of a batch merged into the files that hold the keys.

Theory: a table that is upserted is divided into buckets of the record's key, and tasks write
changes (rows, and tombstones as rows marked deleted) into files of one bucket each. Per bucket, the
last change of each key counts: within a batch by partition and offset, and a later batch is later,
except that a change (a replayed dead letter) never replaces a row of its own partition with a
greater offset. Files in which a key occurs are written again without it; the others stay. Memory
holds the changes of one bucket and a row group of a file, never a bucket's rows. Buckets share no
file: each is a part that may be merged elsewhere (`parts`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.lakehouse.locations import stores
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.tables.backend import DataFile, Snapshot
from strandline.lakehouse.tables.definition import TableSpec, partitioning
from strandline.lakehouse.tables.files import PartitionedFiles, remove_files
from strandline.lakehouse.tables.names import OwnNames
from strandline.lakehouse.tables.parts import Carrier, here
from strandline.lakehouse.tables.presence import check_present
from strandline.lakehouse.tables.transforms import Transform
from strandline.lakehouse.tables.written import WrittenFile, by_partition

DELETED: Final = "=deleted"
"""The column of change files that says: the record was a tombstone. No field can be called so."""


class Merged(NamedTuple):
    """New files, and the live ones that they replace."""

    adds: tuple[WrittenFile, ...]
    removes: tuple[DataFile, ...]


class Mergeable(Protocol):
    """A part of a merge: `files` are the live ones that are read for it."""

    @property
    def files(self) -> tuple[DataFile, ...]: ...


_Part = TypeVar("_Part", bound=Mergeable)


class Bucket(NamedTuple):
    """What is merged into one bucket: files of changes, and the live files of the bucket."""

    directory: Location
    transforms: tuple[Transform, ...]
    names: OwnNames
    changes: tuple[Location, ...]
    files: tuple[DataFile, ...]


def merge_changes(
    spec: TableSpec,
    snapshot: Snapshot,
    changes: Sequence[WrittenFile],
    carrier: Carrier = here,
) -> Merged:
    """Write what the table becomes; nothing is removed yet. Raises BadTable if files are gone."""
    directory = spec.directory()
    by_bucket = by_partition(changes)
    live = snapshot.files() if by_bucket else []
    parts = [
        Bucket(
            directory,
            partitioning(spec),
            spec.names,
            tuple(directory / item.path for item in mine),
            tuple(item for item in live if item.partition == bucket),
        )
        for bucket, mine in by_bucket.items()
    ]
    try:
        return merge_parts(merge_bucket, parts, changes, directory, carrier)
    except Exception:
        check_present(live)  # a task of Spark's tells of a file that is gone by a trace only
        raise


def merge_parts(
    work: Callable[[_Part], Merged],
    parts: Sequence[_Part],
    changes: Sequence[WrittenFile],
    directory: Location,
    carrier: Carrier,
) -> Merged:
    """What all parts become together, into which `changes` are merged."""
    size = sum(item.size for item in changes)
    size += sum(item.size for part in parts for item in part.files)
    done = carrier(work, parts, size=size, undo=lambda one: remove_files(directory, one.adds))
    return Merged(
        tuple(item for each in done for item in each.adds),
        tuple(item for each in done for item in each.removes),
    )


def merge_bucket(part: Bucket) -> Merged:
    """Write what one bucket becomes."""
    with PartitionedFiles(part.directory, part.transforms, "merge") as output:
        removes = _merge_bucket(part.changes, part.files, output, part.names)
        return Merged(output.finish(), tuple(removes))


def _merge_bucket(
    paths: Sequence[Location],
    files: Sequence[DataFile],
    output: PartitionedFiles,
    names: OwnNames,
) -> list[DataFile]:
    key = names.key
    last = last_changes(paths, names)
    hits = [(item, _hits(item.path, last.column(key), names)) for item in files]
    last = _without_stale(last, [hit for _, hit in hits if hit.num_rows], names)
    keys = last.column(key).combine_chunks()
    replaced = []
    for item, hit in hits:
        if not pc.any(pc.is_in(hit.column(key), value_set=keys)).as_py():
            continue
        replaced.append(item)
        for rows in _row_groups(item.path):
            superseded = pc.is_in(rows.column(key), value_set=keys)
            _write(output, rows.filter(pc.invert(superseded)))
    _write(output, last.filter(pc.invert(last.column(DELETED))).drop_columns([DELETED]))
    return replaced


def last_changes(paths: Sequence[Location], names: OwnNames) -> pa.Table:
    """The last change of each key, by partition and offset."""
    tables = []
    for path in paths:
        with stores.parquet(path) as file:
            tables.append(file.read())
    changes = pa.concat_tables(tables, promote_options="default")
    changes = changes.sort_by([(name, "ascending") for name in names.record])
    numbered = changes.select([names.key]).append_column("i", pa.array(np.arange(changes.num_rows)))
    newest = numbered.group_by(names.key).aggregate([("i", "max")]).column("i_max")
    return changes.take(newest)


def _hits(path: Location, keys: pa.ChunkedArray, names: OwnNames) -> pa.Table:
    """The keys of a file that change, with the places of their rows."""
    wanted = keys.combine_chunks()
    found = [
        rows.filter(pc.is_in(rows.column(names.key), value_set=wanted))
        for rows in _row_groups(path, [names.key, *names.record])
    ]
    return pa.concat_tables(found)


def _without_stale(last: pa.Table, hits: Sequence[pa.Table], names: OwnNames) -> pa.Table:
    """The changes that are newer than the rows they meet."""
    if not hits:
        return last
    rows = pa.concat_tables(hits).to_pylist()
    key, (topic, partition, offset) = names.key, names.record
    newest = {row[key]: row for row in rows}
    keep = []
    for change in last.select([key, *names.record]).to_pylist():
        row = newest.get(change[key])
        keep.append(
            row is None
            or (row[topic], row[partition]) != (change[topic], change[partition])
            or row[offset] < change[offset]
        )
    return last.filter(pa.array(keep, pa.bool_()))


def _row_groups(path: Location, columns: list[str] | None = None) -> Iterator[pa.Table]:
    with stores.parquet(path) as file:
        for group in range(file.num_row_groups):
            yield file.read_row_group(group, columns=columns)


def _write(output: PartitionedFiles, rows: pa.Table) -> None:
    for batch in rows.to_batches():
        output.write(batch)
