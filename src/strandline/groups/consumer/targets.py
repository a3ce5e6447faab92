"""When a group gets a new target assignment, and how it is computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from strandline.groups.consumer.assignors import ASSIGNORS, MemberSpec
from strandline.groups.consumer.changes import Change
from strandline.groups.consumer.cluster_view import ClusterView
from strandline.groups.consumer.group import ConsumerGroup
from strandline.groups.consumer.partitions import Partitions
from strandline.groups.consumer.records import MemberTarget, TargetEpoch
from strandline.protocol.messages.consumer_groups_topic import (
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartition,
)
from strandline.types import Instant, TopicId

_UNKNOWN_TIME: Final = 0


class Targets:
    """Computes target assignments with the assignors that are switched on."""

    def __init__(self, cluster: ClusterView, assignors: Sequence[str]) -> None:
        """`assignors`: the first is taken if no member asks for one."""
        self._cluster = cluster
        self._default = assignors[0]

    def assignor_of(self, group: ConsumerGroup) -> str:
        """The assignor that most members ask for, or the default."""
        return group.preferred_assignor() or self._default

    def maybe_compute(self, change: Change, now: Instant) -> bool:
        """Give the group a target for its epoch, unless it has one or got its last just now."""
        group, image = change.group, change.group.image
        if image.target_epoch >= image.epoch or not self._is_time(group, now):
            return False
        specs, counts = self._facts(group)
        assign = ASSIGNORS[self.assignor_of(group)]
        for member_id, target in assign(specs, counts).items():
            if image.targets.get(member_id) != target:
                change.write(MemberTarget(group.group_id, member_id, stored_target(target)))
        computed = ConsumerGroupTargetAssignmentMetadataValue(
            assignment_epoch=image.epoch, assignment_timestamp=now.wall_ms
        )
        change.write(TargetEpoch(group.group_id, computed))
        return True

    def _is_time(self, group: ConsumerGroup, now: Instant) -> bool:
        """Whether the last assignment is old enough. A clock that was put back counts as that."""
        since_ms = now.wall_ms - group.image.target_ms
        interval_ms = self._cluster.times(group.group_id).assignment_interval_ms
        return group.image.target_ms == _UNKNOWN_TIME or not 0 <= since_ms < interval_ms

    def _facts(self, group: ConsumerGroup) -> tuple[dict[str, MemberSpec], dict[TopicId, int]]:
        subscriptions: dict[tuple[frozenset[str], str], frozenset[TopicId]] = {}
        specs: dict[str, MemberSpec] = {}
        counts: dict[TopicId, int] = {}
        for member_id, member in group.members.items():
            wanted = (member.topic_names, member.topic_regex)
            topic_ids = subscriptions.get(wanted)
            if topic_ids is None:
                topic_ids = subscriptions[wanted] = group.topic_ids_of(member, self._cluster)
                for topic_id in topic_ids:
                    topic = self._cluster.identified(topic_id)
                    counts[topic_id] = 0 if topic is None else topic.partition_count
            specs[member_id] = MemberSpec(
                topic_ids, group.image.target(member_id), member.instance_id
            )
        return specs, counts


def stored_target(target: Partitions) -> ConsumerGroupTargetAssignmentMemberValue:
    """A member's target as it is stored."""
    return ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            TopicPartition(topic_id=topic_id, partitions=sorted(numbers))
            for topic_id, numbers in target.items()
        ]
    )
