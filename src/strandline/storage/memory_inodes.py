"""What lies under the names of a file system in memory: contents and directories with a page cache.

This file knows what has reached the disk and what only the memory of the machine knows, and what
may be left of both when the power goes. It must not know paths, handles, or who writes.

Theory: a reader sees `data`. What differs from that on disk is kept as little as possible: bytes
from `durable_size` on are not there yet, and for each page below it that was overwritten or cut off
since the last sync, `before` keeps what the disk has. A sync thus costs nothing, however large the
file, and an append behind the durable end needs no bookkeeping at all. A directory keeps the names
that are on disk and the changes since its last sync, in order.

Zeros at the end of a file that was only extended take no room: `data` may be shorter than `size`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Final, Literal, TypeAlias

from strandline.storage.files import Buffer

PAGE_BYTES: Final = 4096
SECTOR_BYTES: Final = 512

PowerCut: TypeAlias = Literal["none", "prefix", "torn", "hole", "any", "all"]
"""What a power cut leaves of what was not synced.

- `none`: nothing.
- `prefix`: of every file and every directory what was done first, up to any byte.
- `torn`: everything but a part of the last write to each file.
- `hole`: each sector on its own, later ones also where earlier ones are lost, and a file may end
  anywhere; of the changes of names each that does not build upon a lost one.
