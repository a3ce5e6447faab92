"""Sets of partitions by topic id, which is what assignments are made of.

Immutable by convention: a change makes a new one. No topic is there with nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from strandline.types import TopicId

Partitions = Mapping[TopicId, frozenset[int]]
"""What a member is to own."""

OwnedPartitions = Mapping[TopicId, Mapping[int, int]]
"""What a member owns: by partition the epoch of the group at which it got it."""

NO_PARTITIONS: Final[Partitions] = MappingProxyType({})
OWNS_NOTHING: Final[OwnedPartitions] = MappingProxyType({})

_NONE: Final[Mapping[int, int]] = MappingProxyType({})


def without_epochs(owned: OwnedPartitions) -> Partitions:
    """The partitions alone."""
    return {topic_id: frozenset(partitions) for topic_id, partitions in owned.items()}


def at_epoch(partitions: Partitions, epoch: int) -> OwnedPartitions:
    """These partitions, all of them got at the same epoch."""
    return {
        topic_id: dict.fromkeys(sorted(numbers), epoch) for topic_id, numbers in partitions.items()
    }


def merged(first: OwnedPartitions, second: OwnedPartitions) -> OwnedPartitions:
    """The partitions of both."""
    topics = [*first, *(topic_id for topic_id in second if topic_id not in first)]
    return {
        topic_id: {**first.get(topic_id, _NONE), **second.get(topic_id, _NONE)}
        for topic_id in topics
    }


def overlaps(owned: OwnedPartitions, reported: Iterable[tuple[TopicId, int]]) -> bool:
    """Whether any of the reported partitions is among those owned."""
    return any(partition in owned.get(topic_id, _NONE) for topic_id, partition in reported)


def covers(owned: OwnedPartitions, reported: Iterable[tuple[TopicId, int]]) -> bool:
    """Whether all of the reported partitions are among those owned."""
    return all(partition in owned.get(topic_id, _NONE) for topic_id, partition in reported)
