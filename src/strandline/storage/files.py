"""The only way in which storage reaches a disk: two small protocols and their rules.

This file knows what a file and a directory can be asked to do. It does not know logs, and it does
not know which world it is in: `real_files` asks the operating system, `memory_files` keeps bytes in
memory and can be crashed and cloned. Everything above it can therefore be tested with a failing
disk, and runs in the simulator unchanged.

Rules that every implementation keeps:

- Paths are absolute strings with `/`; `parent_of` and `join` below are all the path arithmetic
  that storage needs.
- Every failure is a `StorageError` whose sentence names the path and the operation; a file that
  is not there is the subclass `MissingFile`.
- `File.append` writes everything or nothing: after a failed or short write the file is cut back
  to its old size. If even the cut fails, `File.failed` is set and the file refuses all writes.
- Data is durable after `File.sync`, a name (create, rename, remove) after `sync_directory`.
- All calls come from one thread, except `File.sync`, `Files.sync_directory` and
  `Files.write_synced`, which a driver may call from another thread at any time, even while the
  file is written, renamed or closed.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import ClassVar, Protocol, TypeAlias

from strandline.errors import StorageError

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes to be written. Memoryviews must be contiguous and of single bytes."""


class MissingFile(StorageError):
    """The named file or directory does not exist."""


class NoRoom(StorageError):
    """Something that is needed has run out. Nothing is broken: it works again when there is more.

    The file system is as it was before the operation that raised this.
    """

    for_clients: ClassVar[str] = "The broker has run out of memory."
    """What a client is told: without the names of files."""


class DiskFull(NoRoom):
    """There is no space on the disk, or no more quota."""

    for_clients = "There is no room on the broker's disk."


class OutOfHandles(NoRoom):
    """The process, or the machine, has no descriptor left to open a file with (EMFILE, ENFILE)."""

    for_clients = "The broker can open no more files (ulimit -n)."


class LostWrites(StorageError):
    """The disk was asked for a sync and failed, for whatever reason, also for want of room.

    The kernel calls the pages clean then that it could not write: what the file has is not what the
    disk has, and no later sync of it proves anything, by whichever handle (note 0023).
    """

    shortage: NoRoom | None = None
    """What had run out, if that was why. A file that nothing relies on yet may be made again."""


class UnreadableFile(StorageError):
    """The disk does not give back what a file has (EIO). The bytes may be gone for good."""


class LockHeld(StorageError):
    """Another process holds the lock of this file, or this one does already."""


class File(Protocol):
    """One file of bytes. Reopened silently when its handle was given up meanwhile."""

    @property
    def path(self) -> str:
        """Where the file is; `moved_to` changes it after a rename."""

    @property
    def size(self) -> int:
        """Bytes written to it. Reserved space that nothing was written to does not count."""

    @property
    def failed(self) -> bool:
        """A write failed and could not be taken back: the contents beyond `size` are unknown."""

    @property
    def cuts(self) -> int:
        """How often it was cut: what is behind a position may be other bytes than before."""

    def append(self, data: Buffer) -> None:
        """Write all of `data` at `size`, or raise `StorageError` and leave the file as it was."""

    def append_all(self, buffers: Sequence[Buffer]) -> None:
        """Like `append` of the buffers joined, without joining them."""

    def write_at(self, position: int, data: Buffer) -> None:
        """Overwrite bytes; extends `size` when the data reaches beyond it.

        A failure may leave part of the data written.
        """

    def read_at(self, position: int, length: int) -> bytes:
        """The bytes there are in that range: fewer than `length` only at the end of the file."""

    def truncate(self, size: int) -> None:
        """Set the size: cut, or extend with zeros (sparse). Gives reserved space back."""

    def reserve(self, size: int) -> None:
        """Claim disk space up to `size` without changing what `size` says."""

    def sync(self) -> None:
        """Make everything written before this call durable. May run in any thread.

        Raises `LostWrites` if the disk was asked and failed; then `failed` is set.
        """

    def moved_to(self, path: str) -> None:
        """Tell the file that it, or a directory above it, was renamed."""

    def fileno(self) -> int:
        """The operating system's descriptor, for sendfile.

        It is good until the next call to storage; a caller that needs it longer duplicates it.
        In-memory files raise `StorageError`.
        """

    def keep_open(self) -> None:
        """Open the handle now and hold it until `close`: no later call fails for want of one.

        `sync` may then not run beside `close`."""

    def close(self) -> None:
        """Give the handle up for good. Does not sync."""


