"""A table's rows for pyarrow, whatever the age of the file they are in.

A file has the columns of its time: what it lacks is null. Partition columns of Delta are in no
file, and can be computed from the others; they are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.dataset as pads

from strandline.lakehouse.deadletters.letters import letter_schema
from strandline.lakehouse.locations import stores
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.tables.backend import Snapshot
from strandline.lakehouse.tables.definition import DEAD_LETTERS, DROPPED, EXPIRED, TableSpec
from strandline.lakehouse.tables.names import OwnNames, dropped_schema
from strandline.lakehouse.tables.opening import side_partitioning
from strandline.lakehouse.tables.presence import check_present
from strandline.lakehouse.values.json_values import fit


def stored_columns(spec: TableSpec, side: str | None, schema: pa.Schema) -> pa.Schema:
    """The columns that files have."""
    derived = {
        transform.name
        for transform in side_partitioning(spec, side)
        if transform.name != transform.column
    }
    return pa.schema([field for field in schema if field.name not in derived])


def table_dataset(spec: TableSpec, side: str | None, snapshot: Snapshot | None) -> pads.Dataset:
    """The rows of a snapshot; without one, no rows. Raises BadTable if files are gone."""
    if snapshot is None:
        empty = pa.schema(list(spec.own_columns()))
        if side == DEAD_LETTERS:
            empty = letter_schema(spec.names)
        elif side in (DROPPED, EXPIRED):
            empty = dropped_schema(spec.names)
        return pads.dataset(empty.empty_table())
    schema = stored_columns(spec, side, snapshot.schema)
    files = snapshot.files()
    if not files:
        return pads.dataset(schema.empty_table())
    check_present(files)
    return stores.dataset([item.path for item in files], schema)


def read_batches(files: Sequence[Location], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of files in the columns of `schema`, a row group at a time."""
    for item in files:
        with stores.parquet(item) as file:
            for group in range(file.num_row_groups):
                count = file.metadata.row_group(group).num_rows
                rows = file.read_row_group(group, columns=schema.names).combine_chunks()
                arrays = [
                    fit(rows.column(field.name).combine_chunks(), field.type)
                    if field.name in rows.schema.names
                    else pa.nulls(count, field.type)
                    for field in schema
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def offsets_in(names: OwnNames, snapshot: Snapshot) -> dict[Location, tuple[int, int] | None]:
    """The least and greatest offset in each file of rows, letters or runs of offsets."""
    found: dict[Location, tuple[int, int] | None] = {}
    ends = snapshot.bounds(names.offset_end) if names.offset_end in snapshot.schema.names else {}
    for path, each in snapshot.bounds(names.offset).items():
        last = [each.greatest]
        if path in ends:
            end = ends[path].greatest
            last.append(None if end is None else end - 1)
        if each.least is None or None in last:
            found[path] = None
        else:
            found[path] = (each.least, max(filter(None, last), default=each.least))
    return found
