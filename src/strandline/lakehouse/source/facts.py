"""What the cluster says about the partitions of a query at one moment.

This file knows whom to ask. What follows from the answers is decided in `starting` and `progress`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from strandline.client.refusal import refusal
from strandline.errors import ErrorCode, ProtocolError
from strandline.lakehouse.reading.catalogue import Catalogue, End, EpochEnd, TopicFacts
from strandline.lakehouse.source.options import Selection
from strandline.lakehouse.source.positions import Position, Positions
from strandline.types import TopicId, TopicPartition


@dataclass(frozen=True, slots=True)
class Facts:
    """The partitions that a query reads, and where their logs begin and end for it."""

    topics: Mapping[str, TopicFacts] = field(default_factory=dict)
    earliest: Mapping[TopicPartition, int] = field(default_factory=dict)
    ends: Mapping[TopicPartition, End] = field(default_factory=dict)
    epoch_ends: Mapping[TopicPartition, EpochEnd] = field(default_factory=dict)
    """Where the epochs of given positions end, for those whose log is in another epoch by now."""

    @property
    def topic_ids(self) -> dict[str, TopicId | None]:
        """The ids of the topics by their names."""
        return {name: topic.topic_id for name, topic in self.topics.items()}

    def positions(self) -> Positions:
        """The ends of all partitions."""
        ends = {each: (end.offset, end.leader_epoch) for each, end in self.ends.items()}
        return Positions.of(self.topic_ids, ends)


def look(catalogue: Catalogue, selection: Selection, known: Positions | None = None) -> Facts:
    """Ask. `known` are positions whose epochs matter; without them nothing may be missing.

    Raises `ProtocolError`: UNKNOWN_TOPIC_OR_PARTITION for a topic or partition that was named and
    is not there, when there are no known positions.
    """
    topics = _topics(catalogue, selection, may_be_missing=known is not None)
    partitions = [
        TopicPartition(name, number)
        for name, topic in topics.items()
        for number in topic.partitions
        if not selection.partitions or TopicPartition(name, number) in selection.partitions
    ]
    ends = catalogue.latest(partitions)
    moved = {
        partition: position.epoch
        for partition, position in (known.at if known else {}).items()
        if position.epoch >= 0 and partition in ends and _moved(position, ends[partition])
    }
    return Facts(
        topics,
        catalogue.earliest(partitions),
        ends,
        catalogue.epoch_ends(moved) if moved else {},
    )


def _moved(position: Position, end: End) -> bool:
    """Whether the log may be another one than that in which the position was taken."""
    return end.leader_epoch != position.epoch or end.offset < position.offset


def _topics(
    catalogue: Catalogue, selection: Selection, *, may_be_missing: bool
) -> Mapping[str, TopicFacts]:
    if selection.pattern is not None:
        return catalogue.matching(selection.pattern)
    names = sorted(selection.topics or {each.topic for each in selection.partitions})
    try:
        topics = catalogue.topics(names)
    except ProtocolError as error:
        if not may_be_missing or error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        topics = {}
        for name in names:
            topics |= _if_there(catalogue, name)
    if not may_be_missing:
        for partition in sorted(selection.partitions):
            if partition.partition not in topics[partition.topic].partitions:
                raise refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None, f"partition {partition}")
    return topics


def _if_there(catalogue: Catalogue, name: str) -> dict[str, TopicFacts]:
    try:
        return catalogue.topics([name])
    except ProtocolError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return {}
