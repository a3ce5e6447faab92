"""The offset index of a segment: where in the `.log` file to start looking for an offset.

This file knows the meaning of the entries and which are believable. It must not know batches.
One entry is made for about every `index.interval.bytes` of batches:

    ┌─ at ┬─────────────────┬ bytes ┐
    │   0 │ relative offset │     4 │ last offset of a batch - base offset of the segment
    │   4 │ position        │     4 │ where that batch starts in the `.log` file
    └─────┴─────────────────┴───────┘

Both numbers strictly increase. A lookup gives the greatest entry at or below the wanted offset, and
the reader scans on from there; with no such entry it starts at position 0.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from strandline.storage.files import Files
from strandline.storage.index_file import DamagedIndex, IndexFile

LAYOUT: Final = Struct(">ii")
RELATIVE_OFFSET_MAX: Final = 2**31 - 1


class IndexedPosition(NamedTuple):
    """A place in a segment from which to scan."""

    offset: int
    position: int


class OffsetIndex(IndexFile):
    """See the module."""

    __slots__ = ("base_offset",)

    def __init__(self, files: Files, path: str, base_offset: int) -> None:
        super().__init__(files, path, LAYOUT)
        self.base_offset = base_offset

    @property
    def is_full(self) -> bool:
        return self.entries >= self.capacity

    def add_batch(self, last_offset: int, position: int) -> None:
        """Note that the batch that ends with `last_offset` starts at `position`."""
        if self.entries < self.capacity:
            self.add(last_offset - self.base_offset, position)

    def lookup(self, offset: int) -> IndexedPosition:
        """The greatest entry whose offset is at most `offset`; the segment's start without one."""
        return self._at(self.floor_slot(offset - self.base_offset, 0))

    def lookup_position(self, position: int) -> IndexedPosition:
        """The greatest entry whose position is at most `position`; the start without one."""
        return self._at(self.floor_slot(position, 1))

    def check_within(self, log_size: int) -> None:
        """Raise `DamagedIndex` when entries cannot belong to a segment of `log_size` bytes."""
        if self.entries:
            first, last = self.entry(0), self.entry(self.entries - 1)
            # No entry is ever made for the first batch of a segment, so zeros are damage too.
            if first[0] < 0 or first[1] <= 0 or last[1] >= log_size:
                raise DamagedIndex(
                    f"The index {self.path} points outside its segment of {log_size} bytes."
                )

    def truncate_to(self, offset: int) -> None:
        """Keep the entries with offsets below `offset`."""
        self.keep(self.floor_slot(offset - 1 - self.base_offset, 0) + 1)

    def _at(self, slot: int) -> IndexedPosition:
        if slot < 0:
            return IndexedPosition(self.base_offset, 0)
        relative_offset, position = self.entry(slot)
        return IndexedPosition(self.base_offset + relative_offset, position)
