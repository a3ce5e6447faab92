"""What an assignor gets to know of a group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from strandline.groups.consumer.partitions import NO_PARTITIONS, Partitions
from strandline.types import TopicId

PartitionCounts = Mapping[TopicId, int]
"""Every topic that some member subscribes to, with the number of its partitions."""


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """A member: what it subscribes to (of what exists), and what it was to own until now."""

    topic_ids: frozenset[TopicId]
    target: Partitions = field(default_factory=lambda: NO_PARTITIONS)
    instance_id: str | None = None


def is_homogeneous(members: Mapping[str, MemberSpec]) -> bool:
    """Whether all members subscribe to the same topics."""
    specs = iter(members.values())
    first = next(specs, None)
    return first is None or all(
        spec.topic_ids is first.topic_ids or spec.topic_ids == first.topic_ids for spec in specs
    )
