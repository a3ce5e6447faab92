"""SQL over tables by their names, in this process, through DuckDB and pyarrow's datasets.

DuckDB hands columns and filters to pyarrow, which reads what they need. A table's side tables are
called NAME__late, NAME__dead_letters and NAME__dropped. Needs no Spark.
"""

from __future__ import annotations

import re
from typing import Any, Final

import pyarrow as pa

from strandline.errors import InvalidSetting
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.tables.settling import SIDES
from strandline.lakehouse.tables.spec import list_specs
from strandline.lakehouse.tables.store import open_store

_MISSING: Final = "Queries need the package duckdb: install strandline[query]."


class BadQuery(Exception):
    """DuckDB refuses a query, or fails in carrying it out."""


def query(text: str, tables: Location) -> pa.Table:
    """The answer. Raises BadQuery, TableError, and InvalidSetting where DuckDB is not installed."""
    try:
        import duckdb
    except ModuleNotFoundError as missing:
        raise InvalidSetting("query", _MISSING) from missing
    words = set(re.findall(r"\w+(?:-\w+)*", text))
    settings = {"enable_external_access": "false", "TimeZone": "UTC"}
    with duckdb.connect(":memory:") as connection:
        unread: list[str] = []
        specs = list_specs(tables, unread.append)
        for spec in specs:
            for side in (None, *SIDES):
                name = spec.name if side is None else f"{spec.name}__{side}"
                if name in words:
                    connection.register(name, _rows(spec, side))
        try:
            for setting, value in settings.items():
                connection.execute(f"SET {setting} = '{value}'")
            return _answer(connection, text)
        except duckdb.CatalogException as error:
            there = ", ".join(spec.name for spec in specs) or "none"
            said = "\n".join([f"The tables in {tables}: {there}.", *unread])
            raise BadQuery(f"{error}\n\n{said}") from error
        except duckdb.Error as error:
            raise BadQuery(str(error)) from error


def _answer(connection: Any, text: str) -> pa.Table:
    found = connection.execute(text).to_arrow_table()
    return found if isinstance(found, pa.Table) else pa.table(found)


def _rows(spec: Any, side: str | None) -> Any:
    return open_store(spec, create=True).dataset(side)
