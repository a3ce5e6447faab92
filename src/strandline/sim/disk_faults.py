"""What a disk does wrong while it is used: errors, full disks, slowness, lies, and sudden ends.

This file knows which operations on which files fail, and how. It must not know what the files mean
or what becomes of the process that meets a fault.

Every operation of a watched disk comes through `Faults.check`, before it takes effect. Faults are
asked in the order in which they were made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final, Literal, TypeAlias

from strandline.errors import StorageError
from strandline.storage.files import DiskFull, OutOfHandles
from strandline.storage.memory_files import ProcessEnded
from strandline.storage.memory_inodes import PowerCut

Ending: TypeAlias = Literal["kill", "power"]

READING: Final = frozenset({"read", "list", "examine"})
TAKES_SPACE: Final = frozenset(
    {"append", "write", "extend", "reserve", "create", "create directory"}
)
TAKES_HANDLE: Final = TAKES_SPACE - {"create directory"} | {
    *("truncate", "read", "list", "sync", "sync directory"),
}
"""What a process cannot do that may open no file; renaming, removing and asking it can."""
WAITS: Final = frozenset({"sync", "sync directory"})
"""The operations that wait for the disk itself; the others only reach the memory."""


@dataclass(slots=True)
class Fault:
    """One thing that is wrong: these operations on files whose path contains `path_part` fail."""

    operations: frozenset[str] | None
    """None: every one."""
    path_part: str
    count: int | None
    """How often it still happens; None: until it is healed."""
    is_full: bool = False

    def hits(self, operation: str, path: str) -> bool:
        """Whether it happens to this operation."""
        if self.operations is not None and operation not in self.operations:
            return False
        return self.path_part in path and self.count != 0

    def error(self, operation: str, path: str) -> StorageError:
        """What the operating system says."""
        if self.is_full:
            return DiskFull(f"Cannot {operation} {path}: No space left on device.")
        return StorageError(f"Cannot {operation} {path}: Input/output error.")


@dataclass(frozen=True, slots=True)
class Drop:
    """The next sync of such a file fails, and what it was to write is gone."""

    path_part: str
    is_full: bool
    """Whether the disk says that it has no room, as thin volumes, quotas and btrfs do, and not that
    it is broken."""

    def error(self, path: str) -> StorageError:
        """What the operating system says."""
        if self.is_full:
            return DiskFull(f"Cannot sync {path}: No space left on device.")
        return StorageError(f"Cannot sync {path}: Input/output error.")


@dataclass(slots=True)
class CrashPoint:
    """The process ends at the `left`-th matching operation from now."""

    left: int
    how: Ending
    mode: PowerCut
    operations: frozenset[str] | None
    path_part: str

    def comes(self, operation: str, path: str) -> bool:
        """Count an operation; whether it is the one."""
        if operation in READING if self.operations is None else operation not in self.operations:
            return False
        if self.path_part not in path:
            return False
        self.left -= 1
        return self.left == 0


@dataclass(slots=True)
class Faults:
    """See the module.

    `starved` is the share of the operations that need a handle and get none. `stall_us` is how long
    the disk has let the machine wait since the caller last took the number. `happened` counts the
    faults that were met, by (operation, kind).
    """

    random: Random
    drop: Callable[[str], None]
    """Called with the path of a file whose sync fails and loses what was to be synced."""
    faults: list[Fault] = field(default_factory=list)
    drops: list[Drop] = field(default_factory=list)
    slow: list[tuple[frozenset[str], str, int]] = field(default_factory=list)
    starved: float = 0.0
    crash: CrashPoint | None = None
    has_crashed: bool = False
    stall_us: int = 0
    operations: int = 0
    happened: dict[str, int] = field(default_factory=dict)
    on_operation: Callable[[str, str], None] | None = None

    @property
    def is_idle(self) -> bool:
        """Whether operations need not be checked at all."""
        has_faults = self.faults or self.drops or self.slow or self.starved
        return not (has_faults or self.crash or self.on_operation)

    def check(self, operation: str, path: str) -> None:
        """What happens to an operation before it takes effect; raises what it meets."""
        if self.crash is not None:
            self._maybe_crash(self.crash, operation, path)
        if operation not in READING:
            self.operations += 1
            if self.on_operation is not None:
                self.on_operation(operation, path)
        if self.starved and operation in TAKES_HANDLE and self.random.random() < self.starved:
            self._count("no handle")
            raise OutOfHandles(f"Cannot {operation} {path}: Too many open files.")
        for operations, path_part, each_us in self.slow:
            if operation in operations and path_part in path:
                self.stall_us += each_us
        for fault in self.faults:
            if fault.hits(operation, path):
                if fault.count is not None:
                    fault.count -= 1
                self._count("full" if fault.is_full else operation)
                raise fault.error(operation, path)
        if operation == "sync":
            for drop in self.drops:
                if drop.path_part in path:
                    self.drops.remove(drop)
                    self.drop(path)
                    self._count("drop on sync")
                    raise drop.error(path)

    def _maybe_crash(self, crash: CrashPoint, operation: str, path: str) -> None:
        if self.has_crashed:
            # Handlers and clean-ups of the process that run while it ends do nothing any more.
            raise ProcessEnded(0.0, crash)
        if crash.comes(operation, path):
            self.has_crashed = True
            self._count(f"crash at {operation}")
            raise ProcessEnded(self.random.random(), crash)

    def _count(self, what: str) -> None:
        self.happened[what] = self.happened.get(what, 0) + 1

    def heal(self) -> None:
        """End everything that goes on."""
        self.faults.clear()
        self.drops.clear()
        self.slow.clear()
        self.starved = 0.0
        self.crash = None