class Lock(Protocol):
    """An exclusive claim on a lock file, held until released or until the process ends."""

    def release(self) -> None:
        """Give the claim up; the lock file stays."""

    def __enter__(self) -> Lock: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class Files(Protocol):
    """A file system."""

    def open(self, path: str, *, create: bool = False) -> File:
        """The file at `path`; without `create` it must exist. Creating is durable only after
        `sync_directory` of its parent."""

    def read_bytes(self, path: str) -> bytes:
        """The whole contents. Raises `MissingFile`."""

    def write_atomically(self, path: str, data: bytes, *, is_secret: bool = False) -> None:
        """Replace or create the file so that a crash at any moment leaves the old or the new
        contents: write `<path>.tmp`, sync it, rename it, sync the directory. What is secret, other
        users cannot read, unless there was a `<path>.tmp`."""

    def keep_secret(self, path: str) -> None:
        """From now on, other users of the machine cannot read the file."""

    def write_synced(self, path: str, data: bytes) -> None:
        """Make a file with these contents, or give it them, durably. May run in any thread.

        Its name is durable after `sync_directory` only, and a crash may leave any contents.
        Raises `MissingFile` without its directory."""

    def exists(self, path: str) -> bool: ...

    def is_directory(self, path: str) -> bool: ...

    def size_of(self, path: str) -> int:
        """Size of a file that need not be open. Raises `MissingFile`."""

    def modified_ms(self, path: str) -> int:
        """Wall time of the last change of its contents. Raises `MissingFile`."""

    def list_directory(self, path: str) -> list[str]:
        """Names in the directory, sorted, without `.` and `..`. Raises `MissingFile`."""

    def make_directory(self, path: str) -> None:
        """Create the directory and missing parents; fine if it exists."""

    def rename(self, old_path: str, new_path: str) -> None:
        """Rename a file or directory, replacing a file at `new_path`. Raises `MissingFile`.

        Durable after `sync_directory` of the parent."""

    def remove(self, path: str) -> bool:
        """Remove a file; whether it was there."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory and everything below it; fine if it is not there."""

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable. May run in any thread."""

    def lock(self, path: str) -> Lock:
        """Claim the lock file, creating it. Raises `LockHeld` if it is held."""

    def free_bytes(self, path: str) -> int:
        """Bytes that can still be written to the file system that holds `path`."""

    def total_bytes(self, path: str) -> int:
        """Size in bytes of the file system that holds `path`."""


def lost_writes(failure: StorageError) -> LostWrites:
    """What a sync raises that failed in this way after the disk was asked."""
    lost = LostWrites(str(failure))
    lost.shortage = failure if isinstance(failure, NoRoom) else None
    return lost


def sync_new(file: File) -> None:
    """Sync a file that its caller removes, or writes from the beginning, when that fails: nothing
    is lost with it. Raises `NoRoom` if there is none, or `StorageError`."""
    try:
        file.sync()
    except LostWrites as error:
        raise (error.shortage or error) from error


def join(directory: str, name: str) -> str:
    """The path of `name` inside `directory`."""
    return directory + name if directory.endswith("/") else directory + "/" + name


def parent_of(path: str) -> str:
    """The directory that holds `path`."""
    return path.rsplit("/", 1)[0] or "/"


def name_of(path: str) -> str:
    """The last part of `path`."""
    return path.rsplit("/", 1)[-1]
