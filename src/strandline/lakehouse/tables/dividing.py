"""Whether formats have a form for the values by which files are divided.

Theory: a column that itself divides a table is in the table's log as text, which neither format has
for a time beyond the years 1 to 9999. Values of topics have none; rows of a query may. Such a time
cannot be divided as the nearest one, as a day or an hour is: Delta's readers take the column from
the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from strandline.lakehouse.tables.errors import TableError
from strandline.lakehouse.tables.held_times import are_held
from strandline.lakehouse.tables.transforms import Transform, TransformKind
from strandline.lakehouse.tables.written import WrittenFile


def check_divided(files: Iterable[WrittenFile], transforms: Sequence[Transform]) -> None:
    """That a commit can name what divides its files. Raises TableError."""
    plain = [
        (position, each.column)
        for position, each in enumerate(transforms)
        if each.kind is TransformKind.IDENTITY
    ]
    if not plain:
        return
    for file in files:
        for position, column in plain:
            value = file.partition[position]
            if isinstance(value, bool) or not isinstance(value, int):
                continue
            kind = file.read_schema().field(column).type
            if _is_time(kind) and not are_held(pa.array([value]).cast(_counted(kind)).cast(kind)):
                raise TableError(
                    f"Column {column} itself divides the table and has a time beyond the years 1 "
                    f"to 9999, which no table can be divided by: divide one by day({column}), or "
                    "leave such rows out of the query."
                )


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date32(kind))


def _counted(kind: pa.DataType) -> pa.DataType:
    return pa.int32() if pa.types.is_date32(kind) else pa.int64()
