"""Where the newest batches of a segment are: offsets and positions, dense and in memory.

This file knows two sorted arrays and searches them. It must not know files. Consumers and followers
that keep up read here, and a search in memory costs a microsecond where the sparse index costs a
read of the disk and a scan. The arrays are bounded: when they reach twice `BATCHES_KEPT`, the older
half goes. `array` and not `list`, because the garbage collector does not look into it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import Final, NamedTuple

BATCHES_KEPT: Final = 1024


class TailRange(NamedTuple):
    """Whole batches in `[position, position + length)`, all below `upper_offset`."""

    position: int
    length: int
    upper_offset: int


class Tail:
    """The newest batches. Every batch that ends at or after `start_offset` is in it."""

    __slots__ = ("last_offsets", "positions", "start_offset")

    def __init__(self) -> None:
        self.start_offset = 1 << 63
        self.last_offsets = array("q")
        self.positions = array("q")

    def restart(self, start_offset: int) -> None:
        """Forget all batches; the next one added begins at or after `start_offset`."""
        self.start_offset = start_offset
        self.last_offsets = array("q")
        self.positions = array("q")

    def add(self, last_offset: int, position: int) -> None:
        """Note that the batch that ends with `last_offset` starts at `position`."""
        last_offsets = self.last_offsets
        last_offsets.append(last_offset)
        self.positions.append(position)
        if len(last_offsets) > 2 * BATCHES_KEPT:
            self.start_offset = last_offsets[BATCHES_KEPT - 1] + 1
            del last_offsets[:BATCHES_KEPT]
            del self.positions[:BATCHES_KEPT]

    def find(
        self, offset: int, max_bytes: int, end_offset: int, size: int, *, at_least_one: bool
    ) -> TailRange | None:
        """The batches from the one that holds `offset` on, up to `end_offset` and `max_bytes`.

        `offset` must be at or after `start_offset`; `size` is where the last batch ends.
        """
        last_offsets, positions = self.last_offsets, self.positions
        count = len(last_offsets)
        first = bisect_left(last_offsets, offset)
        stop = bisect_left(last_offsets, end_offset, first) if first < count else count
        if first == stop:
            return None
        position = positions[first]
        end = positions[stop] if stop < count else size
        if end - position > max_bytes:
            stop = bisect_right(positions, position + max_bytes, first) - 1
            if stop == first:
                if not at_least_one:
                    return None
                stop += 1
            end = positions[stop] if stop < count else size
        return TailRange(position, end - position, last_offsets[stop - 1] + 1)
