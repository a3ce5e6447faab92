"""Fetched records on their way to the program, one by one or all that are left.

Theory: the position of a partition is the offset of the record that the program gets next. So a
program that stops amid the records of an answer, or whose partition goes to another member, commits
what it has got and no more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

from strandline.client.fetch_positions import FetchPositions
from strandline.client.fetching import FetchedRecords
from strandline.records.record import Record
from strandline.types import TopicPartition


@dataclass(slots=True)
class _Unread:
    fetched: FetchedRecords
    next: int = 0
    """How many of its records are handed out."""


class UnreadRecords:
    """See the module. Handing out moves the positions."""

    def __init__(self, positions: FetchPositions) -> None:
        self._positions = positions
        self._waiting: deque[_Unread] = deque()

    def __bool__(self) -> bool:
        """Whether records wait."""
        return bool(self._waiting)

    def put(self, fetched: Iterable[FetchedRecords]) -> None:
        """These have come. A position moves at once over what holds no records."""
        for each in fetched:
            if each.records:
                self._waiting.append(_Unread(each))
            else:
                self._positions.advance(each)

    def next(self) -> tuple[TopicPartition, Record] | None:
        """The next record, with its partition; None if all are handed out."""
        if not self._waiting:
            return None
        unread = self._waiting[0]
        fetched = unread.fetched
        record = fetched.records[unread.next]
        unread.next += 1
        if unread.next == len(fetched.records):
            self._waiting.popleft()
            self._positions.advance(fetched)
        else:
            following = fetched.records[unread.next]
            self._positions.advance_to(fetched.topic_partition, following.offset)
        return fetched.topic_partition, record

    def rest(self) -> list[FetchedRecords]:
        """All that is left, as it was fetched."""
        rest = [
            replace(each.fetched, records=each.fetched.records[each.next :])
            for each in self._waiting
        ]
        self._waiting.clear()
        for fetched in rest:
            self._positions.advance(fetched)
        return rest

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """The program reads on elsewhere in these, or not at all."""
        gone = set(partitions)
        kept = [each for each in self._waiting if each.fetched.topic_partition not in gone]
        self._waiting = deque(kept)
