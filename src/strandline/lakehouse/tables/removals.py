"""When files stopped being a table's: their age for the vacuum, which spares readers of before.

Theory: a file that a commit removes is still read by those who began before. On a local disk it
gets the time of its removal as its own. A file in a store has the time of its making for ever, so
a note with the names of what goes is laid beside the files. Both come before the commit: if that
fails, a live file looks younger than it is, and nothing else.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable
from typing import Final

from strandline.lakehouse.locations import stores
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.locations.stores import Entry
from strandline.lakehouse.tables.backend import DataFile

_NOTES: Final = "_removed"
"""Readers of Delta and Iceberg pass over names that begin so."""


def stamp_removed(files: Iterable[DataFile]) -> None:
    """Note that a commit is about to remove files. Raises StoreTrouble, OSError."""
    names: dict[Location, list[str]] = {}
    for item in files:
        if item.path.is_local:
            if item.path.local.exists():
                os.utime(item.path.local)
        else:
            names.setdefault(item.path.parent, []).append(item.path.name)
    for directory, gone in names.items():
        note = directory / _NOTES / f"{uuid.uuid4().hex}.json"
        stores.replace_text(note, json.dumps(gone))


def old_files(files: Iterable[Entry], directory: Location, *, before_ms: int) -> list[Location]:
    """Those of a directory's files that were written, and removed if they were, before a time."""
    old = [each.location for each in files if each.at_ms < before_ms]
    if directory.is_local or not old:
        return old
    spared: set[str] = set()
    for note in stores.listed(directory / _NOTES):
        if note.at_ms >= before_ms:
            spared.update(json.loads(stores.read_text(note.location)))
    return [each for each in old if each.name not in spared]


def drop_notes(directory: Location, *, before_ms: int) -> None:
    """Remove notes that say nothing any more, after the files they name."""
    if directory.is_local:
        return
    for note in stores.listed(directory / _NOTES):
        if note.at_ms < before_ms:
            stores.remove(note.location)
