"""The disk of one machine: it outlives the processes that use it, and has the faults of disks.

This file knows the life of a disk: which process uses it, how that ends, and what is wrong with the
hardware meanwhile. It must not know logs, nodes, or when a fault happens.

`files` is what the running process uses. When the process ends, by `killed`, `power_cut` or `swap`,
there is a new `files` for the next one, and the old one refuses everything loudly. A killed process
leaves the page cache as it is, with what is not durable yet. A disk has one or more data
directories, which can fail on their own.

A disk without faults is not watched at all, so that reads and writes cost no more than their bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Final

from strandline.sim import disk_damage
from strandline.sim.disk_damage import Damage
from strandline.sim.disk_faults import TAKES_SPACE, WAITS, CrashPoint, Drop, Ending, Fault, Faults
from strandline.storage.files import parent_of
from strandline.storage.memory_files import MemoryFiles
from strandline.storage.memory_inodes import Contents, PowerCut
from strandline.storage.segment_names import SWAP, TEMPORARY

DERIVED: Final = (".index", ".timeindex", ".txnindex", ".snapshot", ".tmp", ".deleted", ".lock")
"""Files without which nothing that was written is lost."""

OLDER_COPIES: Final = 4


class Disk:
    """See the module.

    - `operations`: how many operations have changed something while the disk was watched.
    - `damaged`: the files that something was done to behind the back of the broker, by path.
    - `happened`: how often each kind of fault was met.
    """

    def __init__(self, random: Random, *, data_dirs: Sequence[str]) -> None:
        self.data_dirs = tuple(data_dirs)
        self.damaged: dict[str, str] = {}
        self.on_damage: Callable[[], None] | None = None
        """Called when a file is damaged, before that can be seen."""
        self.files = MemoryFiles()
        self._random = random
        self._faults = Faults(random, self._drop_from_now_on)
        self._older: dict[str, list[bytes]] = {}
        self._copy: MemoryFiles | None = None
        self._is_watched = True
        self._format()

    # -- The ends of processes ---------------------------------------------------------------

    def killed(self) -> bool:
        """The process is over, the machine goes on; whether anything that was written is lost.

        That is so only for what a failed sync has dropped: the page cache has lost these pages, and
        the next reader gets what is on disk (F-45).
        """
        lossy = False
        for path, contents in disk_damage.files_with(self.files, ""):
            if contents.drops_syncs:
                lossy |= contents.lose_power(None, "none") and _matters(path)
        self._next_process()
        return lossy

    def power_cut(self, mode: PowerCut = "any") -> bool:
        """The machine is off; whether anything that was written is lost. See `PowerCut`."""
        lost = self.files.lose_power(self._random, mode)
        self._next_process()
        return any(_matters(path) for path in lost)

    def swap(self) -> None:
        """The machine is off, and the disk is replaced by an empty one (F-12)."""
        self._next_process()
        self.files = MemoryFiles()
        self._faults.heal()
        self.damaged.clear()
        self._older.clear()
        self._format()

    def keep_copy(self) -> None:
        """Copy all files of the disk as an operator does while the broker is down."""
        self._copy = self.files.kill_clone()

    def restore_copy(self) -> bool:
        """The copy takes the place of what is there, while no process uses it; whether there is
        one."""
        if self._copy is None:
            return False
        # What is copied back is new to the disk, and has been synced.
        self.files, self._copy = self._copy.crash_clone(None, "none"), None
        self._faults.heal()
        self.damaged.clear()
        self._older.clear()
        self._next_process()
        return True

    def write_back(self) -> None:
        """Let the machine write some of what is not durable to disk."""
        self.files.write_back(self._random)

    # -- What is on it -----------------------------------------------------------------------

    def durable_end(self, path: str) -> int:
        """How many leading bytes of the file surely survive a power cut; 0 if its name may not.

        A swap that is decided is finished by the next start, so the name of before is as good.
        """
        return self.files.durable_end(path, renamed_from=SWAP)

    def peek(self, path: str) -> bytes | None:
        """What a reader of the file would see, if there is one."""
        node = self.files.find(path)
        return node.read(0, node.size) if isinstance(node, Contents) else None

    def peek_durable(self, path: str) -> bytes | None:
        """What is on disk of the file that has this name now."""
        node = self.files.find(path)
        return bytes(node.durable()) if isinstance(node, Contents) else None

    def image(self, mode: PowerCut | None = None, random: Random | None = None) -> MemoryFiles:
        """A copy as the end of the process, or with a mode a power cut, would leave it now."""
        if mode is None:
            return self.files.kill_clone()
        return self.files.crash_clone(random, mode)

    @contextmanager
    def unobserved(self) -> Iterator[None]:
        """Within it `files` meet no fault, cost no time and count for nothing."""
        before, self._is_watched = self._is_watched, False
        self._watch()
        try:
            yield
        finally:
            self._is_watched = before
            self._watch()

    @property
    def now_ms(self) -> int:
        """The wall time that written files get."""
        return self.files.now_ms

    @now_ms.setter
    def now_ms(self, now_ms: int) -> None:
        self.files.now_ms = now_ms

    def is_damaged(self, path: str) -> bool:
        """Whether something was done to the file, under this name or one on its way to another."""
        if not self.damaged:
            return False
        name = _settled(path)
        return any(_settled(each) == name for each in self.damaged)

    # -- Faults that go on -------------------------------------------------------------------

    def fail(self, operation: str, path_part: str = "", count: int | None = None) -> None:
        """These operations fail with EIO, `count` times or until healed (F-46, F-47).

        `operation` is one or more names with `|` between them, or `*`; see `OnCall`.
        """
        operations = None if operation == "*" else frozenset(operation.split("|"))
        self._add(Fault(operations, path_part, count))

    def break_dir(self, data_dir: str) -> None:
        """Nothing works any more in one data directory (JBOD, KIP-112)."""
        self._add(Fault(None, data_dir, None))

    def fill(self, path_part: str = "", count: int | None = None) -> None:
        """There is no space left for these files (F-48)."""
        self._add(Fault(TAKES_SPACE, path_part, count, is_full=True))

    def free_space(self) -> None:
        """There is space again."""
        self._faults.faults = [fault for fault in self._faults.faults if not fault.is_full]
        self._watch()

    def starve(self, share: float = 1.0) -> None:
        """That share of the operations gets no handle of a file; with 0 all do again."""
        self._faults.starved = share
        self._watch()

    def drop_on_sync(self, path_part: str = "", *, is_full: bool = False) -> None:
        """The next sync of such a file fails and drops what it was to write (F-45), for want of
        room where the disk `is_full`.

        Later syncs of the file say that all is well, and are not.
        """
        self._faults.drops.append(Drop(path_part, is_full))
        self._watch()

    def slow(
        self, us_per_operation: int, path_part: str = "", operations: Collection[str] = WAITS
    ) -> None:
        """Each of these operations takes so long (F-49)."""
        self._faults.slow.append((frozenset(operations), path_part, us_per_operation))
        self._watch()

    @property
    def is_slow(self) -> bool:
        """Whether some of its operations take longer than they should."""
        return bool(self._faults.slow)

    def fast(self) -> None:
        """The disk is as fast as ever again."""
        self._faults.slow.clear()
        self._watch()

    def take_stall_us(self) -> int:
        """How long the operations since the last call have made the machine wait."""
        stall_us = self._faults.stall_us
        if stall_us:
            self._faults.stall_us = 0
        return stall_us

    def crash_in(
        self,
        operations: int,
        *,
        how: Ending = "kill",
        mode: PowerCut = "any",
        operation: str = "",
        path_part: str = "",
    ) -> None:
        """End the process at the n-th operation from now that changes something (1: the next).

        With `operation` (as for `fail`) only those count. The operation raises `ProcessEnded` whose
        `cause` is the `CrashPoint`, and so does every one after it until the process was ended by
        `killed` or `power_cut`. An append gets some of its bytes through.
        """
        chosen = frozenset(operation.split("|")) if operation else None
        self._faults.crash = CrashPoint(operations, how, mode, chosen, path_part)
        self._watch()

    def forget_crash(self) -> None:
        """The process does not end there after all."""
        self._faults.crash = None
        self._watch()

    def heal(self) -> None:
        """End all faults. What is lost or damaged stays so."""
        self._faults.heal()
        self._watch()

    @property
    def on_operation(self) -> Callable[[str, str], None] | None:
        """Called with (operation, path) before every operation that changes something."""
        return self._faults.on_operation

    @on_operation.setter
    def on_operation(self, on_operation: Callable[[str, str], None] | None) -> None:
        self._faults.on_operation = on_operation
        self._watch()

    @property
    def operations(self) -> int:
        """How many operations have changed something while the disk was watched."""
        return self._faults.operations

    @property
    def happened(self) -> dict[str, int]:
        """How often each kind of fault was met."""
        return self._faults.happened

    @property
    def is_sound(self) -> bool:
        """Whether nothing was wrong with it so far. It cannot help a want of handles."""
        return not self.damaged and all(map(_is_harmless, self.happened))

    # -- Damage ------------------------------------------------------------------------------

    def rot(self, path_part: str = "") -> str | None:
        """Flip a bit that is on disk (F-50, F-51); each returns what it did, if anything."""
        return self._note(disk_damage.rot(self.files, path_part, self._random))

    def lose_file(self, path_part: str = "") -> str | None:
        """Remove a file (F-55)."""
        return self._note(disk_damage.lose_file(self.files, path_part, self._random))

    def cut_file(self, path_part: str = "") -> str | None:
        """Make a file shorter (F-55)."""
        return self._note(disk_damage.cut_file(self.files, path_part, self._random))

    def lose_directory(self, data_dir: str, *, is_partition: bool) -> str | None:
        """Remove the log of one partition, or leave the whole data directory empty (F-55).

        What is left is as it was, so no file counts as damaged."""
        if is_partition:
            damage = disk_damage.lose_partition(self.files, data_dir, self._random)
        else:
            damage = disk_damage.lose_contents(self.files, data_dir)
        if damage is None:
            return None
        for path in [each for each in self._older if each.startswith(f"{damage.path}/")]:
            del self._older[path]
        return damage.sentence

    def restore_older(self, path_part: str = "-checkpoint") -> str | None:
        """Put a file back to what it was when some process before ended (F-54)."""
        return self._note(
            disk_damage.restore_older(self.files, self._older, path_part, self._random)
        )

    def forget_clean_marker(self, data_dir: str | None = None) -> str | None:
        """Remove the marker of a clean shutdown, by default from the first data directory."""
        chosen = self.data_dirs[0] if data_dir is None else data_dir
        return self._note(disk_damage.forget_clean_marker(self.files, chosen))

    def forge_clean_marker(
        self, data_dir: str | None = None, contents: bytes = b'{"version":0,"brokerEpoch":-1}'
    ) -> str | None:
        """Leave the marker of a clean shutdown that never was."""
        chosen = self.data_dirs[0] if data_dir is None else data_dir
        return self._note(disk_damage.forge_clean_marker(self.files, chosen, contents))

    # -- Helpers -----------------------------------------------------------------------------

    def _format(self) -> None:
        for data_dir in self.data_dirs:
            self.files.make_directory(data_dir)
            while data_dir != "/":
                self.files.sync_directory(data_dir)
                data_dir = parent_of(data_dir)
        self.files.sync_directory("/")
        self._watch()

    def _next_process(self) -> None:
        self.files = self.files.next_process()
        self._faults.crash = None
        self._faults.has_crashed = False
        self._faults.stall_us = 0
        for path, contents in disk_damage.files_with(self.files, "-checkpoint"):
            copies = self._older.setdefault(path, [])
            copies.append(bytes(contents.data))
            del copies[:-OLDER_COPIES]
        self._watch()

    def _add(self, fault: Fault) -> None:
        self._faults.faults.append(fault)
        self._watch()

    def _watch(self) -> None:
        is_idle = self._faults.is_idle or not self._is_watched
        self.files.on_call = None if is_idle else self._faults.check

    def _drop_from_now_on(self, path: str) -> None:
        node = self.files.find(path)
        if isinstance(node, Contents):
            node.drops_syncs = True
            self._note(Damage(path, f"a sync of {path} has dropped what it was to write"))

    def _note(self, damage: Damage | None) -> str | None:
        if damage is None:
            return None
        self.damaged[damage.path] = damage.sentence
        if self.on_damage is not None:
            self.on_damage()
        return damage.sentence


def _settled(path: str) -> str:
    """The path of a segment's file when it is not being swapped in, or removed."""
    for suffix in TEMPORARY:
        path = path.removesuffix(suffix)
    return path


def _is_harmless(fault: str) -> bool:
    return fault == "no handle" or fault.startswith("crash")


def _matters(path: str) -> bool:
    return not path.endswith(DERIVED)
