"""Writing a small file that need not be durable yet, whole or not at all.

It is written in place, which saves the sync and the second name that an atomic write costs. After a
power failure it may have any contents; its readers know that. But a process that goes on must not
find half of a file that a full disk, or a lack of file handles, has cut short.
"""

from __future__ import annotations

from contextlib import suppress

from strandline.errors import StorageError
from strandline.storage.files import Files


def write_unsynced(files: Files, path: str, data: bytes) -> None:
    """Write a file, or replace what is in it; no sync. Raises `StorageError`, and leaves no file
    then."""
    file = files.open(path, create=True)
    try:
        if file.size:
            file.truncate(0)
        file.append(data)
    except StorageError:
        # A part of it would lie there and belong to nothing.
        with suppress(StorageError):
            files.remove(path)
        raise
    finally:
        file.close()
