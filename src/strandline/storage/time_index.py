"""The time index of a segment: from which offset on to look for a timestamp.

This file knows the meaning of the entries. It must not know batches or clocks.

    ┌─ at ┬─────────────────┬ bytes ┐
    │   0 │ timestamp       │     8 │ the largest up to and including the batch below
    │   8 │ relative offset │     4 │ last offset of the batch that has that timestamp - base offset
    └─────┴─────────────────┴───────┘

An entry (T, O) promises that every record with a timestamp greater than T comes after O. Timestamps
strictly increase, offsets never decrease. The last slot is reserved for the entry that is made when
the segment is closed, and which says what the newest record in it is: retention goes by that.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from strandline.storage.files import Files
from strandline.storage.index_file import IndexFile
from strandline.types import NO_TIMESTAMP

LAYOUT: Final = Struct(">qi")


class TimestampOffset(NamedTuple):
    """A timestamp and the offset it stands at; `NO_TIMESTAMP` with the base offset for none."""

    timestamp: int
    offset: int


class TimeIndex(IndexFile):
    """See the module."""

    __slots__ = ("_last", "base_offset")

    def __init__(self, files: Files, path: str, base_offset: int) -> None:
        super().__init__(files, path, LAYOUT)
        self.base_offset = base_offset
        self._last: TimestampOffset | None = None

    @property
    def is_full(self) -> bool:
        return self.entries >= self.capacity - 1

    @property
    def last(self) -> TimestampOffset:
        """The newest entry."""
        if self._last is None:
            self._last = self._at(self.entries - 1)
        return self._last

    def add_largest(self, timestamp: int, offset: int, *, closing: bool = False) -> None:
        """Note the largest timestamp so far, unless the last entry says it already."""
        room = self.capacity if closing else self.capacity - 1
        if timestamp > self.last.timestamp and self.entries < room:
            self.add(timestamp, offset - self.base_offset)
            self._last = TimestampOffset(timestamp, offset)

    def lookup(self, timestamp: int) -> TimestampOffset:
        """The greatest entry whose timestamp is at most `timestamp`."""
        return self._at(self.floor_slot(timestamp, 0))

    def truncate_to(self, offset: int) -> None:
        """Keep the entries with offsets below `offset`."""
        self.keep(self.floor_slot(offset - 1 - self.base_offset, 1) + 1)
        # Read now, so that no later `add_largest` depends on the disk.
        self._last = self._at(self.entries - 1)

    def start_empty(self, capacity_bytes: int) -> None:
        self._last = None
        super().start_empty(capacity_bytes)

    def _at(self, slot: int) -> TimestampOffset:
        if slot < 0:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        timestamp, relative_offset = self.entry(slot)
        return TimestampOffset(timestamp, self.base_offset + relative_offset)
