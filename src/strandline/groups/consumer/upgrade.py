"""Classic groups that become consumer groups while their members go on (KIP-848).

The first member that speaks the consumer protocol finds a classic group. Its last generation
becomes an epoch: each member has what its last assignment gave it, and goes on with the classic
protocol (`classic_members`) until its client is restarted with the other one. It is one append: the
classic group's tombstone, and all records of the new one. `group.consumer.migration.policy` permits
or forbids it; an empty group may always change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from strandline.errors import CorruptRecords, ErrorCode, ProtocolError
from strandline.groups.consumer.changes import Change
from strandline.groups.consumer.cluster_view import ClusterView
from strandline.groups.consumer.member import ClassicSide, ConsumerMember
from strandline.groups.consumer.metadata_hash import TopicHashes
from strandline.groups.consumer.partitions import NO_PARTITIONS, Partitions, at_epoch
from strandline.groups.consumer.records import (
    ConsumerRecord,
    GroupEpoch,
    MemberAssignment,
    MemberMetadata,
    MemberTarget,
    TargetEpoch,
)
from strandline.groups.consumer.targets import stored_target
from strandline.groups.consumer_protocol import read_assignment, read_subscription
from strandline.groups.group import Group
from strandline.groups.member import Member
from strandline.groups.offset_records import GroupRecord
from strandline.groups.rebalance import Rebalance
from strandline.groups.shard import Shard
from strandline.protocol.messages.consumer_groups_topic import (
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from strandline.protocol.messages.join_group import JoinGroupRequestProtocol, JoinGroupResponse
from strandline.protocol.messages.sync_group import SyncGroupResponse
from strandline.types import Instant, TopicId


class Upgrades:
    """Upgrades of the groups of one shard."""

    def __init__(
        self, shard: Shard, cluster: ClusterView, hashes: TopicHashes, rebalance: Rebalance
    ) -> None:
        self._shard = shard
        self._cluster = cluster
        self._hashes = hashes
        self._rebalance = rebalance

    def upgraded(self, classic: Group) -> Iterator[ConsumerRecord]:
        """The records of a classic group with members, as a consumer group. Raises
        `ProtocolError` if it may not become one."""
        settings = self._shard.settings.consumer
        if not settings.may_upgrade:
            raise _cannot_upgrade(classic, "because online upgrade is disabled")
        if not classic.uses_consumer_protocol:
            raise _cannot_upgrade(
                classic, "because the group does not use the consumer embedded protocol"
            )
        if len(classic.members) > settings.members_max:
            raise _cannot_upgrade(
                classic, "because the group size exceeds the consumer group maximum size"
            )
        try:
            members = [self._upgraded_member(classic, each) for each in classic.members.values()]
        except CorruptRecords:
            raise _cannot_upgrade(
                classic, "because the embedded consumer protocol is malformed"
            ) from None
        return self._upgraded_records(classic, members)

    def _upgraded_records(
        self, classic: Group, members: list[tuple[ConsumerMember, Partitions]]
    ) -> Iterator[ConsumerRecord]:
        group_id, epoch = classic.group_id, classic.generation
        topics: set[str] = set()
        for member, _ in members:
            topics |= member.topic_names
            yield MemberMetadata(group_id, member.member_id, member.to_metadata())
        value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=self._hashes.of_group(topics))
        yield GroupEpoch(group_id, value)
        for member, target in members:
            yield MemberTarget(group_id, member.member_id, stored_target(target))
        yield TargetEpoch(
            group_id, ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch)
        )
        for member, _ in members:
            yield MemberAssignment(group_id, member.member_id, member.to_assignment())

    def _upgraded_member(self, group: Group, member: Member) -> tuple[ConsumerMember, Partitions]:
        subscription = read_subscription(member.favourite_metadata(group.protocol))
        target = self._assigned(group, member)
        upgraded = ConsumerMember(
            member_id=member.member_id,
            epoch=group.generation,
            previous_epoch=group.generation,
            instance_id=member.group_instance_id,
            rack_id=subscription.rack_id or None,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            client_id=member.client_id,
            client_host=member.client_host,
            topic_names=frozenset(subscription.topics),
            classic=classic_side(member.session_timeout_ms, member.protocols),
            assigned=at_epoch(target, group.generation),
        )
        return upgraded, target

    def _assigned(self, group: Group, member: Member) -> Partitions:
        if not member.assignment:
            return NO_PARTITIONS
        assignment = read_assignment(member.assignment)
        if assignment.user_data:
            raise _cannot_upgrade(
                group,
                "because an unsupported custom assignor is in use. Please refer to the "
                "documentation or switch to a default assignor before re-attempting the upgrade",
            )
        found: dict[TopicId, frozenset[int]] = {}
        for assigned in assignment.assigned_partitions:
            topic = self._cluster.named(assigned.topic)
            if topic is not None:
                # The assignment may be of an earlier topic of the name, with more partitions.
                known = {each for each in assigned.partitions if 0 <= each < topic.partition_count}
                found[topic.topic_id] = found.get(topic.topic_id, frozenset()) | known
        return found

    def replace_classic(self, change: Change, classic: Group) -> None:
        """A consumer group takes the place of a classic one with this change."""
        error = ErrorCode.REBALANCE_IN_PROGRESS
        for member in classic.members.values():
            told = JoinGroupResponse(error_code=error, member_id=member.member_id)
            self._rebalance.answer_join(classic, member, told)
            self._rebalance.answer_sync(member, SyncGroupResponse(error_code=error))
        self._rebalance.suspend(classic)
        del self._shard.groups[classic.group_id]
        change.write_classic(GroupRecord(classic.group_id, None))

        def restore(at: Instant) -> None:
            self._shard.consumer_groups.pop(classic.group_id, None)
            self._shard.groups[classic.group_id] = classic
            self._rebalance.resume(classic, at)

        change.if_refused(restore)


def classic_side(
    session_timeout_ms: int, protocols: Iterable[JoinGroupRequestProtocol]
) -> ClassicSide:
    """What a member says of itself in the classic protocol."""
    return ClassicSide(
        session_timeout_ms, tuple((protocol.name, protocol.metadata) for protocol in protocols)
    )


def _cannot_upgrade(classic: Group, reason: str) -> ProtocolError:
    return ProtocolError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {classic.group_id} to consumer group {reason}.",
    )
