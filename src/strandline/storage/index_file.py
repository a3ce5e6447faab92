"""A file of sorted entries of one size: what the offset index and the time index share.

This file knows how entries are kept on disk and searched. It must not know what they mean.

Theory: an index can always be rebuilt from its segment, so new entries wait in memory and are
written a block at a time; a crash loses them, and recovery rebuilds every index above the recovery
point anyway. Nothing that is written is held in memory: a search probes the file and reads one
block. The index of the active segment is preallocated (sparse) to its capacity and cut to its
entries when the segment is closed, as Kafka does, so zeros behind the last entry tell of a crash.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from strandline.errors import InvariantViolated, StorageError
from strandline.storage.files import File, Files

BLOCK_ENTRIES: Final = 512
PENDING_BYTES_MAX: Final = 4096


class DamagedIndex(StorageError):
    """The contents of an index cannot be right: it must be rebuilt from its segment."""


class IndexFile:
    """The entries of one index. `entries` counts them; only this class moves it."""

    __slots__ = (
        "_file",
        "_files",
        "_layout",
        "_pending",
        "_written",
        "capacity",
        "entries",
        "path",
    )

    def __init__(self, files: Files, path: str, layout: Struct) -> None:
        self.path = path
        self.entries = 0
        self.capacity = 0
        """Entries that fit; 0 for the index of a closed segment."""
        self._files = files
        self._layout = layout
        self._file: File | None = None
        self._written = 0
        self._pending = bytearray()

    def open_existing(self) -> None:
        """Take the entries that the file has. Raises `MissingFile`, `DamagedIndex`."""
        size = self.file.size
        if size % self._layout.size:
            raise DamagedIndex(f"The index {self.path} ends inside an entry ({size} bytes).")
        self.entries = self._written = size // self._layout.size
        if self.entries > 1 and self.entry(self.entries - 1) <= self.entry(0):
            raise DamagedIndex(f"The index {self.path} is not in order, or ends in zeros.")

    def start_empty(self, capacity_bytes: int) -> None:
        """Create the file, or drop the entries it has, with room for `capacity_bytes`."""
        if self._file is None:
            self._file = self._files.open(self.path, create=True)
        self._file.truncate(0)
        self._pending.clear()
        self.entries = self._written = 0
        self.resize(capacity_bytes)

    def resize(self, capacity_bytes: int) -> None:
        """Make room for new entries up to `capacity_bytes` in total."""
        self.write_pending()
        capacity = max(capacity_bytes // self._layout.size, self.entries)
        self.file.truncate(capacity * self._layout.size)
        self.capacity = capacity

    def make_room(self) -> None:
        """Write waiting entries if many wait: after this, one `add` cannot fail."""
        if len(self._pending) >= PENDING_BYTES_MAX:
            self.write_pending()

    def add(self, first: int, second: int) -> None:
        """Add an entry in memory."""
        self._pending += self._layout.pack(first, second)
        self.entries += 1

    def write_pending(self) -> None:
        """Hand waiting entries to the file."""
        if self._pending:
            self.file.write_at(self._written * self._layout.size, self._pending)
            self._written = self.entries
            self._pending.clear()

    def trim(self) -> None:
        """Write everything and cut the file to its entries."""
        self.write_pending()
        size = self.entries * self._layout.size
        if self.file.size != size:
            self.file.truncate(size)
        self.capacity = 0

    def entry(self, slot: int) -> tuple[int, int]:
        """The two numbers of the entry at `slot`."""
        if not 0 <= slot < self.entries:
            raise InvariantViolated(f"The index {self.path} has no entry {slot}.")
        first: int
        second: int
        if slot >= self._written:
            waiting_at = (slot - self._written) * self._layout.size
            first, second = self._layout.unpack_from(self._pending, waiting_at)
        else:
            first, second = self._layout.unpack(self._read(slot, 1))
        return first, second

    def floor_slot(self, target: int, column: int) -> int:
        """The last slot whose number in `column` is at most `target`, or -1.

        Both columns of an index are sorted: positions, offsets and times only grow.
        """
        low, high = 0, self.entries
        while high - low > BLOCK_ENTRIES or (high > self._written and high > low):
            middle = (low + high) // 2
            if self.entry(middle)[column] <= target:
                low = middle + 1
            else:
                high = middle
        if low == high:
            return low - 1
        entry_bytes = self._layout.size
        block, start = self._read(low, high - low), low
        while low < high:
            middle = (low + high) // 2
            if self._layout.unpack_from(block, (middle - start) * entry_bytes)[column] <= target:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def keep(self, entries: int) -> None:
        """Drop all but the first `entries` entries."""
        if entries < self._written:
            # The dropped bytes must not be taken for entries after a crash.
            self.file.truncate(entries * self._layout.size)
            if self.capacity:
                self.file.truncate(self.capacity * self._layout.size)
            self._written = entries
            self._pending.clear()
        else:
            del self._pending[(entries - self._written) * self._layout.size :]
        self.entries = entries

    @property
    def is_open(self) -> bool:
        """Whether the entries were counted since this object was made or closed."""
        return self._file is not None

    @property
    def file(self) -> File:
        """The file, opened when first needed. Raises `MissingFile`."""
        if self._file is None:
            self._file = self._files.open(self.path)
        return self._file

    def moved_to(self, path: str) -> None:
        """Tell that the file, or a directory above it, was renamed."""
        self.path = path
        if self._file is not None:
            self._file.moved_to(path)

    def close(self) -> None:
        """Give the file up without writing anything."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self._pending.clear()

    def _read(self, slot: int, count: int) -> bytes:
        entry_bytes = self._layout.size
        data = self.file.read_at(slot * entry_bytes, count * entry_bytes)
        if len(data) != count * entry_bytes:
            raise DamagedIndex(
                f"The index {self.path} is shorter than its {self._written} entries."
            )
        return data
