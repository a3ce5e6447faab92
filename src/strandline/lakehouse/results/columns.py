"""Columns of a query's rows as a table stores them, and whether they fit what it has.

Theory: as in tables of topics, integers are 64 bits wide and floating-point numbers doubles from
the start, since neither format can widen them later everywhere. So a query may narrow or widen its
integers as it likes. Columns are matched by name; one that the table lacks is added, unless its
definition forbids that, and one that the query lacks is null. What cannot be held without a loss is
refused before a row is written.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import StructType

from strandline.lakehouse.results.errors import UnfitRows
from strandline.lakehouse.tables.names import RESERVED_BY_ENGINES, TIMESTAMP
from strandline.lakehouse.tables.types import differing_in_case, list_of, name_fault
from strandline.lakehouse.values.json_values import fit


def stored_schema(schema: StructType) -> pa.Schema:
    """The columns of rows in the types that files have. Raises UnfitRows."""
    try:
        found = to_arrow_schema(schema, timezone="UTC")
    except PySparkException as error:
        raise UnfitRows(f"A column has a type that no table holds: {error}") from error
    _check_names("", found.names)
    return pa.schema([pa.field(each.name, _stored(each.name, each.type)) for each in found])


def fitted(query: pa.Schema, present: pa.Schema, *, table: str, evolve: bool) -> pa.Schema:
    """The columns of `query` in the types that `present` has for them. Raises UnfitRows."""
    have = {field.name: field.type for field in present}
    return pa.schema(_fitted_fields("", list(query), have, table, evolve=evolve))


def cast(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Rows of a task in the columns that `fitted` gave. Raises UnfitRows for a loss."""
    columns = []
    for field, column in zip(schema, rows.columns, strict=True):
        try:
            columns.append(fit(column, field.type))
        except pa.ArrowInvalid as error:
            raise UnfitRows(
                f"Column {field.name} has a value that is no {_shown(field.type)}: {error}."
            ) from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def check_keys(keys: Sequence[str], schema: pa.Schema) -> None:
    """That rows can be told apart by `keys`. Raises UnfitRows."""
    for name in keys:
        if name not in schema.names:
            raise UnfitRows(
                f"The option keys names {name}, and the rows have no such column: they have "
                f"{', '.join(schema.names)}."
            )
        if not _is_comparable(schema.field(name).type):
            raise UnfitRows(f"The option keys names {name}: lists and maps are no keys.")


def _fitted_fields(
    path: str, fields: Sequence[pa.Field], have: dict[str, pa.DataType], table: str, *, evolve: bool
) -> list[pa.Field]:
    found = []
    for field in fields:
        name = f"{path}{field.name}"
        known = have.get(field.name)
        if known is None:
            if (other := differing_in_case(field.name, have)) is not None:
                raise UnfitRows(
                    f"Column {name} differs from {other} of table {table} in case only."
                )
            if not evolve:
                raise UnfitRows(
                    f"Table {table} has no column {name}, and its definition (evolve) lets none be "
                    "added: leave the column out of the query."
                )
            found.append(field)
            continue
        found.append(pa.field(field.name, _fitted(name, field.type, known, table, evolve=evolve)))
    return found


def _fitted(
    name: str, wanted: pa.DataType, known: pa.DataType, table: str, *, evolve: bool
) -> pa.DataType:
    if wanted.equals(known) or (pa.types.is_int64(wanted) and pa.types.is_float64(known)):
        return known
    if pa.types.is_struct(wanted) and pa.types.is_struct(known):
        have = {field.name: field.type for field in known}
        return pa.struct(_fitted_fields(f"{name}.", list(wanted), have, table, evolve=evolve))
    if pa.types.is_list(wanted) and pa.types.is_list(known):
        inner = _fitted(f"{name}[]", wanted.value_type, known.value_type, table, evolve=evolve)
        return list_of(inner)
    if pa.types.is_decimal(wanted) and pa.types.is_decimal(known):
        whole = known.precision - known.scale
        if wanted.scale <= known.scale and wanted.precision - wanted.scale <= whole:
            return known
    advice = "cast it in the query"
    if pa.types.is_float64(wanted) and pa.types.is_int64(known) and "." not in name:
        advice += f", or let the table's hold fractions: strandline table widen {table} {name}"
    raise UnfitRows(
        f"Column {name} is {_shown(wanted)} in the query and {_shown(known)} in table {table}: "
        f"{advice}."
    )


def _stored(name: str, kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_integer(kind):
        return pa.int64()
    if types.is_floating(kind):
        return pa.float64()
    if types.is_timestamp(kind):
        if kind.tz is None:
            raise UnfitRows(f"Column {name} is timestamp_ntz: cast it to timestamp.")
        return TIMESTAMP
    if types.is_string(kind) or types.is_large_string(kind):
        return pa.string()
    if types.is_binary(kind) or types.is_large_binary(kind):
        return pa.binary()
    if types.is_struct(kind):
        if not kind.num_fields:
            raise UnfitRows(f"Column {name} is a struct without fields, which no table holds.")
        _check_names(f"{name}.", [field.name for field in kind])
        return pa.struct(
            [pa.field(each.name, _stored(f"{name}.{each.name}", each.type)) for each in kind]
        )
    if types.is_list(kind) or types.is_large_list(kind):
        return list_of(_stored(f"{name}[]", kind.value_type))
    if types.is_map(kind):
        key, item = _stored(f"{name}.key", kind.key_type), _stored(f"{name}.value", kind.item_type)
        return pa.map_(key, item)
    if types.is_boolean(kind) or types.is_date32(kind) or types.is_decimal(kind):
        return kind
    raise UnfitRows(f"Column {name} has the type {kind}, which no table holds: cast it.")


def _check_names(path: str, names: Sequence[str]) -> None:
    for position, name in enumerate(names):
        if name in names[:position]:
            raise UnfitRows(f"Two columns are called {path}{name}: give one another name.")
        reserved = frozenset() if path else RESERVED_BY_ENGINES
        if (fault := name_fault(name, names, reserved)) is not None:
            raise UnfitRows(f"{fault} Give it another one with alias().")


def _is_comparable(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return all(_is_comparable(field.type) for field in kind)
    return not (pa.types.is_list(kind) or pa.types.is_map(kind))


def _shown(kind: pa.DataType) -> str:
    """A type as Spark calls it."""
    return from_arrow_type(kind).simpleString()
