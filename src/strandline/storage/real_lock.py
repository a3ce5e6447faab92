"""Locks of the operating system: one process at a time uses a log directory.

It must not know what is locked.
"""

from __future__ import annotations

import errno
import os
from types import TracebackType
from typing import Final

from strandline.errors import StorageError
from strandline.storage.file_handles import NO_DESCRIPTOR
from strandline.storage.files import LockHeld
from strandline.storage.system_calls import lock_exclusively

_LOCK_HELD: Final = frozenset({errno.EAGAIN, errno.EACCES})
"""Which of them says so is the system's choice (fcntl(2))."""
_held_here: Final[set[tuple[int, int]]] = set()
"""The files that this process has locked, by their devices and inodes."""


class RealLock:
    """An advisory lock of the whole file, as Kafka takes it on `.lock`.

    Raises `LockHeld`, `StorageError` where the file system has no locks, and `OSError` if the file
    cannot be opened.
    """

    def __init__(self, path: str) -> None:
        # It must not even be opened: a record lock goes as soon as a descriptor of its file does.
        if os.path.exists(path) and _identity(os.stat(path)) in _held_here:
            raise LockHeld(f"This process holds the lock {path} already.")
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            lock_exclusively(self._descriptor)
        except OSError as error:
            os.close(self._descriptor)
            if error.errno in _LOCK_HELD:
                raise LockHeld(f"Another process holds the lock {path}.") from error
            raise StorageError(
                f"The file system of {path} refuses to lock files ({error.strerror or error}). "
                "Without a lock two brokers could write to the same data."
            ) from error
        self._file = _identity(os.fstat(self._descriptor))
        _held_here.add(self._file)

    def release(self) -> None:
        if self._descriptor >= 0:
            _held_here.discard(self._file)
            os.close(self._descriptor)
            self._descriptor = NO_DESCRIPTOR

    def __enter__(self) -> RealLock:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
