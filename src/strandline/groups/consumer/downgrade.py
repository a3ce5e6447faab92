"""Consumer groups that become classic ones, when only members of the classic protocol are left.

They go on with what the target assignment gave them; the group's last epoch is the first generation
of the classic group, which rebalances. It is one append: all tombstones of the consumer group, and
the record of the classic one. `group.consumer.migration.policy` permits or forbids it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from strandline.errors import ErrorCode, InvariantViolated
from strandline.groups.consumer.changes import Change, Done
from strandline.groups.consumer.cluster_view import ClusterView
from strandline.groups.consumer.group import ConsumerGroup, preferred
from strandline.groups.consumer.image import GroupImage, burial
from strandline.groups.consumer.member import ClassicSide, ConsumerMember
from strandline.groups.consumer.partitions import Partitions
from strandline.groups.consumer.watching import forget_member
from strandline.groups.consumer_protocol import CONSUMER_PROTOCOL_TYPE, written_assignment
from strandline.groups.group import Group
from strandline.groups.offset_records import GroupRecord
from strandline.groups.rebalance import Rebalance
from strandline.groups.shard import Shard
from strandline.protocol.messages.join_group import JoinGroupRequestProtocol
from strandline.protocol.messages.offsets_topic import GroupMetadataValue
from strandline.protocol.messages.offsets_topic import MemberMetadata as Stored
from strandline.types import Instant


class Downgrades:
    """Downgrades of the groups of one shard."""

    def __init__(self, shard: Shard, cluster: ClusterView, rebalance: Rebalance) -> None:
        self._shard = shard
        self._cluster = cluster
        self._rebalance = rebalance

    def may_downgrade(
        self, group: ConsumerGroup, leaving: Collection[ConsumerMember], joining: int = 0
    ) -> bool:
        """Whether what is left without these members is to be a classic group."""
        left = len(group.members) - len(leaving) + joining
        classic_leaving = sum(member.is_classic for member in leaving)
        return (
            left > 0
            and group.classic_count - classic_leaving + joining == left
            and self._shard.settings.consumer.may_downgrade
            and left <= self._shard.settings.members_max
        )

    def maybe_downgrade(
        self,
        change: Change,
        leaving: Collection[ConsumerMember],
        now: Instant,
        done: Done | None,
    ) -> bool:
        """Make a classic group of what is left without these members, if only members of the
        classic protocol are left."""
        group = change.group
        if not leaving or not self.may_downgrade(group, leaving):
            return False
        gone = {member.member_id for member in leaving}
        members = [member for member in group.members.values() if member.member_id not in gone]
        reason = "The last member of the consumer protocol left."
        self.downgrade(change, members, reason, now, done)
        return True

    def downgrade(
        self,
        change: Change,
        members: Collection[ConsumerMember],
        rebalance_reason: str | None,
        now: Instant,
        done: Done | None,
    ) -> None:
        """End a consumer group; these of its members are a classic group from now on, which
        rebalances if there is a reason for it."""
        group = change.group
        group_id = group.group_id
        classic = self._classic_group(group.image, group_id, members, now)
        former = list(group.members)
        change.write_all(list(burial(group_id, group.image)))
        assignments = {member_id: each.assignment for member_id, each in classic.members.items()}
        change.write_classic(GroupRecord(group_id, classic.to_value(assignments)))
        for member_id in former:
            forget_member(self._shard, group_id, member_id)
        self._shard.groups[group_id] = classic
        classic.is_stored = False
        for member in classic.members.values():
            self._rebalance.keep_alive(classic, member, now)

        def restore(_at: Instant) -> None:
            if self._shard.groups.get(group_id) is classic:
                self._rebalance.dissolve(classic, ErrorCode.COORDINATOR_NOT_AVAILABLE)

        change.if_refused(restore)
        change.commit(now, done)
        if rebalance_reason is not None and self._shard.groups.get(group_id) is classic:
            self._rebalance.begin(classic, rebalance_reason, now)

    def _classic_group(
        self,
        image: GroupImage,
        group_id: str,
        members: Collection[ConsumerMember],
        now: Instant,
    ) -> Group:
        protocol = _common_protocol(members)
        value = GroupMetadataValue(
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            generation=image.epoch,
            protocol=protocol,
            leader=next(iter(members)).member_id,
            current_state_timestamp=now.wall_ms,
            members=[
                self._stored_member(member, protocol, image.target(member.member_id))
                for member in members
            ],
        )
        classic = Group.from_value(group_id, value)
        for member in members:
            protocols = [
                JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in spoken(member).protocols
            ]
            classic.set_protocols(classic.members[member.member_id], protocols)
        return classic

    def _stored_member(self, member: ConsumerMember, protocol: str, target: Partitions) -> Stored:
        classic = spoken(member)
        subscription = dict(classic.protocols)[protocol]
        return Stored(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout=member.rebalance_timeout_ms,
            session_timeout=classic.session_timeout_ms,
            subscription=subscription,
            assignment=written_assignment(named_partitions(target, self._cluster), subscription),
        )


def named_partitions(partitions: Partitions, cluster: ClusterView) -> Mapping[str, Collection[int]]:
    """Partitions by the names of their topics, of those that are there."""
    topics = {topic_id: cluster.identified(topic_id) for topic_id in partitions}
    return {
        topic.name: sorted(partitions[topic_id])
        for topic_id, topic in topics.items()
        if topic is not None
    }


def spoken(member: ConsumerMember) -> ClassicSide:
    """What a member of the classic protocol has said of itself in it."""
    if member.classic is None:
        raise InvariantViolated(f"{member.member_id} does not speak the classic protocol.")
    return member.classic


def _common_protocol(members: Collection[ConsumerMember]) -> str:
    """The protocol with the most votes of those that every member supports."""
    support = Counter(name for each in members for name in dict(spoken(each).protocols))
    candidates = {name for name, count in support.items() if count == len(members)}
    votes = Counter(
        next(name for name, _ in spoken(each).protocols if name in candidates) for each in members
    )
    return preferred(votes) or ""
