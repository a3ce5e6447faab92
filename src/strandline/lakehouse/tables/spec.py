"""Definitions of tables in files: `table.json` beside the data.

What a definition says is in `definition`; `TableSpec` and `parse_partitioning` are offered here as
well, for users' programs.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from strandline.errors import InvalidSetting
from strandline.lakehouse.tables.definition import (
    SPEC_FILE,
    SPEC_VERSION,
    UPGRADE_FILE,
    TableSpec,
    parse_partitioning,
)
from strandline.lakehouse.tables.errors import TableExists, TableMissing
from strandline.lakehouse.tables.locations import local_directory
from strandline.lakehouse.tables.upgraded import as_decided

__all__ = ["TableSpec", "list_specs", "load_spec", "parse_partitioning", "save_spec"]


def save_spec(spec: TableSpec) -> Path:
    """Write the definition into the table's directory; raises TableExists if one is there."""
    directory = Path(spec.location)
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / SPEC_FILE
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        raise TableExists(f"There is a table in {directory} already.") from None
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(spec.to_json())
        file.flush()
        os.fsync(file.fileno())
    return path


def load_spec(location: str | Path) -> TableSpec:
    """The definition in a table's directory, with that directory as its location, absolute.

    A definition says where it was written; what counts is where it is found, so that a table can be
    moved, and one that was defined with a relative path means the same everywhere. Raises
    TableMissing, and InvalidSetting for a definition that cannot be read.
    """
    directory = Path(local_directory(str(location)))
    path = directory / SPEC_FILE
    try:
        spec = TableSpec.from_json(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise TableMissing(f"There is no table in {directory}.") from None
    except UnicodeDecodeError as error:
        raise InvalidSetting("table", f"{path}: The definition is not text ({error}).") from None
    except InvalidSetting as wrong:
        raise InvalidSetting(wrong.name, f"{path}: {wrong}") from None
    spec = replace(spec, location=str(directory))
    if spec.version != SPEC_VERSION and (directory / UPGRADE_FILE).exists():
        # An upgrade is under way, or was ended in the middle: the table itself says how far.
        return as_decided(spec)
    return spec


def list_specs(warehouse: str | Path) -> list[TableSpec]:
    """The tables in the directories below `warehouse`, by name."""
    found = sorted(Path(warehouse).glob(f"*/{SPEC_FILE}"))
    return [load_spec(path.parent) for path in found]
