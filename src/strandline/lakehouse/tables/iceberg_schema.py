"""Columns, divisions and statistics of Iceberg tables, in Iceberg's words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    StatisticsCollector,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
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


def statistics_of(
    footer: pq.FileMetaData, schema: Schema, properties: Mapping[str, str]
) -> dict[str, Any]:
    """What a manifest keeps of a file, from the file's footer.

    Bounds are left out where pyiceberg would fail: of times beyond the years 1 to 9999, and of text
    whose bound above would be half a pair of surrogates.
    """
    plan = statistics_plan(schema, properties)
    ids = parquet_path_to_id_mapping(schema)
    for field_id in {ids[name] for name in _unreadable(footer)}:
        plan[field_id] = replace(plan[field_id], mode=MetricsMode(MetricModeTypes.COUNTS))
    found = data_file_statistics_from_parquet_metadata(
        parquet_metadata=footer, stats_columns=plan, parquet_column_mapping=ids
    )
    for each in found.column_aggregates.values():
        if _is_cut_before_surrogates(each.current_max, each.trunc_length):
            each.current_max = None
    return found.to_serialized_dict()


def _is_cut_before_surrogates(greatest: object, length: int | None) -> bool:
    """Whether the letter that would be counted up is the last before the surrogates."""
    if length is None or not isinstance(greatest, str) or len(greatest) <= length:
        return False
    return greatest[:length].rstrip("\U0010ffff").endswith("\ud7ff")


def _unreadable(footer: pq.FileMetaData) -> Iterator[str]:
    """Columns with a time that Python cannot hold, which rows that Spark made may have."""
    for group in range(footer.num_row_groups):
        chunks = footer.row_group(group)
        for number in range(footer.num_columns):
            chunk = chunks.column(number)
            try:
                if chunk.statistics is not None and chunk.statistics.has_min_max:
                    _ = chunk.statistics.min, chunk.statistics.max
            except OverflowError:
                yield chunk.path_in_schema


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
