"""What Linux, macOS and the BSDs each call differently: syncing, claiming space, locking, copying.

This file knows system calls and no files of ours. Where a system lacks a call, or has one whose
promise is weaker, the next best that keeps the promise stands here. The choice is made once, when
the process starts.

    promise                      Linux              macOS                   elsewhere
    the data is on the medium    fdatasync          fcntl F_FULLFSYNC       fdatasync or fsync
    space is claimed             posix_fallocate    zeros are written       zeros are written
    buffers leave in one call    pwritev            pwritev (since 11)      joined
    flock and lockf exclude      take both          they see each other     they see each other
"""

from __future__ import annotations

import errno
import fcntl
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

IOVECS_MAX: Final = 1024
"""No system takes more buffers in one call (IOV_MAX)."""

_ZEROS: Final = bytes(1 << 20)
_FULL_SYNC: Final[int | None] = getattr(fcntl, "F_FULLFSYNC", None)
_NOT_HERE: Final = frozenset({errno.EINVAL, errno.ENOTSUP, errno.ENOTTY, errno.ENODEV})
"""How file systems say that they do not know F_FULLFSYNC: network disks do not."""

_sync_file: Final[Callable[[int], None]] = getattr(os, "fdatasync", os.fsync)
_allocate: Final[Callable[[int, int, int], None] | None] = getattr(os, "posix_fallocate", None)
_write_vector: Final[Callable[[int, Sequence[Buffer], int], int] | None] = getattr(
    os, "pwritev", None
)


def sync_data(descriptor: int) -> None:
    """Bring the file's data, and what of its metadata finds it, to the medium.

    On macOS fsync only hands them to the drive, which writes them when and in the order it likes;
    F_FULLFSYNC is the barrier (fcntl(2)).
    """
    if not _synced_fully(descriptor):
        _sync_file(descriptor)


def sync_all(descriptor: int) -> None:
    """Like `sync_data`, with all metadata; also for directories."""
    if not _synced_fully(descriptor):
        os.fsync(descriptor)


def _synced_fully(descriptor: int) -> bool:
    if _FULL_SYNC is None:
        return False
    try:
        fcntl.fcntl(descriptor, _FULL_SYNC)
    except OSError as error:
        if error.errno in _NOT_HERE:
            return False
        raise
    return True


def claim_space(descriptor: int, start: int, length: int) -> None:
    """Have the file system set `length` bytes from `start` aside; they read as zeros.

    Nothing may have been written there.
    """
    if _allocate is not None:
        _allocate(descriptor, start, length)
        return
    position, end = start, start + length
    while position < end:
        position += os.pwrite(descriptor, _ZEROS[: end - position], position)


def write_buffers(descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
    """Write at most `IOVECS_MAX` buffers, one behind the other; the number of bytes written."""
    if _write_vector is not None:
        return _write_vector(descriptor, buffers, position)
    return os.pwrite(descriptor, b"".join(buffers), position)


def lock_exclusively(descriptor: int) -> None:
    """Claim the file for this descriptor, or raise `BlockingIOError` or `PermissionError`.

    Java's FileLock is a POSIX record lock, which flock does not see on Linux: there both are taken,
    so that a Kafka broker and this one exclude each other. Elsewhere each sees the other, even
    those of the same process, and one is enough (flock(2) of macOS).
    """
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    if sys.platform.startswith("linux"):
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


_send_file: Final[Any] = getattr(os, "sendfile", None) if sys.platform.startswith("linux") else None
"""Only Linux's: macOS's reports what it sent before an interruption as still to be sent (Python
calls it again with the old position), and some of the BSDs count headers in."""

_COPIED_BYTES_MAX: Final = 256 * 1024


def send_range(socket: int, file: int, position: int, length: int) -> int:
    """Send bytes of a file to a socket that does not block; how many it took, 0 at the file's end.

    Raises `BlockingIOError` if it takes none now.
    """
    if _send_file is not None:
        sent: int = _send_file(socket, file, position, length)
        return sent
    data = os.pread(file, min(length, _COPIED_BYTES_MAX), position)
    return os.write(socket, data) if data else 0
