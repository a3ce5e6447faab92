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
from strandline.lakehouse.tables.definition import DEAD_LETTERS, DROPPED, TableSpec
from strandline.lakehouse.tables.names import dropped_schema
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
        elif side == DROPPED:
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
