"""What follows on this node from a change of the metadata.

The one place that hands a change to every part that it concerns, in an order that makes sense:
first who is where, then what is gone, then the roles of partitions, then settings, and last those
that may want to write because of it. What each of them does about it is its own affair.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from strandline.cluster.image import ImageDelta
from strandline.cluster.topic_names import (
    CONSUMER_OFFSETS,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
)
from strandline.cluster.znodes import ResourceKind, state_path
from strandline.node.effects import Halt
from strandline.node.group_access import GroupAccess
from strandline.node.parts import NodeParts
from strandline.node.replicas import RoleChange
from strandline.node.sharing.access import ShareAccess
from strandline.node.transaction_access import TransactionAccess
from strandline.types import Instant, TopicPartition

_LOOK_AGAIN_MS: Final = 10_000


class MetadataListener:
    """Carries out what a new metadata image means for this node."""

    def __init__(self, node: NodeParts) -> None:
        self._node = node
        self._has_halted = False

    def start(self, now: Instant) -> None:
        """Take up every partition that the metadata gives this broker."""
        node = self._node
        node.settings.follow(node.metadata.image, node.broker_id)
        for topic in node.metadata.image.topics.values():
            for number in topic.partitions:
                self._take_up(TopicPartition(topic.name, number), now, is_new=False)
        node.timers.schedule(now.monotonic_ms + _LOOK_AGAIN_MS, self._look_again)

    def act(self, now: Instant) -> None:
        """Give up replicas whose disk has failed, and have the cluster know. Once per turn."""
        if self._node.replicas.has_news_of_disks:
            self._look_at_disks(now)

    def _look_at_disks(self, now: Instant) -> None:
        node = self._node
        for change in node.replicas.take_failed():
            self._role_changed(change, now)
        node.membership.report_offline(node.replicas.offline)
        if node.replicas.is_without_directory and not self._has_halted:
            self._has_halted = True
            reasons = " ".join(d.offline_reason or "" for d in node.replicas.logs.directories)
            node.outbox.add(Halt(f"Every log directory is offline. {reasons}"))

    def _look_again(self, now: Instant) -> None:
        """What a full disk has kept from opening may be possible now."""
        node = self._node
        node.timers.schedule(now.monotonic_ms + _LOOK_AGAIN_MS, self._look_again)
        node.replicas.note_failed_logs()
        for partition in node.replicas.delayed:
            self._take_up(partition, now, is_new=False)

    def follow(self, delta: ImageDelta, now: Instant) -> None:
        """The image has moved on by `delta`."""
        node = self._node
        node.membership.follow()
        if delta.brokers_changed:
            node.peers.brokers_changed(node.metadata.image, delta.brokers_changed, now)
            node.fetchers.brokers_changed(now)
        for resource in delta.configs_changed:
            if resource.kind is ResourceKind.BROKER:
                node.settings.follow(node.metadata.image, node.broker_id)
                break
        self._give_up_deleted(delta, now)
        for partition in delta.partitions_changed:
            # Of one whose state could not be read there may be a log from a former life.
            is_new = state_path(partition) not in delta.unreadable_changed
            self._take_up(partition, now, is_new=is_new)
        if delta.brokers_changed:
            for change in node.replicas.brokers_changed(delta.brokers_changed, now):
                self._role_changed(change, now)
        self._reconfigure(delta, now)
        if node.groups.is_used:
            self._tell_groups(delta)
        node.in_sync_changes.follow(delta)
        node.controller_loop.follow(delta, now)

    def _give_up_deleted(self, delta: ImageDelta, now: Instant) -> None:
        node = self._node
        for topic in delta.topics_deleted:
            for replica in node.replicas.remove(topic, now):
                node.fetchers.forget(replica)
                if topic.name == SHARE_GROUP_STATE and node.sharing.is_used:
                    node.sharing.host.lost_leadership(replica, now)
                node.sharing.role_changed(replica.topic_partition, now)
            # Whether there is a replica here or not: this broker may have led the partition once.
            for number in topic.partitions:
                if topic.name == CONSUMER_OFFSETS and node.groups.is_used:
                    node.groups.host.deleted(number, now)
                if topic.name == TRANSACTION_STATE and node.transactions.is_used:
                    node.transactions.host.deleted(number, now)
        if delta.topics_deleted:
            node.sharing.topics_deleted([topic.topic_id for topic in delta.topics_deleted], now)
        if delta.topics_deleted and node.groups.is_used:
            gone = [(topic.name, topic.topic_id) for topic in delta.topics_deleted]
            node.groups.host.topics_deleted(gone, now)

    def _tell_groups(self, delta: ImageDelta) -> None:
        """Groups of the consumer protocol follow topics, and the racks of their replicas."""
        node = self._node
        image = node.metadata.image
        gone = {topic.name for topic in delta.topics_deleted}
        changed = gone | {partition.topic for partition in delta.partitions_changed}
        if any(broker.rack for broker in image.brokers.values()) and delta.brokers_changed:
            changed |= image.topics.keys()
        if changed:
            are_new = bool(delta.topics_created)
            node.groups.host.topics_changed(changed, are_new=are_new)

    def _take_up(self, partition: TopicPartition, now: Instant, *, is_new: bool) -> None:
        node = self._node
        image = node.metadata.image
        state = image.partition(partition)
        if state is None:
            return
        change = node.replicas.apply(
            partition,
            image.topics[partition.topic],
            state,
            node.settings.of_topic(partition.topic, image),
            now,
            is_new=is_new,
        )
        if change is not None:
            self._role_changed(change, now)

    def _role_changed(self, change: RoleChange, now: Instant) -> None:
        """A replica leads, follows, or is gone; whichever it is, under a new leadership."""
        node, replica = self._node, change.replica
        if change.is_leading or change.is_gone or replica.leader_id < 0:
            node.fetchers.forget(replica)
        else:
            node.fetchers.follow(replica, replica.leader_id, now)
        node.sharing.role_changed(replica.topic_partition, now)
        topic = replica.topic_partition.topic
        coordinators: GroupAccess | TransactionAccess | ShareAccess
        if topic == CONSUMER_OFFSETS:
            coordinators = node.groups
        elif topic == TRANSACTION_STATE:
            coordinators = node.transactions
        elif topic == SHARE_GROUP_STATE:
            coordinators = node.sharing
        else:
            return
        if change.is_leading:
            coordinators.host.became_leader(replica, now)
        elif change.was_leading:
            coordinators.host.lost_leadership(replica, now)

    def _reconfigure(self, delta: ImageDelta, now: Instant) -> None:
        node = self._node
        image = node.metadata.image
        resources = delta.configs_changed
        names: Iterable[str] = [r.name for r in resources if r.kind is ResourceKind.TOPIC]
        if any(resource.kind is ResourceKind.BROKER for resource in resources):
            names = image.topics
        for name in names:
            topic = image.topics.get(name)
            if topic is None:
                continue
            config = node.settings.of_topic(name, image)
            for number in topic.partitions:
                node.replicas.reconfigure(TopicPartition(name, number), config, now)
