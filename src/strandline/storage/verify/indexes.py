"""Whether the indexes of a segment tell the truth about its batches: what an entry promises.

This file knows the entries and the batches' ends. It must not know where batches come from, or
which of them a reader may see. Rules:

- An offset entry (O, P): the batch that begins at position P ends with offset O.
- A time entry (T, O): a batch ends with O, and T is the largest timestamp from the segment's start
  up to that batch.
- A transaction entry: its marker lies in the segment and comes behind that of the entry before, and
  its transaction begins before that.
- The last time entry of a closed segment has the largest timestamp of all of its batches: retention
  goes by that.

Entries are sparse, so one that is not there is no fault, except that last one. An entry out of
order is a fault by itself, and not asked for anything else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from strandline.storage.files import Files
from strandline.storage.transaction_index import AbortedTransaction, TransactionIndex
from strandline.types import NO_TIMESTAMP


class IndexFault(NamedTuple):
    """An entry that cannot be right. `offset` is the one that it names."""

    sentence: str
    offset: int


@dataclass(frozen=True, slots=True)
class IndexEntries:
    """What an index file holds."""

    pairs: list[tuple[int, int]]
    unwritten: int
    """Entries of zeros at the end: the room of an index that is still being written."""
    torn: str
    """The sentence about a file that ends inside an entry; empty if it does not."""


def read_entries(files: Files, path: str, layout: Struct) -> IndexEntries:
    """All entries of an offset or time index. Raises `StorageError`."""
    data = files.read_bytes(path)
    whole = len(data) // layout.size
    # The index of an active segment is mostly room: ten million zeros by default.
    used = min(whole, -(-len(data.rstrip(b"\0")) // layout.size))
    return IndexEntries(
        list(layout.iter_unpack(data[: used * layout.size])),
        whole - used,
        f"It ends inside an entry ({len(data)} bytes)." if len(data) % layout.size else "",
    )


class OffsetIndexCheck:
    """The entries of an offset index, compared with the batches in turn."""

    def __init__(self, base_offset: int) -> None:
        self._base_offset = base_offset
        self._count = 0
        self._before = (-1, -1)
        self._offsets: dict[int, int] = {}
        """By position; those that no batch has answered yet."""

    def enter(self, relative: int, position: int) -> IndexFault | None:
        """Take the next entry in."""
        offset = self._base_offset + relative
        self._count += 1
        if relative <= self._before[0] or position <= self._before[1]:
            return _out_of_order(self._count - 1, offset)
        self._before = (relative, position)
        self._offsets[position] = offset
        return None

    def see(self, position: int, last_offset: int) -> IndexFault | None:
        """A batch begins at `position` and ends with `last_offset`."""
        offset = self._offsets.pop(position, None)
        if offset is None or offset == last_offset:
            return None
        return IndexFault(
            f"The entry for position {position} names offset {offset}, but the batch there ends "
            f"with {last_offset}.",
            offset,
        )

    def skip(self, position: int) -> None:
        """What begins at `position` cannot be believed."""
        self._offsets.pop(position, None)

    def unanswered(self) -> Iterator[IndexFault]:
        """After the last batch: the entries without one."""
        for position, offset in self._offsets.items():
            yield IndexFault(
                f"No batch begins at position {position}, which the entry for offset {offset} "
                "points to.",
                offset,
            )


class TimeIndexCheck:
    """The entries of a time index, compared with the batches in turn."""

    def __init__(self, base_offset: int) -> None:
        self._base_offset = base_offset
        self._count = 0
        self._before = (NO_TIMESTAMP, -1)
        self._times: dict[int, int] = {}
        """By offset; those that no batch has answered yet."""
        self._largest = NO_TIMESTAMP

    def enter(self, timestamp: int, relative: int) -> IndexFault | None:
        """Take the next entry in."""
        offset = self._base_offset + relative
        self._count += 1
        if timestamp <= self._before[0] or relative < self._before[1]:
            return _out_of_order(self._count - 1, offset)
        self._before = (timestamp, relative)
        self._times[offset] = timestamp
        return None

    def see(self, last_offset: int, max_timestamp: int) -> IndexFault | None:
        """A batch ends with `last_offset`; its records are not newer than `max_timestamp`."""
        self._largest = max(self._largest, max_timestamp)
        timestamp = self._times.pop(last_offset, None)
        if timestamp is None or timestamp == self._largest:
            return None
        return IndexFault(
            f"The entry for offset {last_offset} says {timestamp} ms, but the largest timestamp up "
            f"to there is {self._largest} ms.",
            last_offset,
        )

    def unanswered(self) -> Iterator[IndexFault]:
        """After the last batch: the entries without one."""
        for offset, timestamp in self._times.items():
            yield IndexFault(
                f"No batch ends with offset {offset}, which an entry for {timestamp} ms names.",
                offset,
            )

    def missing_last(self) -> IndexFault | None:
        """After the last batch of a closed segment: whether the last entry has its newest time."""
        if self._largest <= self._before[0]:
            return None
        return IndexFault(
            f"The segment is closed, but its last entry says {self._before[0]} ms and its newest "
            f"record {self._largest} ms.",
            self._base_offset,
        )


def checked_aborts(
    index: TransactionIndex, base_offset: int
) -> Iterator[tuple[AbortedTransaction, IndexFault | None]]:
    """The entries of the transaction index of a segment, each with what is wrong with its place.

    An index that is not there is an empty one. Raises `StorageError`.
    """
    newest = -1
    for entry in index.entries():
        fault = None
        if entry.last_offset < base_offset:
            sentence = (
                f"The entry for the marker at {entry.last_offset} is below the base offset "
                f"{base_offset} of its segment."
            )
            fault = IndexFault(sentence, entry.last_offset)
        elif entry.last_offset <= newest or entry.first_offset > entry.last_offset:
            sentence = f"The entry for the marker at {entry.last_offset} is out of order."
            fault = IndexFault(sentence, entry.last_offset)
        else:
            newest = entry.last_offset
        yield entry, fault


def _out_of_order(number: int, offset: int) -> IndexFault:
    return IndexFault(f"Entry {number} (offset {offset}) is out of order.", offset)
