"""Definitions of tables in files: `table.json` beside the data.

What a definition says is in `definition`; `TableSpec` and `parse_partitioning` are offered here as
well, for users' programs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from strandline.errors import InvalidSetting
from strandline.lakehouse.locations import stores
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.tables.definition import (
    SPEC_FILE,
    SPEC_VERSION,
    UPGRADE_FILE,
    TableSpec,
    parse_partitioning,
)
from strandline.lakehouse.tables.errors import TableExists, TableMissing
from strandline.lakehouse.tables.upgraded import as_decided

__all__ = [
    "TableSpec",
    "list_specs",
    "load_spec",
    "parse_partitioning",
    "replace_spec",
    "save_spec",
    "write_spec",
]


def save_spec(spec: TableSpec) -> Location:
    """Write the definition of a new table into its directory; raises TableExists if one is there.

    Raises InvalidSetting for a directory whose path readers of tables would not understand, and
    for a schema that gives no table, or not the columns that the definition is about.
    """
    spec.place.check_clear()
    if not spec.is_of_queries:
        # Only makers of tables need to read schemas, whose libraries take time to import.
        from strandline.lakehouse.values.making import check_columns

        check_columns(spec)
    return write_spec(spec)


def write_spec(spec: TableSpec) -> Location:
    """As `save_spec`, of a table whose definition another one of today has already."""
    path = spec.place / SPEC_FILE
    try:
        stores.create_text(path, spec.to_json())
    except FileExistsError:
        raise TableExists(f"There is a table in {spec.location} already.") from None
    return path


def replace_spec(spec: TableSpec) -> None:
    """Put another definition in the place of the one that is there, in one step that lasts."""
    stores.replace_text(spec.place / SPEC_FILE, spec.to_json())


def load_spec(location: str | Path | Location) -> TableSpec:
    """The definition in a table's directory, with that directory as its location, absolute.

    A definition says where it was written; what counts is where it is found, so that a table can be
    moved, and one that was defined with a relative path means the same everywhere. Raises
    TableMissing, InvalidSetting for a definition that cannot be read, and StoreTrouble.
    """
    directory = location if isinstance(location, Location) else Location.parse(location)
    path = directory / SPEC_FILE
    try:
        spec = TableSpec.from_json(stores.read_text(path))
    except (FileNotFoundError, NotADirectoryError):
        raise TableMissing(f"There is no table in {directory}.") from None
    except UnicodeDecodeError as error:
        raise InvalidSetting("table", f"{path}: The definition is not text ({error}).") from None
    except InvalidSetting as wrong:
        raise InvalidSetting(wrong.name, f"{path}: {wrong}") from None
    spec = replace(spec, location=str(directory))
    if spec.version != SPEC_VERSION and stores.exists(directory / UPGRADE_FILE):
        # An upgrade is under way, or was ended in the middle: the table itself says how far.
        return as_decided(spec)
    return spec


def list_specs(
    warehouse: str | Path | Location, tell: Callable[[str], None] | None = None
) -> list[TableSpec]:
    """The tables in the directories below `warehouse`, by name. Raises StoreTrouble.

    Raises InvalidSetting for a definition that cannot be read; with `tell`, that is told, and the
    table is left out.
    """
    place = warehouse if isinstance(warehouse, Location) else Location.parse(warehouse)
    found = []
    for directory in stores.directories(place):
        try:
            found.append(load_spec(directory))
        except TableMissing:
            continue
        except InvalidSetting as wrong:
            if tell is None:
                raise
            tell(str(wrong))
    return found
