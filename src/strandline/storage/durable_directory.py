"""Making a directory so that it is still there after a power failure. Knows no other operation."""

from __future__ import annotations

import os

from strandline.storage.files import Files, parent_of


def make_durably(files: Files, path: str) -> None:
    """Make a directory and the missing ones above it, so that their names survive power failures:
    syncing what is inside does not sync the name of the directory itself."""
    above: list[str] = []
    missing = os.path.abspath(path)
    while not files.is_directory(missing):
        missing = parent_of(missing)
        above.append(missing)
    files.make_directory(path)
    for parent in reversed(above):
        files.sync_directory(parent)
