"""What the status document says of consumer groups: members, positions, lag."""

from __future__ import annotations

from strandline.groups.overview import GroupOverview, MemberOverview
from strandline.node.replicas import Replicas
from strandline.node.status import document
from strandline.types import TopicPartition


def group_facts(group: GroupOverview, replicas: Replicas) -> document.Group:
    """One group that is coordinated here. Lag is known of partitions that are hosted here."""
    return document.Group(
        group=group.group_id,
        type=group.group_type,
        assignment_epoch=group.assignment_epoch,
        state=group.state.value,
        state_since_wall_ms=group.state_since_ms,
        generation=group.generation,
        protocol=group.protocol,
        rebalance_reason=group.rebalance_reason,
        coordinator_partition=group.partition,
        members=[_member(each) for each in group.members],
        positions=[
            _position(at.topic, at.partition, committed.offset, replicas)
            for at, committed in sorted(group.committed.items())
        ],
    )


def _member(member: MemberOverview) -> document.GroupMember:
    return document.GroupMember(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=member.session_timeout_ms,
        partitions=[str(each) for each in member.assigned_partitions],
        protocol=member.protocol,
        epoch=member.epoch,
        target_partitions=[str(each) for each in member.target_partitions],
        revoking_partitions=[str(each) for each in member.revoking_partitions],
    )


def _position(
    topic: str, partition: int, offset: int, replicas: Replicas
) -> document.CommittedPosition:
    replica = replicas.find(TopicPartition(topic, partition))
    end = None if replica is None else replica.log.high_watermark
    return document.CommittedPosition(
        topic=topic,
        partition=partition,
        offset=offset,
        log_end_offset=end,
        lag=None if end is None else max(0, end - offset),
    )
