"""What a table remembers of the batches in it: numbers under names, written with every commit.

Theory: both formats keep such numbers in the same atomic commit as the files: Delta as application
transactions, which outlive its log's clean-up, Iceberg as table properties. The frontier, the fence
and the watermark are made of nothing else, so that they are read at once, whatever the table's age.
A table in which the marks of another writer changed meanwhile cannot be committed to.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Final

from strandline.lakehouse.tables.identity import (
    Frontier,
    OffsetRange,
    topic_from_marks,
    topic_marks,
)
from strandline.types import TopicPartition

_PREFIX: Final = "strandline/"
SEQUENCE: Final = f"{_PREFIX}sequence"
WRITER: Final = f"{_PREFIX}writer"
WATERMARK: Final = f"{_PREFIX}watermark"
EXPIRED: Final = f"{_PREFIX}expired"
"""Up to which time rows were removed for their age, in microseconds since 1970."""

Read = Callable[[str], int | None]
"""Gives the number under a name."""


def side_mark(side: str) -> str:
    """Under which the number of the last batch stands that had files for a side table."""
    return f"{_PREFIX}side/{side}"


def query_mark(query_id: str) -> str:
    """Under which a query's newest batch number stands: the id itself, which is unique."""
    return query_id


def result_mark(query_id: str) -> str:
    """As `query_mark`, in a table of results: it lasts, since nothing else knows a batch again."""
    return f"{_PREFIX}query/{query_id}"


def is_of_query(mark: str) -> bool:
    """Whether a mark is a query's, and not the table's own."""
    return not mark.startswith(_PREFIX)


def writer_of(query_id: str) -> int:
    """A query id as a number: who committed last."""
    digest = hashlib.blake2b(query_id.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def _count(topic: str) -> str:
    return f"{_PREFIX}partitions/{topic}"


def _mark(what: str, place: TopicPartition) -> str:
    return f"{_PREFIX}{what}/{place.partition}/{place.topic}"


def read_frontier(read: Read, place: TopicPartition) -> Frontier | None:
    """How far the table holds one partition."""
    end = read(_mark("end", place))
    if end is None:
        return None
    start, epoch = read(_mark("start", place)), read(_mark("epoch", place))
    high, low = read(_mark("topic-high", place)), read(_mark("topic-low", place))
    return Frontier(
        start=0 if start is None else start,
        end=end,
        leader_epoch=-1 if epoch is None else epoch,
        topic_id="" if high is None or low is None else topic_from_marks(high, low),
    )


def read_frontiers(read: Read, topics: Iterable[str]) -> dict[TopicPartition, Frontier]:
    """How far the table holds each partition that it has anything of."""
    found = {}
    for topic in topics:
        for partition in range(read(_count(topic)) or 0):
            place = TopicPartition(topic, partition)
            if (frontier := read_frontier(read, place)) is not None:
                found[place] = frontier
    return found


def marks_of_ranges(read: Read, ranges: Iterable[OffsetRange]) -> dict[str, int]:
    """The marks that move when `ranges` are committed."""
    marks: dict[str, int] = {}
    counts: dict[str, int] = {}
    for item in ranges:
        place = item.topic_partition
        if read(_mark("end", place)) is None:
            marks[_mark("start", place)] = item.start
        marks[_mark("end", place)] = item.end
        if item.leader_epoch >= 0:
            marks[_mark("epoch", place)] = item.leader_epoch
        if (halves := topic_marks(item.topic_id)) is not None:
            marks[_mark("topic-high", place)], marks[_mark("topic-low", place)] = halves
        counts[item.topic] = max(counts.get(item.topic, 0), item.partition + 1)
    for topic, count in counts.items():
        if (read(_count(topic)) or 0) < count:
            marks[_count(topic)] = count
    return marks
