"""The assignor `range`: of each topic every member gets a stretch of neighbouring partitions.

Members stand in one order for all topics, so that partitions of the same number in topics with the
same count meet in one member (co-partitioning, for joins). The first members of the order get one
partition more if a topic cannot be divided evenly. Static members come first, by their instance
ids: their stretches outlive their processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from strandline.groups.consumer.assignors.subscriptions import MemberSpec, PartitionCounts
from strandline.groups.consumer.partitions import Partitions
from strandline.types import TopicId


@dataclass(slots=True)
class _Share:
    """What is left to hand out of one topic."""

    partition_count: int
    subscribers: int = 0
    served: int = 0

    def next_stretch(self) -> range:
        """The stretch of the next subscriber in the order."""
        each, extra = divmod(self.partition_count, self.subscribers)
        start = self.served * each + min(self.served, extra)
        length = each + (self.served < extra)
        self.served += 1
        return range(start, start + length)


def assign_range(
    members: Mapping[str, MemberSpec], partition_counts: PartitionCounts
) -> dict[str, Partitions]:
    """A target for each member."""
    order = sorted(members, key=lambda member_id: _rank(member_id, members[member_id]))
    shares: dict[TopicId, _Share] = {}
    for spec in members.values():
        for topic_id in spec.topic_ids:
            share = shares.setdefault(topic_id, _Share(partition_counts[topic_id]))
            share.subscribers += 1
    targets: dict[str, Partitions] = {}
    for member_id in order:
        stretches = {
            topic_id: shares[topic_id].next_stretch()
            for topic_id in sorted(members[member_id].topic_ids)
        }
        targets[member_id] = {
            topic_id: frozenset(stretch) for topic_id, stretch in stretches.items() if stretch
        }
    return targets


def _rank(member_id: str, spec: MemberSpec) -> tuple[bool, str]:
    is_dynamic = spec.instance_id is None
    return is_dynamic, member_id if spec.instance_id is None else spec.instance_id
