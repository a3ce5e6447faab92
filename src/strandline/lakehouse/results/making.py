"""The table that a query writes: found by its name, or made of options and the rows' columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.types import StructType

from strandline.errors import InvalidSetting
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.query.naming import tables_directory
from strandline.lakehouse.results.columns import check_keys, fitted, stored_schema
from strandline.lakehouse.results.errors import UnfitRows
from strandline.lakehouse.results.options import ResultOptions, definition
from strandline.lakehouse.tables.definition import TableSpec, division_names
from strandline.lakehouse.tables.errors import TableExists, TableMissing
from strandline.lakehouse.tables.reading import stored_columns
from strandline.lakehouse.tables.spec import load_spec, save_spec
from strandline.lakehouse.tables.store import TableStore, open_store

_SAID_AT_EVERY_START: Final = frozenset({"mode"})


class Target(NamedTuple):
    """A table that is there, and the columns that a query's rows have in its files."""

    store: TableStore
    columns: pa.Schema


def ready(options: ResultOptions, schema: StructType) -> Target:
    """The table for rows of a schema, which is made if it is missing and may be.

    Raises InvalidSetting, naming the option, TableMissing, UnfitRows, StoreTrouble.
    """
    rows = stored_schema(schema)
    place = _place(options)
    try:
        spec = load_spec(place)
    except TableMissing:
        if not options.may_create:
            raise TableMissing(
                f"There is no table in {place}, and the option create=false forbids to make it. "
                "Another one is named in start() or save(), another directory of tables by the "
                "option tables."
            ) from None
        spec = _made(place, options, rows)
    _check(spec, options.defined)
    store = open_store(spec)
    store.make_sure(rows)
    present = stored_columns(spec, None, store.snapshot_at(None).schema)
    columns = fitted(rows, present, table=spec.name, evolve=spec.evolve)
    check_keys(spec.keys, columns)
    for transform in spec.partition_by:
        if transform.column not in columns.names:
            raise UnfitRows(
                f"Table {spec.name} is divided by {transform}, and the rows have no column "
                f"{transform.column}."
            )
    if taken := division_names(spec) & {name.lower() for name in rows.names}:
        raise UnfitRows(
            f"Table {spec.name} is divided by what it calls {min(taken)}, and the rows have a "
            "column of that name: give it another one with alias()."
        )
    return Target(store, columns)


def _place(options: ResultOptions) -> Location:
    if "/" in options.name:
        return Location.parse(options.name, setting="path")
    return tables_directory(options.tables) / options.name


def _made(place: Location, options: ResultOptions, rows: pa.Schema) -> TableSpec:
    spec = TableSpec(**definition(place.name, str(place), options))
    check_keys(spec.keys, rows)
    for transform in spec.partition_by:
        if transform.column not in rows.names:
            raise InvalidSetting(
                "partition_by",
                f"The option partition_by names {transform.column}, and the rows have no such "
                f"column: they have {', '.join(rows.names)}.",
            )
        transform.result_type(rows.field(transform.column).type)
    if taken := division_names(spec) & {name.lower() for name in rows.names}:
        raise InvalidSetting(
            "partition_by",
            f"The option partition_by makes a column {min(taken)}, and the rows have one of that "
            "name: call it otherwise.",
        )
    try:
        save_spec(spec)
    except TableExists:
        return load_spec(place)
    return spec


def _check(spec: TableSpec, given: Mapping[str, Any]) -> None:
    """That a table is one of results, and what options say of it. Raises InvalidSetting."""
    if not spec.is_of_queries:
        raise InvalidSetting(
            "path",
            f"The table {spec.name} in {spec.location} has the records of {', '.join(spec.topics)} "
            "(strandline table run), and no query can write it: name another one.",
        )
    for name, wanted in given.items():
        held = getattr(spec, name)
        if name not in _SAID_AT_EVERY_START and held != wanted:
            option = name.removesuffix("_ms")
            raise InvalidSetting(
                option,
                f"The option {option} says {_shown(wanted)}, and the table {spec.name} was made "
                f"with {_shown(held)}: leave the option out, or write another table.",
            )


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value)
