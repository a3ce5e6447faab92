"""What other engines can make of a Delta table, and what of it is refused.

Theory: this package reads files as they are, and columns by their names; it commits through
delta-rs. A feature of the protocol can give files another meaning: rows in them that are deleted,
columns under other names. A table with one is refused before anything is read, since rows would be
shown, and then written again, that are not the table's. A feature that concerns writers alone is no
obstacle to readers; delta-rs refuses the commit.
"""

from __future__ import annotations

import re
from typing import Final

from deltalake import DeltaTable

from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.tables.errors import BadTable

_DELETIONS: Final = "deletionVectors"
_MAPPING: Final = "delta.columnMapping.mode"
_READ: Final = frozenset({"columnMapping", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"})
"""Features of readers with which files mean what they hold; whether names are mapped, `_MAPPING`
says."""
_UNWRITTEN: Final = re.compile(r"table features required: \[([^\]]*)\]", re.IGNORECASE)
_UNKNOWN: Final = re.compile(r'Unknown\("([^"]*)"\)')
"""How delta-rs calls a feature that it has never heard of."""


def check_readable(directory: Location, table: DeltaTable) -> None:
    """Raises BadTable for a table whose files do not hold its rows, under its columns' names."""
    here = f"The Delta table in {directory}"
    alter = f"ALTER TABLE delta.`{directory.spark}`"
    features = frozenset(table.protocol().reader_features or ())
    if _DELETIONS in features:
        raise BadTable(
            f"{here} was given the feature {_DELETIONS}, with which rows that another engine "
            "deletes stay in its files. This package would bring them back, and so leaves the "
            "table as it is; no row is lost. Two statements in a Spark with Delta make it one that "
            f"is read again: REORG TABLE delta.`{directory.spark}` APPLY (PURGE); and {alter} DROP "
            f"FEATURE {_DELETIONS} TRUNCATE HISTORY; the second once more a day later, which is "
            "when Delta does it. Then a run goes on where the table ends."
        )
    mode = table.metadata().configuration.get(_MAPPING, "none")
    if mode != "none":
        raise BadTable(
            f"{here} maps its columns ({_MAPPING} is {mode}): they have other names in its files, "
            "by which this package finds them. Drop the feature in Spark, which writes the files "
            f"again ({alter} DROP FEATURE columnMapping TRUNCATE HISTORY), or make another table."
        )
    if unknown := sorted(features - _READ):
        raise BadTable(
            f"{here} was given features that this package does not read: {', '.join(unknown)}. "
            f"Drop them in Spark ({alter} DROP FEATURE {unknown[0]} TRUNCATE HISTORY), or make "
            "another table."
        )


def check_writable(directory: Location, error: Exception) -> None:
    """Raises BadTable for an error that says that delta-rs does not write a table's features."""
    found = _UNWRITTEN.search(str(error))
    if found is not None:
        names = _UNKNOWN.sub(r"\1", found[1])
        raise BadTable(
            f"The Delta table in {directory} was given features that this package does not write: "
            f"{names}. Drop them in Spark (ALTER TABLE "
            f"delta.`{directory.spark}` DROP FEATURE ... TRUNCATE HISTORY), or make another table."
        ) from error
