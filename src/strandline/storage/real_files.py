"""Files of the operating system. With `real_lock` and `system_calls` the only part of storage that
knows `os`.

It must not know what the bytes mean. A `RealFile` is a name and a size, and its descriptor comes
and goes (`file_handles`, which also says what belongs to which thread).
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Sequence
from typing import Final

from strandline.errors import StorageError
from strandline.storage.file_handles import NO_DESCRIPTOR, FileHandles
from strandline.storage.files import (
    Buffer,
    DiskFull,
    MissingFile,
    NoRoom,
    OutOfHandles,
    UnreadableFile,
    lost_writes,
    parent_of,
)
from strandline.storage.real_lock import RealLock
from strandline.storage.system_calls import (
    IOVECS_MAX,
    claim_space,
    sync_all,
    sync_data,
    write_buffers,
)

OPEN_HANDLES_DEFAULT: Final = 64
"""For work that has a budget of its own; a broker gives its files what it may have."""
_READABLE: Final = 0o644
"""Less what the umask takes, as of Kafka's files."""
_SECRET: Final = 0o600


def storage_error(
    operation: str, path: str, error: OSError, kind: type[StorageError] = StorageError
) -> StorageError:
    """The project's error for a failed call to the operating system; `kind` if it says no more."""
    if isinstance(error, FileNotFoundError):
        kind = MissingFile
    elif error.errno in (errno.ENOSPC, errno.EDQUOT):
        kind = DiskFull
    elif error.errno in (errno.EMFILE, errno.ENFILE):
        kind = OutOfHandles
    elif error.errno == errno.ENOMEM:
        kind = NoRoom
    return kind(f"Cannot {operation} {path}: {error.strerror or error}.")


