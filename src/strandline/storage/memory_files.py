"""A file system in memory that can fail, run full, lose power, and be cloned as a crash leaves it.

This file knows what a page cache and a journaling file system promise, and nothing about logs.
Each file has the contents that a reader sees and the contents that are durable; `sync` makes them
equal. Each directory has the names that a reader sees and a list of changes since its last sync.

`crash_clone` builds what a disk may hold after power loss, from a seeded choice: of every file,
each 512-byte sector that differs from the durable contents is old or new on its own (later ones may
survive when earlier ones do not), and a grown file may end anywhere; of every directory, any prefix
of the changes since its last sync. `crash_clone(None)` keeps exactly what is durable, and
`kill_clone` keeps everything, as when only the process dies.

`on_call` is asked before every operation and may raise `StorageError` to make it fail.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from types import TracebackType
from typing import Final, TypeAlias

from strandline.errors import StorageError
from strandline.storage.files import Buffer, DiskFull, LockHeld, MissingFile, name_of, parent_of

SECTOR_BYTES: Final = 512
UNBOUNDED: Final = 1 << 60

OnCall: TypeAlias = Callable[[str, str], None]
"""Called with (operation, path), for example ("append", "/d/t-0/0.log"); may raise."""


def _allow(operation: str, path: str) -> None:
    """The hook of a disk that never fails."""


@dataclass(slots=True, eq=False)
class _Contents:
    """The bytes of one file, whatever its name is."""

    data: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    modified_ms: int = 0

    def after_crash(self, random: Random | None, _: dict[_Node, _Node]) -> _Contents:
        if random is None or self.data == self.durable:
            return _Contents(bytearray(self.durable), self.durable, self.modified_ms)
        sizes = (len(self.durable), len(self.data))
        size = random.choice((*sizes, random.randint(min(sizes), max(sizes))))
        image = bytearray(size)
        keep = random.choice((0.0, 0.5, 0.9, 1.0))
        for start in range(0, size, SECTOR_BYTES):
            source = self.data if random.random() < keep else self.durable
            sector = source[start : min(start + SECTOR_BYTES, size)]
            image[start : start + len(sector)] = sector
        return _Contents(image, bytes(image), self.modified_ms)


@dataclass(slots=True, eq=False)
class _Directory:
    """The names in one directory, and the changes to them that are not durable yet."""

    names: dict[str, _Node] = field(default_factory=dict)
    durable: dict[str, _Node] = field(default_factory=dict)
    changes: list[tuple[tuple[str, _Node | None], ...]] = field(default_factory=list)

    def change(self, *change: tuple[str, _Node | None]) -> None:
        """Set or remove names as one atomic step."""
        _apply(self.names, change)
        self.changes.append(change)

    def sync(self) -> None:
        self.durable = dict(self.names)
        self.changes.clear()

    def after_crash(self, random: Random | None, copies: dict[_Node, _Node]) -> _Directory:
        names = dict(self.durable)
        for change in self.changes[: random.randint(0, len(self.changes)) if random else 0]:
            _apply(names, change)
        clone = _Directory()
        for name, node in sorted(names.items()):
            if node not in copies:
                copies[node] = node.after_crash(random, copies)
            clone.names[name] = copies[node]
        clone.sync()
        return clone


_Node: TypeAlias = _Contents | _Directory


def _apply(names: dict[str, _Node], change: tuple[tuple[str, _Node | None], ...]) -> None:
    for name, node in change:
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


class MemoryFile:
    """One open file; see `files.File` for the contract of each method."""

    __slots__ = ("_contents", "_world", "closed", "failed", "path", "size")

    def __init__(self, path: str, contents: _Contents, world: MemoryFiles) -> None:
        self.path = path
        self.size = len(contents.data)
        self.failed = False
        self.closed = False
        self._contents = contents
        self._world = world

    def append(self, data: Buffer) -> None:
        self._check_writable()
        try:
            self._world.claim("append", self.path, len(data))
        except StorageError as error:
            # A failing disk takes a part of the data before it fails.
            self._contents.data[self.size :] = bytes(data[: len(data) // 2])
            self._cut_back(error)
            raise
        self._contents.data[self.size :] = data
        self.size += len(data)
        self._contents.modified_ms = self._world.now_ms

    def append_all(self, buffers: Sequence[Buffer]) -> None:
        self.append(b"".join(buffers))

    def write_at(self, position: int, data: Buffer) -> None:
        self._check_writable()
        contents = self._contents.data
        end = position + len(data)
        self._world.claim("write", self.path, max(0, end - len(contents)))
        if position > len(contents):
            contents.extend(bytes(position - len(contents)))
        contents[position:end] = data
        self.size = max(self.size, end)
        self._contents.modified_ms = self._world.now_ms

    def read_at(self, position: int, length: int) -> bytes:
        self._check_open()
        self._world.on_call("read", self.path)
        return bytes(memoryview(self._contents.data)[position : min(position + length, self.size)])

    def truncate(self, size: int) -> None:
        self._check_writable()
        contents = self._contents.data
        self._world.claim("truncate", self.path, 0)
        self._world.used_bytes += size - len(contents)
        if size < len(contents):
            del contents[size:]
        else:
            contents.extend(bytes(size - len(contents)))
        self.size = size

    def reserve(self, size: int) -> None:
        self._check_writable()
        if self.size + self._world.free_bytes(self.path) < size:
            raise StorageError(f"Cannot reserve {size} bytes for {self.path}: no space left.")
        self._world.claim("reserve", self.path, 0)

    def sync(self) -> None:
        if self.failed:
            raise StorageError(f"Cannot sync {self.path}: an earlier write or sync failed.")
        try:
            self._world.on_call("sync", self.path)
        except StorageError:
            self.failed = True
            raise
        self._contents.durable = bytes(self._contents.data)

    def moved_to(self, path: str) -> None:
        self.path = path

    def fileno(self) -> int:
        raise StorageError(f"Cannot give a descriptor of {self.path}: it is in memory.")

    def close(self) -> None:
        self.closed = True

    def _check_open(self) -> None:
        if self.closed:
            raise StorageError(f"Cannot use {self.path}: the file is closed.")

    def _check_writable(self) -> None:
        self._check_open()
        if self.failed:
            raise StorageError(f"Cannot write to {self.path}: an earlier write or sync failed.")

    def _cut_back(self, cause: StorageError) -> None:
        try:
            self._world.on_call("cut back", self.path)
        except StorageError as error:
            self.failed = True
            raise StorageError(
                f"Cannot append to {self.path}: {cause}; and cutting it back failed: {error}"
            ) from error
        del self._contents.data[self.size :]


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


class MemoryFiles:
    """The file system; see `files.Files` for the contract of each method.

    `now_ms` is the time that written files get; whoever owns this object moves it.
    """

    def __init__(self, *, capacity_bytes: int = UNBOUNDED, on_call: OnCall = _allow) -> None:
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        self.now_ms = 0
        self.on_call = on_call
        self._root = _Directory()
        self._locks: set[str] = set()

    def crash_clone(self, random: Random | None = None) -> MemoryFiles:
        """The disk as a power loss at this moment may leave it; without `random`, the least."""
        clone = MemoryFiles(capacity_bytes=self.capacity_bytes)
        clone.now_ms, clone._root = self.now_ms, self._root.after_crash(random, {})
        clone.used_bytes = _bytes_below(clone._root)
        return clone

    def kill_clone(self) -> MemoryFiles:
        """The disk as the end of the process at this moment leaves it: nothing written is lost."""
        clone = MemoryFiles(capacity_bytes=self.capacity_bytes)
        clone.now_ms, clone.used_bytes = self.now_ms, self.used_bytes
        clone._root = _deep_copy(self._root)
        return clone

    def claim(self, operation: str, path: str, extra_bytes: int) -> None:
        """Ask the hook, then take space; raises `StorageError` when there is not enough."""
        self.on_call(operation, path)
        if self.used_bytes + extra_bytes > self.capacity_bytes:
            raise DiskFull(f"Cannot {operation} {path}: No space left on device.")
        self.used_bytes += extra_bytes

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        node = self._find(path)
        if node is None and create:
            self.claim("create", path, 0)
            node = _Contents(modified_ms=self.now_ms)
            self._directory(parent_of(path)).change((name_of(path), node))
        return MemoryFile(path, self._contents(path), self)

    def read_bytes(self, path: str) -> bytes:
        self.on_call("read", path)
        return bytes(self._contents(path).data)

    def write_atomically(self, path: str, data: bytes) -> None:
        temporary = path + ".tmp"
        file = self.open(temporary, create=True)
        file.truncate(0)
        file.append(data)
        file.sync()
        file.close()
        self.rename(temporary, path)
        self.sync_directory(parent_of(path))

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def is_directory(self, path: str) -> bool:
        return isinstance(self._find(path), _Directory)

    def size_of(self, path: str) -> int:
        return len(self._contents(path).data)

    def modified_ms(self, path: str) -> int:
        return self._contents(path).modified_ms

    def list_directory(self, path: str) -> list[str]:
        self.on_call("list", path)
        return sorted(self._directory(path).names)

    def make_directory(self, path: str) -> None:
        node = self._root
        for name in _parts(path):
            below = node.names.get(name)
            if below is None:
                self.claim("create directory", path, 0)
                below = _Directory()
                node.change((name, below))
            if isinstance(below, _Contents):
                raise StorageError(f"Cannot create directory {path}: {name} is a file.")
            node = below

    def rename(self, old_path: str, new_path: str) -> None:
        self.on_call("rename", old_path)
        node = self._find(old_path)
        if node is None:
            raise MissingFile(f"Cannot rename {old_path}: No such file or directory.")
        source = self._directory(parent_of(old_path))
        target = self._directory(parent_of(new_path))
        replaced = self._find(new_path)
        if isinstance(replaced, _Contents) and replaced is not node:
            self.used_bytes -= len(replaced.data)
        if source is target:
            source.change((name_of(old_path), None), (name_of(new_path), node))
        else:
            target.change((name_of(new_path), node))
            source.change((name_of(old_path), None))

    def remove(self, path: str) -> bool:
        self.on_call("remove", path)
        node = self._find(path)
        if node is None:
            return False
        self.used_bytes -= len(self._contents(path).data)
        self._directory(parent_of(path)).change((name_of(path), None))
        return True

    def remove_tree(self, path: str) -> None:
        self.on_call("remove", path)
        node = self._find(path)
        if isinstance(node, _Directory):
            self.used_bytes -= _bytes_below(node)
            self._directory(parent_of(path)).change((name_of(path), None))

    def sync_directory(self, path: str) -> None:
        self.on_call("sync directory", path)
        self._directory(path).sync()

    def lock(self, path: str) -> MemoryLock:
        if path in self._locks:
            raise LockHeld(f"Another process holds the lock {path}.")
        self.open(path, create=True).close()
        return MemoryLock(path, self._locks)

    def free_bytes(self, path: str) -> int:
        self.on_call("examine", path)
        return self.capacity_bytes - self.used_bytes

    def total_bytes(self, path: str) -> int:
        self.on_call("examine", path)
        return self.capacity_bytes

    def _find(self, path: str) -> _Node | None:
        node: _Node | None = self._root
        for name in _parts(path):
            if not isinstance(node, _Directory):
                return None
            node = node.names.get(name)
        return node

    def _contents(self, path: str) -> _Contents:
        node = self._find(path)
        if not isinstance(node, _Contents):
            raise MissingFile(f"Cannot open {path}: No such file.")
        return node

    def _directory(self, path: str) -> _Directory:
        node = self._find(path)
        if not isinstance(node, _Directory):
            raise MissingFile(f"Cannot use directory {path}: No such directory.")
        return node


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _bytes_below(directory: _Directory) -> int:
    return sum(
        len(node.data) if isinstance(node, _Contents) else _bytes_below(node)
        for node in directory.names.values()
    )


def _deep_copy(directory: _Directory) -> _Directory:
    clone = _Directory()
    for name, node in directory.names.items():
        if isinstance(node, _Contents):
            clone.names[name] = _Contents(bytearray(node.data), node.durable, node.modified_ms)
        else:
            clone.names[name] = _deep_copy(node)
    clone.sync()
    return clone
