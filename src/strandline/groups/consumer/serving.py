"""What works on the consumer groups of a shard, put together."""

from __future__ import annotations

from collections.abc import Set

from strandline.errors import InvariantViolated
from strandline.groups.consumer.classic_members import ClassicMembers
from strandline.groups.consumer.downgrade import Downgrades
from strandline.groups.consumer.heartbeats import Heartbeats
from strandline.groups.consumer.metadata_hash import TopicHashes
from strandline.groups.consumer.opening import Opening
from strandline.groups.consumer.sessions import Sessions
from strandline.groups.consumer.steps import Steps
from strandline.groups.consumer.subscriptions import Subscriptions
from strandline.groups.consumer.targets import Targets
from strandline.groups.consumer.upgrade import Upgrades
from strandline.groups.consumer.watching import SESSION
from strandline.groups.rebalance import Rebalance
from strandline.groups.shard import Shard
from strandline.types import Instant


class ConsumerSide:
    """One shard's consumer groups, ready to be asked."""

    def __init__(self, shard: Shard, rebalance: Rebalance, hashes: TopicHashes) -> None:
        self._shard = shard
        cluster = shard.cluster
        downgrades = Downgrades(shard, cluster, rebalance)
        subscriptions = Subscriptions(shard, cluster, hashes)
        self._sessions = Sessions(shard, cluster, subscriptions, downgrades)
        self.targets = Targets(cluster, shard.settings.consumer.assignors)
        steps = Steps(shard, cluster, subscriptions, self.targets, self._sessions)
        self.opening = Opening(shard, Upgrades(shard, cluster, hashes, rebalance))
        self.heartbeats = Heartbeats(shard, steps, self.opening)
        self.classic_members = ClassicMembers(shard, steps, downgrades)

    def start(self, now: Instant) -> None:
        """The groups are loaded: sessions begin anew."""
        for group in self._shard.consumer_groups.values():
            self._sessions.watch_all(group, now)

    def topics_changed(self, names: Set[str], *, are_new: bool) -> None:
        """These topics are there now, are other than they were, or are gone."""
        for group in self._shard.consumer_groups.values():
            if group.patterns:
                group.patterns_are_stale |= are_new
            if group.reads_any(names):
                group.refreshed_epoch = None

    def check(self) -> None:
        """Verify the invariants of all groups."""
        for group_id, group in self._shard.consumer_groups.items():
            group.check()
            for member_id in group.members:
                if not self._shard.is_scheduled(SESSION, group_id, member_id):
                    raise InvariantViolated(f"The member {member_id} has no session timer.")
