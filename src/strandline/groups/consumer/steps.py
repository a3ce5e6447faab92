"""The steps of a member's way that members of both protocols take."""

from __future__ import annotations

from strandline.groups.consumer.changes import Change
from strandline.groups.consumer.cluster_view import ClusterView, GroupTimes
from strandline.groups.consumer.group import ConsumerGroup
from strandline.groups.consumer.image import departure
from strandline.groups.consumer.member import ConsumerMember
from strandline.groups.consumer.reconciliation import Goal, Reported, reconciled
from strandline.groups.consumer.records import MemberAssignment, MemberMetadata, MemberTarget
from strandline.groups.consumer.sessions import Sessions
from strandline.groups.consumer.subscriptions import PatternChange, Subscriptions
from strandline.groups.consumer.targets import Targets, stored_target
from strandline.groups.consumer.watching import forget_member
from strandline.groups.shard import Shard
from strandline.types import Instant


class Steps:
    """See the module."""

    def __init__(
        self,
        shard: Shard,
        cluster: ClusterView,
        subscriptions: Subscriptions,
        targets: Targets,
        sessions: Sessions,
    ) -> None:
        self._shard = shard
        self.cluster = cluster
        self.subscriptions = subscriptions
        self.targets = targets
        self.sessions = sessions

    def times(self, group: ConsumerGroup) -> GroupTimes:
        """What is set for a group."""
        return self.cluster.times(group.group_id)

    def replace(
        self, change: Change, predecessor: ConsumerMember, successor: ConsumerMember
    ) -> None:
        """A static member's new process takes the place of the old one, with all that it had."""
        group_id = change.group.group_id
        target = change.group.image.target(predecessor.member_id)
        change.write_all(departure(group_id, predecessor.member_id))
        forget_member(self._shard, group_id, predecessor.member_id)
        member_id = successor.member_id
        change.write(
            MemberMetadata(group_id, member_id, successor.to_metadata()),
            MemberTarget(group_id, member_id, stored_target(target)),
            MemberAssignment(group_id, member_id, successor.to_assignment()),
        )

    def update(
        self, change: Change, known: ConsumerMember, updated: ConsumerMember, now: Instant
    ) -> bool:
        """Take over what a member says of itself, and what follows for the group's epoch; returns
        whether the member subscribes to something else now."""
        group = change.group
        if updated != known:
            change.write(MemberMetadata(group.group_id, updated.member_id, updated.to_metadata()))
        names_changed = updated.topic_names != known.topic_names
        pattern = self.subscriptions.follow(change, known, updated, now)
        must_bump = names_changed or pattern is PatternChange.RESOLVED
        if must_bump or self.subscriptions.is_due(group):
            reason = f"{updated.member_id} subscribes to other topics."
            if known.member_id not in group.image.targets:
                reason = f"{updated.member_id} joined."
            self.subscriptions.look_at_topics(change, reason, must_bump=must_bump)
        return names_changed or pattern is not PatternChange.NONE

    def reconcile(
        self,
        change: Change,
        member: ConsumerMember,
        reported: Reported,
        now: Instant,
        *,
        subscription_changed: bool,
    ) -> ConsumerMember:
        """Let a member take the next step towards the group's target."""
        group = change.group
        image = group.image
        if not subscription_changed and member.is_reconciled_to(image.target_epoch):
            return member
        member_id = member.member_id
        goal = Goal(
            epoch=image.target_epoch,
            target=image.target(member_id),
            subscribed=group.topic_ids_of(member, self.cluster),
            is_free=lambda topic_id, number: group.is_free_for(member_id, topic_id, number),
        )
        after = reconciled(member, goal, reported, subscription_changed=subscription_changed)
        if after != member:
            change.write(MemberAssignment(group.group_id, member_id, after.to_assignment()))
            self.sessions.expect_revocation(group, after, now)
        return after
