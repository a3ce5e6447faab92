"""Columns, divisions and statistics of Iceberg tables, in Iceberg's words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
from pyiceberg.io.pyarrow import StatisticsCollector, compute_statistics_plan
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties, Transaction
from pyiceberg.types import NestedField, StructType

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


def statistics_plan(
    schema: Schema, properties: Mapping[str, str]
) -> dict[int, StatisticsCollector]:
    """What is kept of each column of a file: of fields of structs as of columns at the top.

    pyiceberg only counts what stands in structs. Java's writers keep bounds there, and readers use
    them. Elements of lists and maps have none.
    """
    plan = dict(compute_statistics_plan(schema, dict(properties)))
    flat: list[NestedField] = []
    settings = dict(properties)
    for field in _in_structs(schema.fields):
        said = properties.get(f"{_OF_COLUMN}.{schema.find_column_name(field.field_id)}")
        name = str(field.field_id)  # a dot in it would mean that it stands in something
        if said is not None:
            settings[f"{_OF_COLUMN}.{name}"] = said
        flat.append(NestedField(field.field_id, name, field.field_type, required=False))
    return {**plan, **compute_statistics_plan(Schema(*flat), settings)}


_OF_COLUMN = TableProperties.METRICS_MODE_COLUMN_CONF_PREFIX


def _in_structs(fields: Iterable[NestedField]) -> Iterator[NestedField]:
    for field in fields:
        if isinstance(field.field_type, StructType):
            for part in field.field_type.fields:
                if part.field_type.is_primitive:
                    yield part
            yield from _in_structs(field.field_type.fields)
