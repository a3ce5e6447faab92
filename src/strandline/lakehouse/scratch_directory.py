"""Directories for as long as a process lives: a query's checkpoint, the temporary files of a JVM.

    <temporary directory>/<prefix><random>/

What a process that was killed could not remove, the next one does: the owner of a directory holds a
lock on it, which ends with the process, whatever ends that. This file must not know what is kept
there.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)

OF_QUERIES: Final = "strandline-query-"
"""Prefix of the checkpoints of Spark's queries."""
OF_JVMS: Final = "strandline-jvm-"
"""Prefix of what Java and Spark unpack and spill."""


class ScratchDirectory:
    """A new directory, and the lock on it."""

    def __init__(self, prefix: str) -> None:
        """Raises `OSError`."""
        self.path, self._lock = _locked_directory(prefix)

    def close(self) -> None:
        """Remove it. What cannot be removed now, because Spark still writes, the next run takes."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def remove_leftovers(prefix: str) -> list[Path]:
    """Remove what ended processes of this user left; what is held by a living one stays.

    Returns what was removed. A directory that cannot be removed is told in the log: it does no harm
    to a run.
    """
    removed = []
    for path in sorted(Path(tempfile.gettempdir()).glob(f"{prefix}*")):
        try:
            if _maybe_remove(path):
                removed.append(path)
        except OSError as error:
            log.info("The directory of an ended process stays: %s", error)
    return removed


def _locked_directory(prefix: str) -> tuple[Path, int]:
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix))
        descriptor = _open(path)
        if descriptor is not None:
            if _maybe_lock(descriptor) and path.exists():
                return path, descriptor
            # Another process took it for a leftover before it was locked, and removes it.
            os.close(descriptor)


def _maybe_remove(path: Path) -> bool:
    if path.lstat().st_uid != os.getuid():
        return False
    descriptor = _open(path)
    if descriptor is None:
        return False
    try:
        if not _maybe_lock(descriptor):
            return False
        shutil.rmtree(path)
        return True
    finally:
        os.close(descriptor)


def _open(path: Path) -> int | None:
    """None if it has gone meanwhile."""
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None


def _maybe_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
