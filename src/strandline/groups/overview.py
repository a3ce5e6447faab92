"""Facts about groups for readers: ListGroups, DescribeGroups, the command line, the live view.

Knows how a group looks from outside; changes nothing. The numbers from which lag is computed are
here (`committed`); where logs end is for others to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from strandline.errors import CorruptRecords, ErrorCode
from strandline.groups.consumer.describing import assignor_of
from strandline.groups.consumer.group import ConsumerGroup
from strandline.groups.consumer.image import ConsumerGroupState, GroupImage
from strandline.groups.consumer.member import ConsumerMember
from strandline.groups.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    assigned_partitions,
    subscribed_topics,
)
from strandline.groups.group import Group, GroupState
from strandline.groups.member import Member
from strandline.groups.shard import Shard
from strandline.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from strandline.protocol.messages.list_groups import ListedGroup, ListGroupsRequest
from strandline.protocol.messages.offsets_topic import OffsetCommitValue
from strandline.types import NO_TIMESTAMP, TopicId, TopicPartition

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
SHARE: Final = "share"

_MISSING_IS_ERROR_SINCE = 6
"""The version of DescribeGroups from which on an unknown group is an error."""


@dataclass(frozen=True, slots=True)
class MemberOverview:
    """One member. Topics and partitions are empty where the group's protocol is not understood."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    subscribed_topics: frozenset[str]
    assigned_partitions: tuple[TopicPartition, ...]
    is_awaited: bool = False
    """Whether the group waits for it: to join, to take its assignment, or to give partitions up."""
    protocol: str = CLASSIC
    """The group protocol that it speaks."""
    epoch: int | None = None
    """How far it is; None in a classic group."""
    target_partitions: tuple[TopicPartition, ...] = ()
    """What it is to own, in a group of the consumer protocol."""
    revoking_partitions: tuple[TopicPartition, ...] = ()
    """What it has to give up, and may still be reading."""
    missing: tuple[tuple[TopicPartition, str], ...] = ()
    """What it is to own and another member, which is named, still has."""


@dataclass(frozen=True, slots=True)
class GroupOverview:
    """One group as people want to see it."""

    group_id: str
    partition: int
    """The partition of `__consumer_offsets` in which it lives."""
    group_type: str
    """`classic` or `consumer`."""
    state: GroupState | ConsumerGroupState
    state_since_ms: int
    """Of a consumer group: since when it has its target assignment."""
    generation: int
    """Of a consumer group its epoch."""
    assignment_epoch: int | None
    """For which epoch the target assignment of a consumer group is."""
    protocol_type: str | None
    protocol: str | None
    leader: str | None
    rebalance_reason: str
    members: tuple[MemberOverview, ...]
    committed: Mapping[TopicPartition, OffsetCommitValue]


def listed_groups(shard: Shard, request: ListGroupsRequest) -> Iterable[ListedGroup]:
    """The groups of a shard that pass the filters of a ListGroups."""
    states = {state.strip().lower() for state in request.states_filter}
    types = {group_type.strip().lower() for group_type in request.types_filter}
    if not types or CLASSIC in types:
        for group in shard.groups.values():
            if group.is_stored and (not states or group.state.value.lower() in states):
                yield ListedGroup(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type or "",
                    group_state=group.state.value,
                    group_type=CLASSIC,
                )
    if not types or CONSUMER in types:
        for group_id, image in _durable(shard):
            state = image.state.value
            if not states or state.lower() in states:
                yield ListedGroup(
                    group_id=group_id,
                    protocol_type=CONSUMER_PROTOCOL_TYPE,
                    group_state=state,
                    group_type=CONSUMER,
                )
    if not types or SHARE in types:
        for group_id, share_group in shard.share_groups.items():
            state = share_group.durable.state.value
            if share_group.durable.exists and (not states or state.lower() in states):
                yield ListedGroup(
                    group_id=group_id, protocol_type=SHARE, group_state=state, group_type=SHARE
                )


def described_group(shard: Shard, group_id: str, version: int) -> DescribedGroup:
    """One entry of a DescribeGroups answer."""
    group = shard.groups.get(group_id)
    if group is None or not group.is_stored:
        missing = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
        if version >= _MISSING_IS_ERROR_SINCE:
            missing.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            is_other = shard.consumer_group(group_id) is not None
            missing.error_message = (
                f"Group {group_id} is not a classic group."
                if is_other
                else f"Group {group_id} not found."
            )
        return missing
    stable = group.state is GroupState.STABLE
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=group.chosen_protocol if stable else "",
        members=[_described(group, member) for member in group.members.values()],
    )


