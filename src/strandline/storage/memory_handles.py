"""Handles of the file system in memory: an open file, and the claim on a lock file.

This file knows what may be done with a handle and what a failed write leaves. It must not know
paths, nor how the contents become durable.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Protocol

from strandline.errors import StorageError
from strandline.storage.files import (
    Buffer,
    NoRoom,
    OutOfHandles,
    UnreadableFile,
    lost_writes,
)
from strandline.storage.memory_inodes import Contents


class FileSystem(Protocol):
    """What a handle needs of the file system it belongs to; see `MemoryFiles`."""

    now_ms: int
    is_watched: bool

    def ask(self, operation: str, path: str) -> None: ...

    def claim(self, operation: str, path: str, extra_bytes: int) -> None: ...

    def free_bytes(self, path: str) -> int: ...


class ProcessEnded(BaseException):
    """The process that carries out this operation ends in the middle of it.

    No handler of errors may catch it: it is for the driver of the process. `share` is how much of
    an append has got through, from 0 to 1; `cause` is for the code that raised it.
    """

    def __init__(self, share: float = 0.0, cause: object = None) -> None:
        super().__init__(f"The process ended: {cause}.")
        self.share = share
        self.cause = cause


class MemoryFile:
    """One open file; see `files.File` for the contract of each method."""

    __slots__ = ("_contents", "_world", "closed", "cuts", "failed", "path", "size")

    def __init__(self, path: str, contents: Contents, world: FileSystem) -> None:
        self.path = path
        self.size = contents.size
        self.failed = False
        self.closed = False
        self.cuts = 0
        self._contents = contents
        self._world = world

    def append(self, data: Buffer) -> None:
        if self.failed or self.closed:
            self._check_writable()
        if self._world.is_watched:
            self._claim_append(data)
        contents = self._contents
        self.size = contents.append(self.size, data)
        contents.modified_ms = self._world.now_ms

    def append_all(self, buffers: Sequence[Buffer]) -> None:
        self.append(b"".join(buffers))

    def write_at(self, position: int, data: Buffer) -> None:
        self._check_writable()
        contents = self._contents
        if self._world.is_watched:
            extra = max(0, position + len(data) - len(contents.data))
            self._world.claim("write", self.path, extra)
        self.size = max(self.size, contents.write(position, data))
        contents.modified_ms = self._world.now_ms

    def read_at(self, position: int, length: int) -> bytes:
        if self.closed:
            self._check_open()
        if self._world.is_watched:
            try:
                self._world.ask("read", self.path)
            except NoRoom:
                raise
            except StorageError as error:
                raise UnreadableFile(str(error)) from error
        end = position + length
        return self._contents.read(position, end if end < self.size else self.size)

    @property
    def size_in_world(self) -> int:
        """How many bytes the file has, with what a handle does not know that died while it wrote.
        For onlookers."""
        return self._contents.size

    def peek(self, position: int, length: int) -> bytes:
        """What `read_at` gives, for onlookers: nothing is asked, nothing can fail."""
        end = position + length
        return self._contents.read(position, end if end < self.size else self.size)

    def truncate(self, size: int) -> None:
        self._check_writable()
        self._world.ask("truncate" if size <= self.size else "extend", self.path)
        self._contents.truncate(size)
        self.cuts += size < self.size
        self.size = size

    def reserve(self, size: int) -> None:
        self._check_writable()
        self._world.claim("reserve", self.path, max(0, size - self.size))
        if size > self._contents.size:
            self._contents.truncate(size)  # zeros, which this handle does not count

    def sync(self) -> None:
        if self.failed:
            raise StorageError(f"Cannot sync {self.path}: an earlier write or sync failed.")
        try:
            self._world.ask("sync", self.path)
        except OutOfHandles:
            raise  # nothing was asked of the disk yet
        except StorageError as error:
            self.failed = True
            raise lost_writes(error) from error
        self._contents.sync()

    def moved_to(self, path: str) -> None:
        self.path = path

    def fileno(self) -> int:
        raise StorageError(f"Cannot give a descriptor of {self.path}: it is in memory.")

    def keep_open(self) -> None:
        """In memory a file is always open."""

    def close(self) -> None:
        self.closed = True

    def _check_open(self) -> None:
        if self.closed:
            raise StorageError(f"Cannot use {self.path}: the file is closed.")

    def _check_writable(self) -> None:
        self._check_open()
        if self.failed:
            raise StorageError(f"Cannot write to {self.path}: an earlier write or sync failed.")

    def _claim_append(self, data: Buffer) -> None:
        try:
            self._world.claim("append", self.path, len(data))
        except OutOfHandles:
            raise  # the file could not even be opened
        except StorageError as error:
            # A failing disk takes a part of the data before it fails.
            self._contents.write(self.size, bytes(data[: len(data) // 2]))
            self._cut_back(error)
            raise
        except ProcessEnded as end:
            self._contents.write(self.size, bytes(data[: int(len(data) * end.share)]))
            raise

    def _cut_back(self, cause: StorageError) -> None:
        try:
            self._world.ask("cut back", self.path)
        except StorageError as error:
            self.failed = True
            raise StorageError(
                f"Cannot append to {self.path}: {cause}; and cutting it back failed: {error}"
            ) from error
        self._contents.truncate(self.size)


class MemoryLock:
    """The claim on one lock file; see `files.Lock`."""

    def __init__(self, path: str, held: set[str]) -> None:
        self._path = path
        self._held = held
        held.add(path)

    def release(self) -> None:
        self._held.discard(self._path)

    def __enter__(self) -> MemoryLock:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
