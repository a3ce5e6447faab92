"""Where a run begins: at the table's frontier, if the log still continues it.

Every run has a checkpoint of its own; the table alone remembers how far it is. So the one question
at a start is whether the logs of today are those that the table's rows came from, and still have
what it lacks. This file decides that from facts; it must not know Spark, sockets or table formats.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from strandline.lakehouse.pipeline.errors import LogReplaced, RecordsLost
from strandline.lakehouse.tables.errors import TopicRecreated
from strandline.lakehouse.tables.identity import Frontier, OffsetRange
from strandline.types import Offset, TopicPartition


@dataclass(frozen=True, slots=True)
class LogFacts:
    """What a cluster says of the partitions of a table's topics."""

    topic_ids: Mapping[str, UUID | None]
    """None where the cluster gives topics no ids."""
    earliest: Mapping[TopicPartition, int]
    latest: Mapping[TopicPartition, int]
    """As a reader of the table's isolation sees it."""
    epoch_ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Where the log leaves the leader epoch of the table's frontier, for those that have one."""

    def topic_text(self, topic: str) -> str:
        """The topic's id as commits carry it; empty if the cluster has none."""
        found = self.topic_ids.get(topic)
        return "" if found is None else str(found)


@dataclass(frozen=True, slots=True)
class StartOffsets:
    """Where to read from, and what the first commit has to declare lost."""

    starts: Mapping[TopicPartition, int]
    lost: tuple[OffsetRange, ...] = ()
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Where the logs end for now."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """As commits carry them."""
    frontiers: Mapping[TopicPartition, Frontier] = field(default_factory=dict)
    """How far the table was."""

    @property
    def has_work(self) -> bool:
        """Whether there is anything to commit already."""
        return bool(self.lost) or any(
            self.ends[partition] > start for partition, start in self.starts.items()
        )

    def reached(self, frontiers: Mapping[TopicPartition, Frontier]) -> dict[TopicPartition, Offset]:
        """Up to where nothing is behind, when the table has `frontiers`.

        What is not in the table yet is behind from its first record on.
        """
        held = {partition: Offset(frontier.end) for partition, frontier in frontiers.items()}
        return {**{each: Offset(start) for each, start in self.starts.items()}, **held}


def start_offsets(
    frontiers: Mapping[TopicPartition, Frontier],
    facts: LogFacts,
    *,
    accepts_loss: bool,
) -> StartOffsets:
    """Decide. Raises `TopicRecreated`, `LogReplaced`, `RecordsLost`."""
    check_same_logs(frontiers, facts)
    known_topics = {partition.topic for partition in frontiers}
    starts: dict[TopicPartition, int] = {}
    lost: list[OffsetRange] = []
    for partition, first in facts.earliest.items():
        frontier = frontiers.get(partition)
        if frontier is not None:
            reached = frontier.end
        else:
            # A table begins where the logs begin, which its first commit notes of all partitions
            # (`ranges_between`); one that was added later begins at its first record: what is
            # already gone from it was never seen.
            reached = 0 if partition.topic in known_topics else first
        if first > reached:
            lost.append(
                OffsetRange(*partition, reached, first, topic_id=facts.topic_text(partition.topic))
            )
        starts[partition] = max(first, reached)
    if lost and not accepts_loss:
        raise RecordsLost(
            f"The log no longer has records that the table lacks: {', '.join(map(str, lost))}. "
            "With --on-data-loss continue the table goes on behind them, and keeps a note of the "
            "loss among its dead letters."
        )
    ids = {topic: facts.topic_text(topic) for topic in facts.topic_ids}
    return StartOffsets(starts, tuple(lost), facts.latest, ids, frontiers)


def check_same_logs(frontiers: Mapping[TopicPartition, Frontier], facts: LogFacts) -> None:
    """That a table's rows came from today's logs. Raises `TopicRecreated`, `LogReplaced`."""
    for partition, frontier in sorted(frontiers.items()):
        _check_same_log(partition, frontier, facts)


def _check_same_log(partition: TopicPartition, frontier: Frontier, facts: LogFacts) -> None:
    topic_id = facts.topic_text(partition.topic)
    if topic_id and frontier.topic_id and topic_id != frontier.topic_id:
        raise TopicRecreated(
            f"Topic '{partition.topic}' was deleted and created again since the table read it up "
            f"to offset {frontier.end} of partition {partition.partition}: its offsets begin "
            "anew and mean other records. Make a new table for the new topic."
        )
    end = facts.latest.get(partition, 0)
    if end < frontier.end:
        raise LogReplaced(
            f"The log of {partition} ends at offset {end}, but the table holds it up to "
            f"{frontier.end}: records that the table has were removed from the log's end, by an "
            "unclean election or because its data was lost. Make a new table, or rebuild this one."
        )
    epoch_end = facts.epoch_ends.get(partition)
    if epoch_end is not None and epoch_end < frontier.end:
        raise LogReplaced(
            f"The log of {partition} leaves leader epoch {frontier.leader_epoch} at offset "
            f"{epoch_end}, but the table holds records of that epoch up to {frontier.end}: the "
            "log's end was cut off and written anew. Make a new table, or rebuild this one."
        )