def group_overviews(shard: Shard) -> list[GroupOverview]:
    """All that is known of the groups of a shard, in the order of their names."""
    classic = [_overview(shard, group) for group in shard.groups.values() if group.is_stored]
    consumers = [
        _consumer_overview(shard, group)
        for group in shard.consumer_groups.values()
        if group.durable.exists
    ]
    return sorted([*classic, *consumers], key=lambda each: each.group_id)


def _durable(shard: Shard) -> Iterator[tuple[str, GroupImage]]:
    for group_id, group in shard.consumer_groups.items():
        if group.durable.exists:
            yield group_id, group.durable


def _described(group: Group, member: Member) -> DescribedGroupMember:
    stable = group.state is GroupState.STABLE
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata(group.chosen_protocol) if stable else b"",
        member_assignment=member.assignment,
    )


def _overview(shard: Shard, group: Group) -> GroupOverview:
    return GroupOverview(
        group_id=group.group_id,
        partition=shard.partition,
        group_type=CLASSIC,
        assignment_epoch=None,
        state=group.state,
        state_since_ms=group.state_timestamp_ms,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol=group.protocol,
        leader=group.leader,
        rebalance_reason=group.rebalance_reason,
        members=tuple(_member_overview(group, member) for member in group.members.values()),
        committed=dict(shard.offsets.committed(group.group_id)),
    )


def _consumer_overview(shard: Shard, group: ConsumerGroup) -> GroupOverview:
    image = group.durable
    return GroupOverview(
        group_id=group.group_id,
        partition=shard.partition,
        group_type=CONSUMER,
        assignment_epoch=image.target_epoch,
        state=image.state,
        state_since_ms=image.target_ms or NO_TIMESTAMP,
        generation=image.epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol=assignor_of(image) or shard.settings.consumer.assignors[0],
        leader=None,
        rebalance_reason=group.reason,
        members=tuple(_consumer_member(shard, group, each) for each in image.members.values()),
        committed=dict(shard.offsets.committed(group.group_id)),
    )


def _consumer_member(shard: Shard, group: ConsumerGroup, member: ConsumerMember) -> MemberOverview:
    image, cluster = group.durable, shard.cluster
    resolved = image.regexes.get(member.topic_regex)
    classic = member.classic
    missing: list[tuple[TopicPartition, str]] = []
    target = image.target(member.member_id)
    for topic_id, numbers in target.items():
        topic = cluster.identified(topic_id)
        for number in sorted(numbers.difference(member.assigned.get(topic_id, ()))):
            owner = group.owner(topic_id, number)
            if topic is not None and owner not in (None, member.member_id):
                missing.append((TopicPartition(topic.name, number), str(owner)))
    return MemberOverview(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=cluster.times(group.group_id).session_timeout_ms
        if classic is None
        else classic.session_timeout_ms,
        subscribed_topics=member.topic_names | (resolved.topics if resolved else frozenset()),
        assigned_partitions=_named(shard, member.assigned),
        is_awaited=not member.is_reconciled_to(image.target_epoch),
        protocol=CONSUMER if classic is None else CLASSIC,
        epoch=member.epoch,
        target_partitions=_named(shard, target),
        revoking_partitions=_named(shard, member.revoking),
        missing=tuple(missing),
    )


def _named(shard: Shard, partitions: Mapping[TopicId, Iterable[int]]) -> tuple[TopicPartition, ...]:
    found: list[TopicPartition] = []
    for topic_id, numbers in partitions.items():
        topic = shard.cluster.identified(topic_id)
        if topic is not None:
            found += (TopicPartition(topic.name, number) for number in numbers)
    return tuple(sorted(found))


def _member_overview(group: Group, member: Member) -> MemberOverview:
    topics: frozenset[str] = frozenset()
    partitions: tuple[TopicPartition, ...] = ()
    if group.uses_consumer_protocol:
        try:
            partitions = assigned_partitions(member.assignment)
            topics = subscribed_topics(member.favourite_metadata(group.protocol))
        except CorruptRecords:
            topics = frozenset()  # it only calls itself a consumer; people see no topics then
    return MemberOverview(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=member.session_timeout_ms,
        subscribed_topics=topics,
        assigned_partitions=partitions,
        is_awaited=_is_awaited(group, member),
    )


def _is_awaited(group: Group, member: Member) -> bool:
    if group.state is GroupState.PREPARING_REBALANCE:
        return member.awaiting_join is None
    return member.member_id in group.pending_syncs
