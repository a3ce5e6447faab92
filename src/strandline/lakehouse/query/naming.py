"""Which table a name means: one below the directory of tables, or a table's own directory.

Needs no Spark.
"""

from __future__ import annotations

import os
from typing import Final

from strandline.lakehouse.locations import stores
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.tables.definition import SPEC_FILE, TableSpec
from strandline.lakehouse.tables.errors import TableMissing
from strandline.lakehouse.tables.spec import load_spec

TABLES_VARIABLE: Final = "STRANDLINE_TABLES"
TABLES: Final = "strandline-tables"


def tables_directory(given: str | os.PathLike[str] | None = None) -> Location:
    """The directory of tables: given, of `STRANDLINE_TABLES`, or the default; in this order."""
    text = given if given is not None else os.environ.get(TABLES_VARIABLE) or TABLES
    return Location.parse(text, setting="tables")


def spec_named(name: str, tables: str | os.PathLike[str] | None = None) -> TableSpec:
    """The definition of the table called `name`, or whose directory that is.

    Raises TableMissing, and InvalidSetting for a definition that cannot be read.
    """
    if "/" in name:
        return load_spec(Location.parse(name))
    directory = tables_directory(tables)
    if not stores.exists(directory / name / SPEC_FILE):
        raise TableMissing(
            f"There is no table '{name}' in {directory}. Another directory of tables is named by "
            f"the option tables, or by {TABLES_VARIABLE}."
        )
    return load_spec(directory / name)
