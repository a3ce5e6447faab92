"""A lock on a Delta table's log, for tables that Spark's JVM and this package both commit to.

Theory: a Delta commit is safe because making a file that is there already fails. delta-rs does that
with a hard link, in one step. Delta's own writer does not on a local file system: it looks whether
the file is there, and then renames, which replaces what another process made in between. So
commits to such a table hold this lock meanwhile: a POSIX record lock on a file beside the log's,
which the kernel keeps between processes, for Java's `FileChannel.lock` as for `fcntl.lockf`, and
gives back when its holder dies.

A record lock belongs to a process and not to a thread: within this process a mutex goes before it.
The lock is held for one commit, so that others wait no longer than that.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from strandline.lakehouse.locations.location import Location

_FILE: Final = ".strandline.lock"
_in_this_process = threading.Lock()


@contextmanager
def locked_log(directory: Location) -> Iterator[None]:
    """Hold the lock of the table in `directory`, as this process. Raises `OSError`."""
    with _in_this_process:
        descriptor = os.open(_path(directory), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


@contextmanager
def locked_log_in_java(jvm: Any, directory: Location) -> Iterator[None]:
    """Hold it as the Java process behind `jvm`, whose commit may outlive this process.

    Raises what py4j raises.
    """
    with _in_this_process:
        file = jvm.java.io.RandomAccessFile(str(_path(directory)), "rw")
        try:
            file.getChannel().lock()
            yield
        finally:
            file.close()


def _path(directory: Location) -> Path:
    return (directory / "_delta_log" / _FILE).local
