"""How much may be lost: the line between what the cluster promises to survive and what it does not.

With acks=all and `min.insync.replicas` m, every acknowledged record is on at least m replicas. So
up to m - 1 of those that count (members of the in-sync set and of the eligible replicas) may lose
what they wrote: by a power cut, an emptied disk, a failed fsync. A replica that has lost something
counts as lost until it is in sync again *in a later life*. Killing, pausing and cutting off lose
nothing and are never counted. But the cluster cannot tell a killed replica from one that lost
something: if all have crashed it elects one of them, and if that is the wrong one the line is
crossed all the same.

In the profile `safe` whatever would cross the line is not done; in `beyond` it is done, and
remembered in `is_exceeded`.
"""

from __future__ import annotations

from collections.abc import Iterator

from strandline.cluster.image import ClusterImage
from strandline.cluster.image_parts import PartitionImage
from strandline.cluster.znodes import CLUSTER_DEFAULT, ConfigResource, ResourceKind
from strandline.sim.machine import Machine
from strandline.sim.world import World
from strandline.types import BrokerId, TopicPartition

_MIN_IN_SYNC = "min.insync.replicas"
_FOREVER = -2
"""In place of the broker epoch of a loss: no restart makes it good, only a new disk does."""


class Budget:
    """Counts losses of one run."""

    def __init__(self, world: World) -> None:
        self.is_exceeded = False
        """Whether acknowledged records may be gone."""
        self._world = world
        self._allows_loss = world.options.allows_loss
        self._default_min = int(world.options.settings.get(_MIN_IN_SYNC, "1"))
        self._lost: dict[TopicPartition, dict[BrokerId, int]] = {}
        """Replicas that have lost something, and the broker epoch of the life that ended then."""
        self._armed: set[tuple[BrokerId, str]] = set()
        """Those who will lose something at a moment that is not known yet, and how."""
        self._configs: object = None
        self._min_in_sync: dict[str, int] = {}
        """The smallest that a topic ever had: records of that time are on no more replicas."""

    def refusal(self, machine: Machine) -> str | None:
        """Why this broker must not lose anything now; None if it may."""
        if self._allows_loss:
            return None
        for partition, state in self._counting(machine.broker_id):
            lost = self._not_made_good(partition, state) | self._armed_of(state)
            lost.discard(machine.broker_id)
            allowed = self._least_in_sync(partition.topic) - 1
            if len(lost) + 1 > allowed:
                have = ", ".join(map(str, sorted(lost))) or "nobody"
                return f"beyond the budget of {partition}: {have} lost already, {allowed} may"
        return None

    def may_lose(self, machine: Machine) -> bool:
        """Whether this broker may lose what it wrote."""
        return self.refusal(machine) is None

    def arm(self, machine: Machine, how: str) -> None:
        """The broker will lose something, or nothing, at some moment."""
        self._armed.add((machine.broker_id, how))

    def disarm(self, machine: Machine, how: str) -> None:
        """It will not any more."""
        self._armed.discard((machine.broker_id, how))

    def ended(self, machine: Machine, how: str, *, lossy: bool) -> None:
        """A process is over."""
        self.disarm(machine, how)
        if lossy:
            self.lose(machine)

    def lose(self, machine: Machine, *, until_new_disk: bool = False) -> None:
        """The broker has lost something that it had written."""
        image = self._world.image
        registered = image.brokers.get(machine.broker_id)
        epoch = -1 if registered is None else int(registered.epoch)
        for partition, state in list(self._counting(machine.broker_id)):
            lost = self._lost.setdefault(partition, {})
            lost[machine.broker_id] = _FOREVER if until_new_disk else epoch
            known = self._not_made_good(partition, state)
            if len(known) > self._least_in_sync(partition.topic) - 1:
                self.is_exceeded = True

    def new_disk(self, machine: Machine) -> None:
        """What was damaged for ever has been replaced."""
        for lost in self._lost.values():
            if lost.get(machine.broker_id) == _FOREVER:
                lost[machine.broker_id] = -1

    def metadata_changed(self, image: ClusterImage) -> None:
        """Follow who is made good, and the smallest `min.insync.replicas` of each topic."""
        for partition, lost in self._lost.items():
            if lost:
                self._follow(partition, image)
        if self._allows_loss and not self.is_exceeded:
            self.is_exceeded = any(
                state.is_recovering
                for topic in image.topics.values()
                for state in topic.partitions.values()
            )  # after an unclean election
        if image.configs is self._configs and image.topics.keys() <= self._min_in_sync.keys():
            return
        self._configs = image.configs
        default = image.overrides(ConfigResource(ResourceKind.BROKER, CLUSTER_DEFAULT))
        least = int(default.get(_MIN_IN_SYNC, self._default_min))
        self._default_min = min(self._default_min, least)
        for name in image.topics:
            stored = image.overrides(ConfigResource(ResourceKind.TOPIC, name))
            self._least_in_sync(name, int(stored.get(_MIN_IN_SYNC, least)))

    def _follow(self, partition: TopicPartition, image: ClusterImage) -> None:
        state = image.partition(partition)
        if state is None:
            self._lost[partition].clear()
            return
        before = set(self._lost[partition])
        good = before - self._not_made_good(partition, state)
        if state.leader in good:
            # Not let in by a leader, but elected: every member had crashed, and the controller
            # cannot tell who lost something and who was only killed (see `partition_repair`).
            self.is_exceeded = True

    def _least_in_sync(self, topic: str, now: int | None = None) -> int:
        known = self._min_in_sync.get(topic, self._default_min if now is None else now)
        least = known if now is None else min(known, now)
        self._min_in_sync[topic] = least
        return least

    def _counting(self, broker_id: BrokerId) -> Iterator[tuple[TopicPartition, PartitionImage]]:
        for topic in self._world.image.topics.values():
            for number, state in topic.partitions.items():
                if broker_id in state.in_sync_replicas or broker_id in state.elr:
                    yield TopicPartition(topic.name, number), state

    def _armed_of(self, state: PartitionImage) -> set[BrokerId]:
        return {broker_id for broker_id, _ in self._armed if broker_id in state.replicas}

    def _not_made_good(self, partition: TopicPartition, state: PartitionImage) -> set[BrokerId]:
        lost = self._lost.get(partition)
        if not lost:
            return set()
        brokers = self._world.image.brokers
        for broker_id, epoch in list(lost.items()):
            now = brokers.get(broker_id)
            if broker_id not in state.replicas or (
                epoch != _FOREVER
                and now is not None
                and now.epoch != epoch
                and broker_id in state.in_sync_replicas
                and state.in_sync_epochs.get(broker_id) == now.epoch
            ):
                del lost[broker_id]
        return set(lost)
