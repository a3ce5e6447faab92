"""Facts about groups for readers: ListGroups, DescribeGroups, the command line, the live view.

Knows how a group looks from outside; changes nothing. The numbers from which lag is computed are
here (`committed`); where logs end is for others to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from strandline.errors import CorruptRecords, ErrorCode
from strandline.groups.consumer_protocol import assigned_partitions, subscribed_topics
from strandline.groups.group import Group, GroupState
from strandline.groups.member import Member
from strandline.groups.shard import Shard
from strandline.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from strandline.protocol.messages.list_groups import ListedGroup, ListGroupsRequest
from strandline.protocol.messages.offsets_topic import OffsetCommitValue
from strandline.types import TopicPartition

GROUP_TYPE: Final = "classic"

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
    """Whether the rebalance under way waits for it: to join, or to take its assignment."""


@dataclass(frozen=True, slots=True)
class GroupOverview:
    """One group as people want to see it."""

    group_id: str
    partition: int
    """The partition of `__consumer_offsets` in which it lives."""
    state: GroupState
    state_since_ms: int
    generation: int
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
    if types and GROUP_TYPE not in types:
        return
    for group in shard.groups.values():
        if group.is_stored and (not states or group.state.value.lower() in states):
            yield ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state.value,
                group_type=GROUP_TYPE,
            )


def described_group(shard: Shard, group_id: str, version: int) -> DescribedGroup:
    """One entry of a DescribeGroups answer."""
    group = shard.groups.get(group_id)
    if group is None or not group.is_stored:
        missing = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
        if version >= _MISSING_IS_ERROR_SINCE:
            missing.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            missing.error_message = f"Group {group_id} not found."
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
    return [_overview(shard, group) for _, group in sorted(shard.groups.items()) if group.is_stored]


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
