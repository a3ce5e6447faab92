"""A file system in memory that can fail, run full, lose power, and outlive its process.

This file knows what a process sees of a file system: paths and locks; its handles of open files are
in `memory_handles`. What a page cache keeps and what a power cut leaves of it is the business of
`memory_inodes`. It knows nothing about logs.

A `MemoryFiles` is the file system as one process sees it. `next_process` gives the one that comes
after it, on the same contents: nothing is copied, and what was not durable still is not. From then
on the old one and its handles refuse everything loudly. `lose_power` takes what was not durable.
`crash_clone` and `kill_clone` do the same to a copy.

`on_call` is asked before every operation and may raise `StorageError` to make it fail, or
`ProcessEnded` to end the process there. Without it, and without a limit of capacity, an operation
costs no more than its bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final, TypeAlias

from strandline.errors import StorageError
from strandline.storage.files import DiskFull, LockHeld, MissingFile, name_of, parent_of, sync_new
from strandline.storage.memory_handles import MemoryFile, MemoryLock, ProcessEnded
from strandline.storage.memory_inodes import Contents, Directory, Node, PowerCut

__all__ = ["MemoryFile", "MemoryFiles", "OnCall", "ProcessEnded", "UsedAfterEnd"]

UNBOUNDED: Final = 1 << 60

OnCall: TypeAlias = Callable[[str, str], None]
"""Called with (operation, path), for example ("append", "/d/t-0/0.log"); may raise.

