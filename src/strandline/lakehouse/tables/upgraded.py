"""What an upgrade makes of a table's definition, and how the definition keeps up with its table.

Theory: the table's own commit decides whether it is upgraded, since readers see that one change.
Its definition lies in a file of its own and follows. So that a crash in between is no other state,
`upgrade.json` is written before the commit and removed after the definition: while it is there, a
definition of the first version is read as what the table itself says it is. This file must not
change tables.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Final

from strandline.lakehouse.locations.stores import remove, replace_text
from strandline.lakehouse.tables.definition import SPEC_FILE, SPEC_VERSION, UPGRADE_FILE, TableSpec
from strandline.lakehouse.tables.errors import TableMissing
from strandline.lakehouse.tables.names import FIRST, NAMES
from strandline.lakehouse.tables.opening import open_backend

RENAMED: Final = FIRST.renamed(NAMES)
"""The names of today by those of the first version, of rows."""


def upgraded(spec: TableSpec) -> TableSpec:
    """The same definition under the names of today. Raises InvalidSetting if it cannot be."""
    time = spec.event_time
    return replace(
        spec,
        version=SPEC_VERSION,
        event_time=None if time is None else RENAMED.get(time, time),
        partition_by=tuple(
            replace(item, column=RENAMED.get(item.column, item.column))
            for item in spec.partition_by
        ),
    )


def as_decided(spec: TableSpec) -> TableSpec:
    """A definition of the first version as its table says: as it is, or upgraded."""
    newer = upgraded(spec)
    try:
        table = open_backend(newer, with_any_names=True).load()
    except TableMissing:
        return spec
    return newer if NAMES.offset in table.schema.names else spec


def announce(spec: TableSpec) -> None:
    """Note that the table may be ahead of its definition from now on."""
    replace_text(spec.place / UPGRADE_FILE, json.dumps({"version": SPEC_VERSION}) + "\n")


def conclude(spec: TableSpec) -> None:
    """Replace the definition of a table that is upgraded, and take the note away."""
    replace_text(spec.place / SPEC_FILE, spec.to_json())
    remove(spec.place / UPGRADE_FILE)
