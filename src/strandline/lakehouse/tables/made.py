"""The note that a table was made, so that one whose data is gone is not begun anew.

Theory: a table remembers in its own commits what it holds. If these are gone, since the directory
was removed or its disk is not mounted, nothing in it says that there ever were any: it
looks like a table that is yet to be made. So a file beside the definition says that it was made
once. It is written after the table and removed before it. Tables of earlier versions get it when
they are opened next.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from strandline.lakehouse.locations import stores
from strandline.lakehouse.locations.errors import StoreTrouble
from strandline.lakehouse.tables.definition import TableSpec
from strandline.lakehouse.tables.errors import BadTable
from strandline.lakehouse.tables.identity import group_of

MADE_FILE: Final = "made.txt"
_NOTE: Final = (
    "This table was made, and has rows. If its data is gone, it is not begun anew as long as this "
    "file is here.\n"
)


def note_made(spec: TableSpec) -> None:
    """Say that the table is there. A place that does not take the note has its table without."""
    path = spec.place / MADE_FILE
    with suppress(StoreTrouble, OSError):
        if not stores.exists(path):
            stores.create_text(path, _NOTE)


def was_made(spec: TableSpec) -> bool:
    """Whether the table was there once. Raises StoreTrouble."""
    return stores.exists(spec.place / MADE_FILE)


def forget(spec: TableSpec) -> None:
    """Let a table that is made next be a new one. Raises StoreTrouble."""
    stores.remove(spec.place / MADE_FILE)


def gone(spec: TableSpec) -> BadTable:
    """What to raise for a table that was made and is not there."""
    if spec.is_of_queries:
        progress = ""
        anew = "which lacks what its queries have written, and give the queries new checkpoints"
    else:
        progress = f" How far it was tells: strandline groups describe {group_of(spec.name)}."
        anew = "which gets what the logs of its topics still have"
    return BadTable(
        f"The data of table {spec.name} is gone: there was a table in {spec.directory()}, and "
        "there is none now. Nothing was changed. Put it back if it was moved, or mount its disk."
        f"{progress} To begin with an empty table, {anew}, remove {spec.place / MADE_FILE}."
    )