Operations: create, "create directory", append, write, truncate, extend, reserve, "cut back", sync,
"sync directory", rename, remove, read, list, examine.
"""


class UsedAfterEnd(BaseException):
    """A file is used by a process that has ended: a mistake in the driver of the process."""


class MemoryFiles:
    """The file system; see `files.Files` for the contract of each method.

    `now_ms` is the time that written files get; its owner moves it. `is_watched` is
    whether writing must ask `on_call` or for room.
    """

    def __init__(
        self,
        *,
        capacity_bytes: int = UNBOUNDED,
        on_call: OnCall | None = None,
        root: Directory | None = None,
    ) -> None:
        self.now_ms = 0
        self.is_watched = False
        self.root = Directory() if root is None else root
        self._locks: set[str] = set()
        self._capacity_bytes = capacity_bytes
        self.on_call = on_call

    @property
    def on_call(self) -> OnCall | None:
        """Asked before every operation; see the module."""
        return self._on_call

    @on_call.setter
    def on_call(self, on_call: OnCall | None) -> None:
        self._on_call = on_call
        self.is_watched = on_call is not None or self._capacity_bytes < UNBOUNDED

    @property
    def capacity_bytes(self) -> int:
        """The size of the disk."""
        return self._capacity_bytes

    @capacity_bytes.setter
    def capacity_bytes(self, capacity_bytes: int) -> None:
        self._capacity_bytes = capacity_bytes
        self.on_call = self._on_call

    @property
    def used_bytes(self) -> int:
        """What all files take; what was only reserved, or is a hole, does not count."""
        return self.root.used_bytes

    # -- The ends of processes ---------------------------------------------------------------

    def next_process(self) -> MemoryFiles:
        """The same disk and page cache for the next process; this one ends."""
        following = MemoryFiles(capacity_bytes=self.capacity_bytes, root=self.root)
        following.now_ms = self.now_ms
        self.on_call = _refuse
        return following

    def lose_power(self, random: Random | None = None, mode: PowerCut = "any") -> list[str]:
        """Keep what the disk has; the paths of the files and directories that are not as seen.

        Without `random` that is the least it can have.
        """
        return _lose_power(self.root, "", random, mode)

    def write_back(self, random: Random) -> None:
        """Make some of what is not durable durable, as a machine does when it has time."""
        _write_back(self.root, random)

    def crash_clone(self, random: Random | None = None, mode: PowerCut = "any") -> MemoryFiles:
        """The disk as a power loss at this moment may leave it; without `random`, the least."""
        clone = self.kill_clone()
        clone.lose_power(random, mode)
        return clone

    def kill_clone(self) -> MemoryFiles:
        """A copy as the end of the process leaves it: with everything written, durable or not."""
        clone = MemoryFiles(capacity_bytes=self.capacity_bytes, root=self.root.copy({}))
        clone.now_ms = self.now_ms
        return clone

    def durable_end(self, path: str, *, renamed_from: str = "") -> int:
        """How many leading bytes of the file any power cut leaves; 0 if its name may be lost.

        `renamed_from`: what the name ended with, before a rename that need not be durable.
        """
        node: Node = self.root
        for name in _parts(path):
            if not isinstance(node, Directory):
                return 0
            below = node.names.get(name)
            kept = (node.durable.get(name), node.durable.get(name + renamed_from))
            if below is None or not any(each is below for each in kept):
                return 0
            node = below
        return node.durable_end() if isinstance(node, Contents) else 0

    # -- Hooks -------------------------------------------------------------------------------

    def ask(self, operation: str, path: str) -> None:
        """Ask the hook."""
        if self._on_call is not None:
            self._on_call(operation, path)

    def claim(self, operation: str, path: str, extra_bytes: int) -> None:
        """Ask the hook, then for space; raises `StorageError` when there is not enough."""
        self.ask(operation, path)
        capacity = self._capacity_bytes
        if capacity < UNBOUNDED and self.used_bytes + extra_bytes > capacity:
            raise DiskFull(f"Cannot {operation} {path}: No space left on device.")

    # -- Files -------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        node = self.find(path)
        if node is None and create:
            self.claim("create", path, 0)
            node = Contents(modified_ms=self.now_ms)
            self._directory(parent_of(path)).change((name_of(path), node))
        return MemoryFile(path, self._contents(path, node), self)

    def read_bytes(self, path: str) -> bytes:
        self.ask("read", path)
        contents = self._contents(path, self.find(path))
        return contents.read(0, contents.size)

    def write_atomically(self, path: str, data: bytes, *, is_secret: bool = False) -> None:
        del is_secret  # there are no users
        temporary = path + ".tmp"
        self.write_synced(temporary, data)
        self.rename(temporary, path)
        self.sync_directory(parent_of(path))

    def keep_secret(self, path: str) -> None:
        pass

    def write_synced(self, path: str, data: bytes) -> None:
        file = self.open(path, create=True)
        file.truncate(0)
        file.append(data)
        sync_new(file)
        file.close()

    def exists(self, path: str) -> bool:
        return self.find(path) is not None

    def is_directory(self, path: str) -> bool:
        return isinstance(self.find(path), Directory)

    def size_of(self, path: str) -> int:
        return self._contents(path, self.find(path)).size

    def modified_ms(self, path: str) -> int:
        return self._contents(path, self.find(path)).modified_ms

    def list_directory(self, path: str) -> list[str]:
        self.ask("list", path)
        return sorted(self._directory(path).names)

    def make_directory(self, path: str) -> None:
        node = self.root
        for name in _parts(path):
            below = node.names.get(name)
            if below is None:
                self.claim("create directory", path, 0)
                below = Directory()
                node.change((name, below))
            if isinstance(below, Contents):
                raise StorageError(f"Cannot create directory {path}: {name} is a file.")
            node = below

    def rename(self, old_path: str, new_path: str) -> None:
        self.ask("rename", old_path)
        node = self.find(old_path)
        if node is None:
            raise MissingFile(f"Cannot rename {old_path}: No such file or directory.")
        source = self._directory(parent_of(old_path))
        target = self._directory(parent_of(new_path))
        if source is target:
            source.change((name_of(old_path), None), (name_of(new_path), node))
        else:
            target.change((name_of(new_path), node))
            source.change((name_of(old_path), None))

    def remove(self, path: str) -> bool:
        self.ask("remove", path)
        node = self.find(path)
        if node is None:
            return False
        self._contents(path, node)
        self._directory(parent_of(path)).change((name_of(path), None))
        return True

    def remove_tree(self, path: str) -> None:
        self.ask("remove", path)
        if isinstance(self.find(path), Directory):
            self._directory(parent_of(path)).change((name_of(path), None))

    def sync_directory(self, path: str) -> None:
        self.ask("sync directory", path)
        self._directory(path).sync()

    def lock(self, path: str) -> MemoryLock:
        if path in self._locks:
            raise LockHeld(f"The lock {path} is held already.")
        self.open(path, create=True).close()
        return MemoryLock(path, self._locks)

    def free_bytes(self, path: str) -> int:
        self.ask("examine", path)
        return self.capacity_bytes - self.used_bytes

    def total_bytes(self, path: str) -> int:
        self.ask("examine", path)
        return self.capacity_bytes

    def find(self, path: str) -> Node | None:
        """What has this path, if anything."""
        node: Node | None = self.root
        for name in path.split("/"):
            if name:
                if not isinstance(node, Directory):
                    return None
                node = node.names.get(name)
        return node

    @staticmethod
    def _contents(path: str, node: Node | None) -> Contents:
        if not isinstance(node, Contents):
            raise MissingFile(f"Cannot open {path}: No such file.")
        return node

    def _directory(self, path: str) -> Directory:
        node = self.find(path)
        if not isinstance(node, Directory):
            raise MissingFile(f"Cannot use directory {path}: No such directory.")
        return node


def _refuse(operation: str, path: str) -> None:
    raise UsedAfterEnd(f"A process that has ended cannot {operation} {path}.")


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _lose_power(
    directory: Directory, path: str, random: Random | None, mode: PowerCut
) -> list[str]:
    lost = [f"{path}/{name}" for name in directory.lose_power(random, mode)]
    for name, node in sorted(directory.names.items()):
        if isinstance(node, Directory):
            lost += _lose_power(node, f"{path}/{name}", random, mode)
        elif node.lose_power(random, mode):
            lost.append(f"{path}/{name}")
    return lost


def _write_back(directory: Directory, random: Random) -> None:
    directory.write_back(random)
    for _, node in sorted(directory.names.items()):
        if isinstance(node, Directory):
            _write_back(node, random)
        elif not node.is_durable:
            node.write_back(random)