- `all`: everything.
- `any`: one of these for each file and directory.
"""

CUTS: Final[tuple[PowerCut, ...]] = ("none", "prefix", "torn", "hole", "all")


@dataclass(slots=True, eq=False)
class Contents:
    """The bytes of one file, whatever its name is.

    `len(data) <= size`; the rest is zeros. Keys of `before` are numbers of pages that begin below
    `durable_size`; a page that is kept shorter than it is on disk ends in zeros there.
    """

    data: bytearray = field(default_factory=bytearray)
    size: int = 0
    durable_size: int = 0
    before: dict[int, bytes] = field(default_factory=dict)
    last_write_at: int = 0
    modified_ms: int = 0
    drops_syncs: bool = False
    """A sync failed and its pages are gone; the next ones say that all is well (F-45)."""

    # -- Reading and writing -----------------------------------------------------------------

    def append(self, position: int, data: Buffer) -> int:
        """Write at `position`, which is usually the end; returns where the written ends."""
        if position == len(self.data) and position >= self.durable_size:
            self.data += data
            end = len(self.data)
            self.last_write_at = position
            if end > self.size:
                self.size = end
            return end
        return self.write(position, data)

    def write(self, position: int, data: Buffer) -> int:
        """Write anywhere; returns where the written ends."""
        end = position + len(data)
        if position < self.durable_size:
            self._keep(position, min(end, self.durable_size))
        missing = position - len(self.data)
        if missing > 0:
            self.data.extend(bytes(missing))
        self.data[position:end] = data
        self.last_write_at = position
        if end > self.size:
            self.size = end
        return end

    def read(self, position: int, end: int) -> bytes:
        """The bytes up to `end`, which is not beyond `size`."""
        found = bytes(memoryview(self.data)[position:end])
        missing = end - position - len(found)
        return found + bytes(missing) if missing > 0 else found

    def truncate(self, size: int) -> None:
        """Cut, or extend with zeros."""
        if size < len(self.data):
            kept = min(len(self.data), self.durable_size)
            if size < kept:
                self._keep(size, kept)
            del self.data[size:]
        self.size = size

    def _keep(self, start: int, end: int) -> None:
        """Remember the durable pages that have bytes in `[start, end)`."""
        for page in range(start // PAGE_BYTES, (end - 1) // PAGE_BYTES + 1):
            if page not in self.before:
                at = page * PAGE_BYTES
                self.before[page] = bytes(self.data[at : min(at + PAGE_BYTES, self.durable_size)])

    # -- Durability --------------------------------------------------------------------------

    def sync(self) -> None:
        """Make everything durable, unless the disk only says so."""
        if not self.drops_syncs:
            self.durable_size = self.size
            self.before.clear()

    @property
    def is_durable(self) -> bool:
        """Whether the disk has exactly what a reader sees."""
        return self.size == self.durable_size and not self.before

    def durable(self) -> bytearray:
        """What is on disk for certain; zeros at the end may be missing."""
        image = self.data[: self.durable_size]
        for page, old in self.before.items():
            _put(image, page * PAGE_BYTES, old, self.durable_size)
        return image

    def durable_end(self) -> int:
        """How many leading bytes any power cut leaves as they are now."""
        for page in sorted(self.before):
            at = page * PAGE_BYTES
            end = min(at + PAGE_BYTES, self.durable_size)
            old = self.before[page].ljust(end - at, b"\0")
            new = self.read(at, min(end, self.size)) if at < self.size else b""
            if old != new:
                same = next(
                    (i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), len(new)
                )
                return min(at + same, self.size)
        return min(self.size, self.durable_size)

    def write_back(self, random: Random) -> None:
        """Let the machine write some of its pages to disk, as it does when it has time."""
        if self.drops_syncs:
            return
        for page in sorted(self.before):
            if page * PAGE_BYTES < self.size and random.random() < 0.5:
                del self.before[page]
        if self.size > self.durable_size:
            self.durable_size = random.randint(self.durable_size, self.size)
        elif random.random() < 0.5:
            self.durable_size = self.size
            for page in sorted(self.before):
                if page * PAGE_BYTES >= self.size:
                    del self.before[page]
                else:
                    self.before[page] = self.before[page][: self.size - page * PAGE_BYTES]

    # -- Power cuts --------------------------------------------------------------------------

    def lose_power(self, random: Random | None, mode: PowerCut) -> bool:
        """Keep what the disk happens to have; whether that is not all that readers saw."""
        self.drops_syncs = False
        if self.is_durable:
            return False
        if mode == "any" and random is not None:
            mode = random.choice(CUTS)
        seen, seen_size = bytes(self.data), self.size
        if mode == "none" or random is None:
            self.data, self.size = self.durable(), self.durable_size
        elif mode == "prefix":
            self._lose_behind(random)
        elif mode == "torn":
            self._tear(random)
        elif mode == "hole":
            self._lose_sectors(random)
        self.durable_size = self.size
        self.before.clear()
        return self.size != seen_size or self.data.rstrip(b"\0") != seen.rstrip(b"\0")

    def _tear(self, random: Random) -> None:
        start, end = max(self.last_write_at, self.durable_size), len(self.data)
        if start < end:
            self._end_at(random.randint(start, end))

    def _lose_behind(self, random: Random) -> None:
        """Pages go to disk in the order of the file, the size last; some did not come to it."""
        pages = sorted(self.before)
        written = random.randint(0, len(pages) + (self.size > self.durable_size))
        if written > len(pages):
            self._end_at(random.randint(self.durable_size, self.size))
        elif written < len(pages) or self.size > self.durable_size:
            seen_size = self.size
            self._end_at(self.durable_size)
            for number, page in enumerate(pages):
                # What was cut off is there as long as the old size is.
                if number >= written or page * PAGE_BYTES >= seen_size:
                    _put(self.data, page * PAGE_BYTES, self.before[page], self.size)

    def _lose_sectors(self, random: Random) -> None:
        old = self.durable()
        ends = (self.durable_size, self.size)
        size = random.choice((*ends, random.randint(min(ends), max(ends))))
        dirty = {page * PAGE_BYTES + at: None for page in sorted(self.before) for at in _SECTORS}
        first = self.durable_size - self.durable_size % SECTOR_BYTES
        dirty.update(dict.fromkeys(range(first, len(self.data), SECTOR_BYTES)))
        self._end_at(size)
        keep = random.choice((0.0, 0.5, 0.9, 1.0))
        for at in dirty:
            if at < size and random.random() >= keep:
                _put(self.data, at, bytes(old[at : at + SECTOR_BYTES]), size, SECTOR_BYTES)

    def _end_at(self, size: int) -> None:
        del self.data[size:]
        self.size = size

    def copy(self) -> Contents:
        """The same, independent of this one, with what is not durable yet."""
        return Contents(
            bytearray(self.data),
            self.size,
            self.durable_size,
            dict(self.before),
            self.last_write_at,
            self.modified_ms,
            self.drops_syncs,
        )


_SECTORS: Final = range(0, PAGE_BYTES, SECTOR_BYTES)


def _put(image: bytearray, at: int, part: bytes, limit: int, length: int = PAGE_BYTES) -> None:
    """Overwrite `length` bytes, less at `limit`, by `part` and zeros behind it."""
    end = min(at + length, limit)
    if end <= at:
        return
    if len(image) < at:
        image.extend(bytes(at - len(image)))
    image[at:end] = part[: end - at].ljust(end - at, b"\0")


@dataclass(slots=True, eq=False)
class Directory:
    """The names in one directory, and the changes to them that are not durable yet."""

    names: dict[str, Node] = field(default_factory=dict)
    durable: dict[str, Node] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)

    def change(self, *change: tuple[str, Node | None]) -> None:
        """Set or remove names as one atomic step."""
        _apply(self.names, change)
        self.changes.append(change)

    def sync(self) -> None:
        """Make all names durable."""
        for change in self.changes:
            _apply(self.durable, change)
        self.changes.clear()

    def write_back(self, random: Random) -> None:
        """Let the machine write some of the changes to disk, the oldest first."""
        count = random.randint(0, len(self.changes))
        for change in self.changes[:count]:
            _apply(self.durable, change)
        del self.changes[:count]

    def lose_power(self, random: Random | None, mode: PowerCut) -> list[str]:
        """Keep the names that the disk happens to have; returns those that are other than seen."""
        if not self.changes:
            return []
        if mode == "any" and random is not None:
            mode = random.choice(CUTS)
        survived = dict(self.durable)
        for change in self._surviving(random, mode):
            _apply(survived, change)
        touched = {name: None for change in self.changes for name, _ in change}
        lost = [name for name in touched if survived.get(name) is not self.names.get(name)]
        self.names = survived
        self.durable = dict(survived)
        self.changes = []
        return lost

    def _surviving(self, random: Random | None, mode: PowerCut) -> list[Change]:
        if random is None or mode == "none":
            return []
        if mode == "prefix":
            return self.changes[: random.randint(0, len(self.changes))]
        if mode != "hole":
            return self.changes
        survived: list[Change] = []
        lost: dict[str | Node, None] = {}
        for change in self.changes:
            touched: list[str | Node] = [name for name, _ in change]
            touched += [node for _, node in change if node is not None]
            if random.random() < 0.5 and not any(each in lost for each in touched):
                survived.append(change)
            else:
                lost.update(dict.fromkeys(touched))
        return survived

    def copy(self, copies: dict[Node, Node]) -> Directory:
        """The same, with everything below it, independent of this one."""

        def twin(node: Node) -> Node:
            if node not in copies:
                copies[node] = node.copy() if isinstance(node, Contents) else node.copy(copies)
            return copies[node]

        return Directory(
            {name: twin(node) for name, node in self.names.items()},
            {name: twin(node) for name, node in self.durable.items()},
            [
                tuple((name, None if node is None else twin(node)) for name, node in change)
                for change in self.changes
            ],
        )

    @property
    def used_bytes(self) -> int:
        """What the files below take on disk."""
        return sum(
            len(node.data) if isinstance(node, Contents) else node.used_bytes
            for node in self.names.values()
        )


Node: TypeAlias = Contents | Directory
Change: TypeAlias = tuple[tuple[str, Node | None], ...]


def _apply(names: dict[str, Node], change: Change) -> None:
    for name, node in change:
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node
