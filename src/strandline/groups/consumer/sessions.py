"""How members of consumer groups are watched, and let go.

Each member has a session, which every heartbeat puts off. A member that must give something up has
its rebalance timeout for it; one of the classic protocol must join, and then sync, within that
time. Who is late is fenced: its partitions go to others, and it has to join again.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from strandline.groups.consumer.changes import Change, Done
from strandline.groups.consumer.cluster_view import ClusterView
from strandline.groups.consumer.downgrade import Downgrades
from strandline.groups.consumer.group import ConsumerGroup
from strandline.groups.consumer.image import departure
from strandline.groups.consumer.member import ConsumerMember, MemberState
from strandline.groups.consumer.subscriptions import Subscriptions
from strandline.groups.consumer.watching import (
    CLASSIC_JOIN,
    CLASSIC_SYNC,
    REBALANCE,
    SESSION,
    forget_member,
)
from strandline.groups.shard import Shard
from strandline.types import Instant


class Sessions:
    """The members of one shard's consumer groups."""

    def __init__(
        self,
        shard: Shard,
        cluster: ClusterView,
        subscriptions: Subscriptions,
        downgrades: Downgrades,
    ) -> None:
        self._shard = shard
        self._cluster = cluster
        self._subscriptions = subscriptions
        self._downgrades = downgrades

    # Watching.

    def keep_alive(self, group: ConsumerGroup, member: ConsumerMember, now: Instant) -> None:
        """A sign of life: the member's session begins anew."""
        classic = member.classic
        timeout_ms = (
            self._cluster.times(group.group_id).session_timeout_ms
            if classic is None
            else classic.session_timeout_ms
        )
        self._expect(SESSION, group, member.member_id, timeout_ms, "its session is over", now)

    def expect_revocation(self, group: ConsumerGroup, member: ConsumerMember, now: Instant) -> None:
        """The member has come further: it must give up what it was asked to, or need not."""
        ids = (group.group_id, member.member_id)
        if member.state is not MemberState.UNREVOKED or member.is_classic:
            self._shard.cancel(REBALANCE, *ids)
            return
        self._shard.schedule(
            REBALANCE,
            *ids,
            now=now,
            delay_ms=member.rebalance_timeout_ms,
            do=partial(self._revocation_over, group, member.member_id, member.epoch),
        )

    def expect_join(self, group: ConsumerGroup, member: ConsumerMember, now: Instant) -> None:
        """A member of the classic protocol has been told to join again."""
        if not self._shard.is_scheduled(CLASSIC_JOIN, group.group_id, member.member_id):
            reason = "it did not join within its rebalance timeout"
            timeout_ms = member.rebalance_timeout_ms
            self._expect(CLASSIC_JOIN, group, member.member_id, timeout_ms, reason, now)

    def joined(self, group: ConsumerGroup, member: ConsumerMember, now: Instant) -> None:
        """A member of the classic protocol has joined, and must sync."""
        self._shard.cancel(CLASSIC_JOIN, group.group_id, member.member_id)
        self.keep_alive(group, member, now)
        reason = "it did not sync within its rebalance timeout"
        timeout_ms = member.rebalance_timeout_ms
        self._expect(CLASSIC_SYNC, group, member.member_id, timeout_ms, reason, now)

    def synced(self, group: ConsumerGroup, member: ConsumerMember, now: Instant) -> None:
        """A member of the classic protocol has its assignment."""
        self._shard.cancel(CLASSIC_SYNC, group.group_id, member.member_id)
        self.keep_alive(group, member, now)

    def watch_all(self, group: ConsumerGroup, now: Instant) -> None:
        """Watch every member of a group that was just loaded, or that is as it was before."""
        for member in group.members.values():
            if not self._shard.is_scheduled(SESSION, group.group_id, member.member_id):
                self.keep_alive(group, member, now)
            if not self._shard.is_scheduled(REBALANCE, group.group_id, member.member_id):
                self.expect_revocation(group, member, now)

    def _expect(
        self,
        kind: str,
        group: ConsumerGroup,
        member_id: str,
        timeout_ms: int,
        reason: str,
        now: Instant,
    ) -> None:
        self._shard.schedule(
            kind,
            group.group_id,
            member_id,
            now=now,
            delay_ms=timeout_ms,
            do=partial(self._over, group, member_id, reason),
        )

    def _over(self, group: ConsumerGroup, member_id: str, reason: str, now: Instant) -> None:
        member = group.members.get(member_id)
        if member is not None:
            self.fence(group, [member], f"{member_id} was fenced: {reason}.", now)

    def _revocation_over(
        self, group: ConsumerGroup, member_id: str, epoch: int, now: Instant
    ) -> None:
        member = group.members.get(member_id)
        if member is not None and member.epoch == epoch:
            reason = f"it did not give up its partitions within {member.rebalance_timeout_ms} ms"
            self.fence(group, [member], f"{member_id} was fenced: {reason}.", now)

    # Letting go.

    def fence(
        self,
        group: ConsumerGroup,
        members: Collection[ConsumerMember],
        reason: str,
        now: Instant,
        done: Done | None = None,
    ) -> None:
        """Let members go; their partitions are free when that is durable.

        If only members of the classic protocol are left, they go on as a classic group.
        """
        change = Change(self._shard, group)
        change.if_refused(lambda at: self.watch_all(group, at))
        if self._downgrades.maybe_downgrade(change, members, now, done):
            return
        for member in members:
            change.write_all(departure(group.group_id, member.member_id))
            forget_member(self._shard, group.group_id, member.member_id)
        self._subscriptions.drop_unused(change, {member.topic_regex for member in members})
        if members:
            self._subscriptions.bump(change, reason)
        change.commit(now, done)

    def commit(self, change: Change, now: Instant, done: Done | None = None) -> None:
        """Append a change. If that is refused, the members that are back are watched again."""
        change.if_refused(lambda at: self.watch_all(change.group, at))
        change.commit(now, done)
