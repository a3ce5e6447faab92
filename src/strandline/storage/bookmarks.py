"""Where reads of a log have ended, and the batches that follow there: for readers that go on.

A reader behind the tail asks for the offset at which its last answer ended. A bookmark says where
that is without a look into the index, and carries the run of batches from there on, whose headers
were read once: the next answers are cut out of it. Runs are for small reads; for a large one a look
into the index costs less than the headers of all its batches.

This file knows batch boundaries of one segment, and what makes a bookmark void: another segment in
the place of its own, a truncation, compaction (`clear`). It must not know who may read what.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import Final, NamedTuple

from strandline.errors import StorageError
from strandline.records.batch import HEADER_BYTES
from strandline.storage.batch_scan import header_in
from strandline.storage.segment import Segment

BOOKMARKS_MAX: Final = 256
READ_BYTES_MAX: Final = 128 * 1024
"""Larger reads look into the index."""
BATCHES_AHEAD: Final = 32
_CHUNK_BYTES: Final = 16 * 1024
_SMALL_BATCH_BYTES: Final = 2 * 1024


class Cut(NamedTuple):
    """Batches that a read gets: those of a run up to the index `stop`, up to the position `end`."""

    stop: int
    end: int
    upper_offset: int


class Run:
    """Batches of a segment, one behind the other: their base offsets, their last offsets, and
    `positions`, where they begin and the last one ends. Nothing is read beyond `BATCHES_AHEAD`."""

    __slots__ = ("bases", "lasts", "positions")

    def __init__(self, segment: Segment, position: int) -> None:
        """Read the headers of the batches from a boundary on, as far as they can be read: damage
        is the affair of the read that asks for it, which meets it through the index."""
        self.bases = array("q")
        self.lasts = array("q")
        self.positions = array("q", (position,))
        file, end = segment.log, segment.size
        chunk, chunk_at, chunk_bytes = b"", position, HEADER_BYTES
        while position < end and len(self.lasts) < BATCHES_AHEAD:
            try:
                if position + HEADER_BYTES > chunk_at + len(chunk):
                    chunk_at = position
                    chunk = file.read_at(position, min(chunk_bytes, end - position))
                header = header_in(file, chunk, position - chunk_at, chunk_at)
            except StorageError:
                break
            size = header.size_bytes
            if size > end - position:
                break
            chunk_bytes = _CHUNK_BYTES if size <= _SMALL_BATCH_BYTES else HEADER_BYTES
            position += size
            self.bases.append(header.base_offset)
            self.lasts.append(header.last_offset)
            self.positions.append(position)

    def cut(
        self,
        first: int,
        max_bytes: int,
        end_offset: int,
        upper_offset: int,
        size: int,
        *,
        at_least_one: bool,
    ) -> Cut | None:
        """The batches from `first` on that lie wholly below `end_offset`, at most `max_bytes`.

        `upper_offset` is told of them where nothing else ends them, `size` that of the segment.
        None if the run ends before all of that is known.
        """
        positions, lasts = self.positions, self.lasts
        count = len(lasts)
        if first == count:
            return None
        limit = positions[first] + max_bytes
        below = bisect_left(lasts, end_offset, first)
        end = positions[below]
        if below == count and end < size and end <= limit:
            return None
        if end <= limit:
            return Cut(below, end, upper_offset)
        stop = bisect_right(positions, limit, first) - 1
        if stop > first:
            return Cut(stop, positions[stop], self.bases[stop])
        if at_least_one:
            return Cut(first + 1, positions[first + 1], lasts[first] + 1)
        return Cut(first, positions[first], upper_offset)


class Bookmark(NamedTuple):
    """A batch boundary at which a read has ended, good while `truncations` is what it was."""

    segment: Segment
    position: int
    truncations: int
    run: Run | None = None
    """What follows, from the index `first` on."""
    first: int = 0
    is_dense: bool = False
    """A run holds too few bytes for this reader."""


class Bookmarks:
    """At most `BOOKMARKS_MAX` of a log, by the offset for which a reader asks next."""

    __slots__ = ("_marks",)

    def __init__(self) -> None:
        self._marks: dict[int, Bookmark] = {}

    def find(self, offset: int, segment: Segment, truncations: int) -> Bookmark | None:
        """The bookmark of the batch that starts with `offset`, if it is good."""
        mark = self._marks.get(offset)
        if (
            mark is None
            or mark.segment is not segment
            or mark.truncations != truncations
            or mark.position >= segment.size
        ):
            return None
        return mark

    def put(self, offset: int, mark: Bookmark) -> None:
        """Remember where a reader goes on."""
        marks = self._marks
        if len(marks) >= BOOKMARKS_MAX:
            del marks[next(iter(marks))]
        marks[offset] = mark

    def clear(self) -> None:
        """Segments were replaced: batches lie elsewhere now."""
        self._marks.clear()
