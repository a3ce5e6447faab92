"""Columns and divisions of Iceberg tables, in Iceberg's words."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.table import Transaction

from strandline.lakehouse.tables.transforms import Transform


def words_of(transform: Transform) -> str:
    """A transform as Iceberg writes it."""
    width = f"[{transform.width}]" if transform.width else ""
    return f"{transform.kind.value}{width}"


def retype(transaction: Transaction, present: pa.Schema, wanted: pa.Schema) -> None:
    """Give columns other types: the old column goes, and one of its name comes."""
    other = [field for field in wanted if not field.type.equals(present.field(field.name).type)]
    with transaction.update_schema(allow_incompatible_changes=True) as columns:
        for field in other:
            columns.delete_column(field.name)
    with transaction.update_schema() as columns:
        columns.union_by_name(pa.schema(other))
