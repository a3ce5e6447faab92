"""How much may be lost: the line between what the cluster promises to survive and what it does not.

With acks=all and `min.insync.replicas` m, every acknowledged record is on at least m replicas. So
up to m - 1 of those that count (the in-sync set and the eligible replicas) may lose what they
wrote: by a power cut, an emptied disk, a failed fsync. Pausing and cutting off lose nothing.

Killing loses nothing either, but the cluster cannot know that: a broker that comes back after a
kill looks like one that lost its page cache (KIP-966). Once all of those that count, and they may
be no more than m, have come back so, the controller must elect one of them. Hence the rule: as long
as one of them really lost something, no more than m - 1 may have crashed in any way and not been
*made good*, that is, be back in the in-sync set in a later life. As long as none lost anything,
kills are unlimited.

A replica also counts while its leader may make it a member: it has all that is committed, and the
proposal that names it may be under way when it crashes, or be made upon its last fetch. The
controller accepts that until the session of the crashed broker has ended. A plan whose header has
`candidates: may-crash` asks for more than is promised: there only members count.

Who lowers the minimum promises less from then on, also of what is lost already: a follower may be
forgotten as complete that was so under the greater number. So that is not done, either, while more
are not made good than the smaller number allows.

In the profile `beyond` whatever would cross the line is done, and remembered in `is_exceeded`; in
the others it is not done.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from strandline.cluster.image import ClusterImage
from strandline.cluster.image_parts import PartitionImage
from strandline.cluster.znodes import CLUSTER_DEFAULT, ConfigResource, ResourceKind
from strandline.sim.clients.admin_topics import RESET_WORD
from strandline.sim.machine import Machine
from strandline.sim.observer import Ending
from strandline.sim.world import World
from strandline.types import BrokerId, TopicPartition

MIN_IN_SYNC = "min.insync.replicas"
_UNREGISTERED = -1


@dataclass(slots=True)
class _Crash:
    """What became of one replica."""

    epoch: int
    """The broker epoch of the life that ended."""
    is_lossy: bool
    needs_new_disk: bool = False
    """Damage that no restart makes good."""


class Budget:
    """Counts crashes of one run."""

    def __init__(self, world: World) -> None:
        self.is_exceeded = False
        """Whether acknowledged records may be gone."""
        self._world = world
        self._allows_loss = world.options.allows_loss
        self._counts_candidates = world.options.spares_candidates
        brokers = range(1, world.options.brokers + 1)
        self._least_of_files = min(map(world.options.minimum, brokers))
        self._default_min = self._least_of_files
        self._crashed: dict[TopicPartition, dict[BrokerId, _Crash]] = {}
        """Replicas that have crashed and are not made good."""
        self._dead: dict[BrokerId, _Crash] = {}
        """Brokers that have crashed and whose session has not ended yet."""
        self._armed: dict[tuple[BrokerId, str], bool] = {}
        """Those who will crash at a moment that is not known yet, how, and whether lossily."""
        self._configs: object = None
        self._min_in_sync: dict[str, int] = {}
        """The smallest that a topic ever had: records of that time are on no more replicas."""

    # -- before ------------------------------------------------------------------------------

    def refusal(self, machine: Machine, *, lossy: bool) -> str | None:
        """Why this broker must not crash now; None if it may."""
        if self._allows_loss:
            return None
        me = machine.broker_id
        for partition, state in self._counting(me):
            crashed, lost = self._standing(partition, state)
            others = crashed - {me}
            if not (lost or lossy):
                continue
            allowed = self._may_lose(partition, state)
            if len(others) + 1 > allowed:
                have = ", ".join(map(str, sorted(others))) or "none"
                return f"beyond the budget of {partition}: {have} crashed already, {allowed} may"
        return None

    def refusal_to_set(self, topic: str | None, value: str) -> str | None:
        """Why an administrator must not set `min.insync.replicas` so now; None if it may be. Of the
        topic, or of all brokers; `value` is `-` for what is set without it."""
        if self._allows_loss:
            return None
        for name, least in self._minimums_with(topic, value).items():
            for number, state in self._world.image.topics[name].partitions.items():
                at = TopicPartition(name, number)
                crashed, lost = self._standing(at, state)
                allowed = min(least, len(state.replicas)) - 1
                if lost and len(crashed) > allowed:
                    have = ", ".join(map(str, sorted(crashed)))
                    return f"beyond the budget of {at}: {have} crashed already, {allowed} may then"
        return None

    def will_set(self, topic: str | None, value: str) -> None:
        """An administrator asks for that. It is not known when it takes effect."""
        for name, least in self._minimums_with(topic, value).items():
            self._note_minimum(name, least)
            for number, state in self._world.image.topics[name].partitions.items():
                at = TopicPartition(name, number)
                if at in self._crashed:
                    self._judge(at, state)

    def may_lose(self, machine: Machine) -> bool:
        """Whether this broker may lose what it wrote."""
        return self.refusal(machine, lossy=True) is None

    def may_crash(self, machine: Machine) -> bool:
        """Whether this broker may be killed."""
        return self.refusal(machine, lossy=False) is None

    def arm(self, machine: Machine, how: str, *, lossy: bool) -> None:
        """The broker will crash at some moment."""
        self._armed[machine.broker_id, how] = lossy

    def disarm(self, machine: Machine, how: str) -> None:
        """It will not any more."""
        self._armed.pop((machine.broker_id, how), None)

    # -- afterwards --------------------------------------------------------------------------

    def ended(self, machine: Machine, how: Ending, *, lossy: bool) -> None:
        """A process is over."""
        self.disarm(machine, how)
        if how != "stop" or lossy:
            epoch = self._epoch_of(machine.broker_id)
            if epoch != _UNREGISTERED and self._counts_candidates:
                self._dead[machine.broker_id] = _Crash(epoch, lossy)
            self._record(machine, lossy=lossy)

    def started(self, machine: Machine) -> None:
        """A process is up; perhaps the end before was not as clean as it was meant to be."""
        if not machine.last_start_was_clean:
            self._record(machine, lossy=False)

    def damage(self, machine: Machine) -> None:
        """The broker's disk was damaged in a way that only a new disk makes good."""
        self._record(machine, lossy=True, needs_new_disk=True)

    def new_disk(self, machine: Machine) -> None:
        """What was damaged has been replaced."""
        for crashed in self._crashed.values():
            crash = crashed.get(machine.broker_id)
            if crash is not None:
                crash.needs_new_disk = False

    def metadata_changed(self, image: ClusterImage) -> None:
        """Follow who is made good, and the smallest `min.insync.replicas` of each topic."""
        if self._dead:
            self._note_dead_members(image)
        for partition, crashed in self._crashed.items():
            if crashed:
                self._forget_made_good(partition, image.partition(partition))
        if self._allows_loss and not self.is_exceeded:
            self.is_exceeded = any(
                state.is_recovering
                for topic in image.topics.values()
                for state in topic.partitions.values()
            )  # after an unclean election
        if image.configs is self._configs and image.topics.keys() <= self._min_in_sync.keys():
            return
        self._configs = image.configs
        self._settings_changed(image)

    # -- parts -------------------------------------------------------------------------------

    def _record(self, machine: Machine, *, lossy: bool, needs_new_disk: bool = False) -> None:
        me = machine.broker_id
        epoch = self._epoch_of(me)
        for partition, state in list(self._counting(me)):
            crashed = self._crashed.setdefault(partition, {})
            before = crashed.get(me)
            if before is not None:
                lossy_now = lossy or before.is_lossy
                needs_new = needs_new_disk or before.needs_new_disk
                crashed[me] = _Crash(max(epoch, before.epoch), lossy_now, needs_new)
            else:
                crashed[me] = _Crash(epoch, lossy, needs_new_disk)
            self._judge(partition, state)

    def _epoch_of(self, broker_id: BrokerId) -> int:
        registered = self._world.image.brokers.get(broker_id)
        return _UNREGISTERED if registered is None else int(registered.epoch)

    def _judge(self, partition: TopicPartition, state: PartitionImage) -> None:
        crashes = self._crashed[partition].values()
        allowed = self._may_lose(partition, state)
        if len(crashes) > allowed and any(crash.is_lossy for crash in crashes):
            self.is_exceeded = True

    def _note_dead_members(self, image: ClusterImage) -> None:
        """Record the crashes of those who became members after them."""
        for broker_id, crash in list(self._dead.items()):
            now = image.brokers.get(broker_id)
            for topic in image.topics.values():
                for number, state in topic.partitions.items():
                    if state.in_sync_epochs.get(broker_id) != crash.epoch:
                        continue
                    at = TopicPartition(topic.name, number)
                    crashed = self._crashed.setdefault(at, {})
                    if broker_id not in crashed:
                        crashed[broker_id] = replace(crash)
                        self._judge(at, state)
            if now is None or int(now.epoch) != crash.epoch:
                del self._dead[broker_id]

    def _standing(
        self, partition: TopicPartition, state: PartitionImage
    ) -> tuple[set[BrokerId], set[BrokerId]]:
        """Who has crashed, or will, and is not made good; and who of them lost something."""
        dead = {each: crash for each, crash in self._dead.items() if each in state.replicas}
        crashed = dead | self._crashed.get(partition, {})
        lost = {broker_id for broker_id, crash in crashed.items() if crash.is_lossy}
        armed = {
            broker_id: lossy
            for (broker_id, _), lossy in self._armed.items()
            if broker_id in state.replicas
        }
        return crashed.keys() | armed.keys(), lost | {
            each for each, lossy in armed.items() if lossy
        }

    def _forget_made_good(self, partition: TopicPartition, state: PartitionImage | None) -> None:
        crashed = self._crashed[partition]
        brokers = self._world.image.brokers
        for broker_id, crash in list(crashed.items()):
            now = brokers.get(broker_id)
            if (
                state is None
                or broker_id not in state.replicas
                or (
                    not crash.needs_new_disk
                    and now is not None
                    and now.epoch != crash.epoch
                    and broker_id in state.in_sync_replicas
                    and state.in_sync_epochs.get(broker_id) == now.epoch
                )
            ):
                del crashed[broker_id]

    def _counting(self, broker_id: BrokerId) -> Iterator[tuple[TopicPartition, PartitionImage]]:
        """The partitions in which this broker counts."""
        for topic in self._world.image.topics.values():
            for number, state in topic.partitions.items():
                at = TopicPartition(topic.name, number)
                known = (*state.in_sync_replicas, *state.elr, *state.last_known_elr)
                if broker_id in known or self._may_join(broker_id, at, state):
                    yield at, state

    def _may_join(self, broker_id: BrokerId, at: TopicPartition, state: PartitionImage) -> bool:
        """Whether the leader may make this broker a member at any moment."""
        is_candidate = self._counts_candidates and broker_id in state.replicas
        if not is_candidate or not state.has_leader:
            return False
        follower = self._world.replica(broker_id, at)
        leader = self._world.replica(state.leader, at)
        if follower is None or leader is None:
            return False
        return follower.log.log_end_offset >= leader.log.high_watermark

    def _settings_changed(self, image: ClusterImage) -> None:
        least = self._default(image)
        self._default_min = min(self._default_min, least)
        for name in image.topics:
            self._note_minimum(name, int(_stored(image, ResourceKind.TOPIC, name) or least))

    def _note_minimum(self, topic: str, least: int) -> None:
        self._min_in_sync[topic] = min(self._min_in_sync.get(topic, least), least)

    def _default(self, image: ClusterImage) -> int:
        """That of topics which have none of their own."""
        stored = _stored(image, ResourceKind.BROKER, CLUSTER_DEFAULT)
        return int(stored or self._least_of_files)

    def _minimums_with(self, topic: str | None, value: str) -> dict[str, int]:
        """The `min.insync.replicas` of the topics that have another one, or may, by such a setting
        of one topic, or of all brokers."""
        image = self._world.image
        if value != RESET_WORD:
            least = int(value)
        else:
            least = self._least_of_files if topic is None else self._default(image)
        if topic is not None:
            return {topic: least} if topic in image.topics else {}
        return {
            name: least for name in image.topics if _stored(image, ResourceKind.TOPIC, name) is None
        }

    def _may_lose(self, partition: TopicPartition, state: PartitionImage) -> int:
        """How many of those that count may be without what they wrote: one is always to have it,
        also where there are fewer replicas than the minimum."""
        least = self._min_in_sync.get(partition.topic, self._default_min)
        return min(least, len(state.replicas)) - 1


def _stored(image: ClusterImage, kind: ResourceKind, name: str) -> str | None:
    """The minimum that was set for a topic, or for all brokers."""
    return image.overrides(ConfigResource(kind, name)).get(MIN_IN_SYNC)
