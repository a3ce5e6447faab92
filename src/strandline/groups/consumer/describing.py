"""Consumer groups as readers see them: ConsumerGroupDescribe. What is not durable is not shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from strandline.groups.consumer.cluster_view import ClusterView, named_partitions
from strandline.groups.consumer.group import preferred
from strandline.groups.consumer.image import GroupImage
from strandline.groups.consumer.member import ConsumerMember
from strandline.groups.consumer.partitions import Partitions
from strandline.protocol.messages.consumer_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from strandline.types import TopicId

_CLASSIC_MEMBER = 0
_CONSUMER_MEMBER = 1


def described_consumer_group(
    group_id: str, image: GroupImage, cluster: ClusterView, default_assignor: str
) -> DescribedGroup:
    """One entry of a ConsumerGroupDescribe answer."""
    return DescribedGroup(
        group_id=group_id,
        group_state=image.state.value,
        group_epoch=image.epoch,
        assignment_epoch=image.target_epoch,
        assignor_name=assignor_of(image) or default_assignor,
        members=[
            _described(member, image.target(member_id), cluster)
            for member_id, member in image.members.items()
        ],
    )


def assignor_of(image: GroupImage) -> str | None:
    """The assignor that most members ask for."""
    votes: dict[str, int] = {}
    for member in image.members.values():
        if member.assignor is not None:
            votes[member.assignor] = votes.get(member.assignor, 0) + 1
    return preferred(votes)


def _described(member: ConsumerMember, target: Partitions, cluster: ClusterView) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        assignment=_assignment(_held(member), cluster),
        target_assignment=_assignment(target, cluster),
        member_type=_CLASSIC_MEMBER if member.is_classic else _CONSUMER_MEMBER,
    )


def _held(member: ConsumerMember) -> Mapping[TopicId, Iterable[int]]:
    """What a member owns, and what it may still be reading."""
    held: dict[TopicId, list[int]] = {}
    for owned in (member.assigned, member.revoking):
        for topic_id, partitions in owned.items():
            held.setdefault(topic_id, []).extend(partitions)
    return held


def _assignment(partitions: Mapping[TopicId, Iterable[int]], cluster: ClusterView) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic.topic_id, topic_name=topic.name, partitions=numbers)
            for topic, numbers in named_partitions(partitions, cluster)
        ]
    )