class RealFile:
    """One file; see `files.File` for the contract of each method.

    `descriptor` is `NO_DESCRIPTOR` while none is open.
    """

    __slots__ = (
        "_handles",
        "closed",
        "cuts",
        "descriptor",
        "failed",
        "is_pinned",
        "path",
        "recently_used",
        "size",
    )

    def __init__(self, path: str, size: int, handles: FileHandles) -> None:
        self.path = path
        self.size = size
        self.failed = False
        self.cuts = 0
        self.closed = False
        self.recently_used = False
        self.is_pinned = False
        self.descriptor = NO_DESCRIPTOR
        self._handles = handles

    def append(self, data: Buffer) -> None:
        descriptor = self.descriptor
        if descriptor < 0 or self.failed:
            descriptor = self._writable_descriptor()
        self.recently_used, size = True, self.size
        try:
            written = os.pwrite(descriptor, data, size)
            if written != len(data):
                self._write_rest(descriptor, data, size, written)
        except OSError as error:
            raise self._cut_back(error) from error
        self.size = size + len(data)

    def append_all(self, buffers: Sequence[Buffer]) -> None:
        descriptor = self._writable_descriptor()
        position = self.size
        try:
            for start in range(0, len(buffers), IOVECS_MAX):
                chunk = buffers[start : start + IOVECS_MAX]
                length = sum(map(len, chunk))
                written = write_buffers(descriptor, chunk, position)
                if written != length:
                    self._write_rest(descriptor, b"".join(chunk), position, written)
                position += length
        except OSError as error:
            raise self._cut_back(error) from error
        self.size = position

    def write_at(self, position: int, data: Buffer) -> None:
        descriptor = self._writable_descriptor()
        try:
            self._write_rest(descriptor, data, position)
        except OSError as error:
            raise storage_error("write to", self.path, error) from error
        self.size = max(self.size, position + len(data))

    def read_at(self, position: int, length: int) -> bytes:
        descriptor = self._open_descriptor()
        length = min(length, self.size - position)
        if length <= 0:
            return b""
        try:
            data = os.pread(descriptor, length, position)
            while len(data) < length:
                more = os.pread(descriptor, length - len(data), position + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise storage_error("read", self.path, error, UnreadableFile) from error
        except MemoryError as error:
            raise NoRoom(f"There is no memory to read {length} bytes of {self.path}.") from error
        return data

    def truncate(self, size: int) -> None:
        descriptor = self._writable_descriptor()
        try:
            os.ftruncate(descriptor, size)
        except OSError as error:
            raise storage_error("truncate", self.path, error) from error
        self.cuts += size < self.size
        self.size = size

    def reserve(self, size: int) -> None:
        descriptor = self._writable_descriptor()
        if size > self.size:
            try:
                claim_space(descriptor, self.size, size - self.size)
            except OSError as error:
                raise storage_error("reserve space for", self.path, error) from error

    def sync(self) -> None:
        if self.failed:
            # After a failed fsync the kernel drops the dirty pages and calls the next one a
            # success; believing it would lose data silently.
            raise StorageError(f"Cannot sync {self.path}: an earlier write or sync failed.")
        try:
            descriptor = self._handles.duplicate(self) if not self.is_pinned else self.descriptor
        except OSError as error:
            # Nothing was asked of the disk yet, so nothing is known to be wrong with it.
            raise storage_error("sync", self.path, error) from error
        try:
            sync_data(descriptor)
        except OSError as error:
            self.failed = True
            raise lost_writes(storage_error("sync", self.path, error)) from error
        finally:
            if not self.is_pinned:
                os.close(descriptor)

    def moved_to(self, path: str) -> None:
        self.path = path

    def fileno(self) -> int:
        return self._open_descriptor()

    def keep_open(self) -> None:
        self._open_descriptor()
        self.is_pinned = True

    def close(self) -> None:
        self.closed = True
        self._handles.take_back(self)

    def _open_descriptor(self) -> int:
        self.recently_used = True
        descriptor = self.descriptor
        if descriptor < 0:
            if self.closed:
                raise StorageError(f"Cannot use {self.path}: the file is closed.")
            try:
                descriptor = self._handles.give(self)
            except OSError as error:
                raise storage_error("open", self.path, error) from error
        return descriptor

    def _writable_descriptor(self) -> int:
        if self.failed:
            raise StorageError(f"Cannot write to {self.path}: an earlier write or sync failed.")
        return self._open_descriptor()

    @staticmethod
    def _write_rest(descriptor: int, data: Buffer, position: int, written: int = 0) -> None:
        """Write what is behind `written` of the data, whose beginning belongs at `position`."""
        while written < len(data):
            # What a failure's traceback still looks at could not be changed by its owner.
            with memoryview(data) as whole, whole[written:] as rest:
                written += os.pwrite(descriptor, rest, position + written)

    def _cut_back(self, cause: OSError) -> StorageError:
        """Remove what a failed append may have written beyond `size`; the error to raise."""
        try:
            os.ftruncate(self.descriptor, self.size)
        except OSError as error:
            self.failed = True
            return StorageError(
                f"Cannot append to {self.path}: {cause.strerror or cause}; and cutting it back to "
                f"{self.size} bytes failed: {error.strerror or error}."
            )
        return storage_error("append to", self.path, cause)


class RealFiles:
    """The file system; see `files.Files`."""

    def __init__(
        self, open_handles_max: int = OPEN_HANDLES_DEFAULT, handles: FileHandles | None = None
    ) -> None:
        """`handles` are shared with other `RealFiles` of the same thread."""
        self._handles = FileHandles(open_handles_max) if handles is None else handles

    @property
    def open_handles(self) -> int:
        """How many descriptors are open now."""
        return self._handles.count

    def open(self, path: str, *, create: bool = False) -> RealFile:
        try:
            size = os.stat(path).st_size
        except FileNotFoundError as error:
            if not create:
                raise storage_error("open", path, error) from error
            return self._create(path)
        except OSError as error:
            raise storage_error("open", path, error) from error
        return RealFile(path, size, self._handles)

    def _create(self, path: str) -> RealFile:
        try:
            os.close(self._open(path, os.O_RDWR | os.O_CREAT))
        except OSError as error:
            raise storage_error("create", path, error) from error
        return RealFile(path, 0, self._handles)

    def _open(self, path: str, flags: int, mode: int = _READABLE) -> int:
        return self._handles.call(lambda: os.open(path, flags | os.O_CLOEXEC, mode))

    def read_bytes(self, path: str) -> bytes:
        try:
            with open(self._open(path, os.O_RDONLY), "rb") as file:
                return file.read()
        except OSError as error:
            raise storage_error("read", path, error) from error

    def write_atomically(self, path: str, data: bytes, *, is_secret: bool = False) -> None:
        temporary = path + ".tmp"
        self._write_synced(temporary, data, _SECRET if is_secret else _READABLE)
        try:
            os.replace(temporary, path)
        except OSError as error:
            raise storage_error("write", path, error) from error
        self.sync_directory(parent_of(path))

    def keep_secret(self, path: str) -> None:
        try:
            os.chmod(path, _SECRET)
        except OSError as error:
            raise storage_error("keep others from", path, error) from error

    def write_synced(self, path: str, data: bytes) -> None:
        self._write_synced(path, data, _READABLE)

    def _write_synced(self, path: str, data: bytes, mode: int) -> None:
        try:
            with open(self._open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
                file.write(data)
                file.flush()
                sync_all(file.fileno())
        except OSError as error:
            raise storage_error("write", path, error) from error

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def size_of(self, path: str) -> int:
        try:
            return os.stat(path).st_size
        except OSError as error:
            raise storage_error("examine", path, error) from error

    def modified_ms(self, path: str) -> int:
        try:
            return os.stat(path).st_mtime_ns // 1_000_000
        except OSError as error:
            raise storage_error("examine", path, error) from error

    def list_directory(self, path: str) -> list[str]:
        try:
            return sorted(self._handles.call(lambda: os.listdir(path)))
        except OSError as error:
            raise storage_error("list", path, error) from error

    def make_directory(self, path: str) -> None:
        try:
            os.makedirs(path, exist_ok=True)
        except OSError as error:
            raise storage_error("create directory", path, error) from error

    def rename(self, old_path: str, new_path: str) -> None:
        try:
            os.replace(old_path, new_path)
        except OSError as error:
            raise storage_error(f"rename to {new_path} the file", old_path, error) from error

    def remove(self, path: str) -> bool:
        try:
            os.unlink(path)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise storage_error("remove", path, error) from error
        return True

    def remove_tree(self, path: str) -> None:
        try:
            self._handles.call(lambda: shutil.rmtree(path))
        except FileNotFoundError:
            if os.path.lexists(path):
                # Another process removes files here at the same time: go on with what is left.
                self.remove_tree(path)
        except OSError as error:
            raise storage_error("remove directory", path, error) from error

    def sync_directory(self, path: str) -> None:
        try:
            descriptor = self._open(path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                sync_all(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise storage_error("sync directory", path, error) from error

    def lock(self, path: str) -> RealLock:
        try:
            return self._handles.call(lambda: RealLock(path))
        except OSError as error:
            raise storage_error("open", path, error) from error

    def free_bytes(self, path: str) -> int:
        return _usage(path)[0]

    def total_bytes(self, path: str) -> int:
        return _usage(path)[1]


def _usage(path: str) -> tuple[int, int]:
    try:
        usage = shutil.disk_usage(path)
    except OSError as error:
        raise storage_error("examine the disk of", path, error) from error
    return usage.free, usage.total
