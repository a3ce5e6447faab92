"""Who commits what: the identity of a batch, and how far a table is.

Theory: a batch is known by its query and its number in that query, and by the exact offsets it
holds. The first recognises a batch that Spark runs again after a crash; the second holds when the
checkpoint, and with it the first, is lost: the frontier in the table decides what is new.

This file knows no table format.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

import pyarrow as pa

from strandline.errors import InvalidSetting
from strandline.types import TopicPartition


class OffsetRange(NamedTuple):
    """The offsets from `start` up to, and without, `end` of one partition.

    `leader_epoch` is the epoch in which the log was read at `end`, -1 when unknown; `topic_id` is
    the topic's UUID as text, empty when unknown.
    """

    topic: str
    partition: int
    start: int
    end: int
    leader_epoch: int = -1
    topic_id: str = ""

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition that the offsets are of."""
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"offsets {self.start} to {self.end} of {self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class BatchIdentity:
    """One batch of one query: what a commit carries so that it can be recognised.

    `query_id` must be unique for a checkpoint (Spark's own query id is); a table's or query's name
    is not, since a new checkpoint under an old name begins again with batch 0. `lost` are ranges
    that the log no longer has and whose loss the user accepted; they end up among the dead letters.
    `through` names what the rows went through on their way, for the table's history.
    """

    query_id: str
    batch_id: int
    ranges: tuple[OffsetRange, ...]
    lost: tuple[OffsetRange, ...] = ()
    through: str = ""

    def __post_init__(self) -> None:
        if not self.query_id:
            raise InvalidSetting("query_id", "A batch needs the id of its query.")
        seen: set[TopicPartition] = set()
        for item in self.ranges:
            if not 0 <= item.start <= item.end:
                raise InvalidSetting("ranges", f"{item} is no range.")
            if item.topic_partition in seen:
                raise InvalidSetting("ranges", f"{item.topic_partition} has two ranges.")
            seen.add(item.topic_partition)
            topic_marks(item.topic_id)


class Frontier(NamedTuple):
    """How far a table holds one partition: every offset from `start` up to, and without, `end`.

    `leader_epoch` is -1 and `topic_id` empty when no batch has said.
    """

    start: int
    end: int
    leader_epoch: int = -1
    topic_id: str = ""


@dataclass(frozen=True, slots=True)
class TableState:
    """A table at one moment: what a batch is written against.

    `schema` are all columns in order; `version` is the format's own; `sequence` counts the batches
    ever committed; `watermark_us` is the event time below which rows are late, in microseconds
    since 1970, None before the first.
    """

    sequence: int
    version: int
    schema: pa.Schema
    frontiers: Mapping[TopicPartition, Frontier] = field(default_factory=dict)
    watermark_us: int | None = None


def group_of(table: str) -> str:
    """The name of the consumer group that shows a table's progress."""
    return f"strandline-table-{table}"


def topic_marks(topic_id: str) -> tuple[int, int] | None:
    """A topic id as two signed 64-bit numbers, which is what marks can hold."""
    if not topic_id:
        return None
    try:
        data = UUID(topic_id).bytes
    except ValueError:
        raise InvalidSetting("topic_id", f"{topic_id!r} is no topic id (a UUID).") from None
    return int.from_bytes(data[:8], "big", signed=True), int.from_bytes(
        data[8:], "big", signed=True
    )


def topic_from_marks(high: int, low: int) -> str:
    """The inverse of `topic_marks`."""
    data = high.to_bytes(8, "big", signed=True) + low.to_bytes(8, "big", signed=True)
    return str(UUID(bytes=data))


def ranges_to_json(ranges: Iterable[OffsetRange]) -> list[list[object]]:
    """What commit metadata holds."""
    return [list(item) for item in ranges]


def ranges_from_json(items: Iterable[Iterable[object]]) -> tuple[OffsetRange, ...]:
    """The inverse of `ranges_to_json`."""
    return tuple(OffsetRange(*item) for item in items)  # type: ignore[arg-type]
