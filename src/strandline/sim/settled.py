"""Whether a cluster has come to rest, and what it looks like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from strandline.types import BrokerId, TopicPartition

if TYPE_CHECKING:
    from strandline.cluster.image import ClusterImage
    from strandline.cluster.image_parts import PartitionImage
    from strandline.node.replica import Replica
    from strandline.sim.machine import Machine
    from strandline.sim.schedule import Schedule


class Cluster(Protocol):
    """What this file wants of a world (`world.World`)."""

    schedule: Schedule
    machines: dict[BrokerId, Machine]

    @property
    def image(self) -> ClusterImage:
        """The metadata as the store has it."""

    def replica(self, broker_id: int, partition: TopicPartition) -> Replica | None:
        """A broker's replica of a partition, if it is up and has one."""


def is_settled(world: Cluster) -> bool:
    """Whether all running brokers are registered and know all that the store knows, and every
    partition is led by a live broker and in sync with all its live replicas."""
    image = world.image
    running = {broker_id for broker_id, each in world.machines.items() if each.is_running}
    if image.brokers.keys() != running or image.controller not in running:
        return False
    if not all(_is_informed(world.machines[broker_id]) for broker_id in running):
        return False
    present = {(broker_id, broker.epoch) for broker_id, broker in image.brokers.items()}
    return all(
        state.leader in running
        and {*state.replicas} & running == {*state.in_sync_replicas}
        and state.in_sync_epochs.items() <= present
        for topic in image.topics.values()
        for state in topic.partitions.values()
    )


def _is_informed(machine: Machine) -> bool:
    store = machine.metadata
    return machine.is_up and not machine.is_paused and store is not None and store.is_up_to_date


def are_logs_level(world: Cluster, *, committed: bool = False) -> bool:
    """Whether all replicas of each partition have the same log end and high watermark.

    With `committed`, nothing may wait between the two either.
    """
    return all(
        _is_level(world, TopicPartition(topic.name, number), state.replicas, committed)
        for topic in world.image.topics.values()
        for number, state in topic.partitions.items()
    )


def are_deletions_known(world: Cluster) -> bool:
    """Whether each leader has heard that its log starts where it does on all replicas. Until then
    a DeleteRecords waits."""
    for machine in world.machines.values():
        for replica in machine.node.replicas if machine.is_up else ():
            leading = replica.leading
            if leading is not None and leading.low_watermark < replica.log.log_start_offset:
                return False
    return True


def _is_level(
    world: Cluster, at: TopicPartition, brokers: Sequence[BrokerId], committed: bool
) -> bool:
    logs = [world.replica(each, at) for each in brokers]
    ends = {
        None if each is None else (each.log.log_end_offset, each.log.high_watermark)
        for each in logs
    }
    if len(ends) != 1 or None in ends:
        return False
    return not committed or all(end == mark for end, mark in filter(None, ends))


def log_bytes(world: Cluster, broker_id: int, partition: TopicPartition) -> bytes:
    """All bytes of a partition's log on one broker that is up."""
    replica = world.replica(broker_id, partition)
    if replica is None:
        return b""
    with world.machines[BrokerId(broker_id)].disk.unobserved():
        return b"".join(each.log.read_at(0, each.log.size) for each in replica.log.segments.all)


def are_logs_equal(world: Cluster, partition: TopicPartition) -> bool:
    """Whether all replicas that are up hold the same bytes and offsets (I-21, I-49)."""
    state = world.image.partition(partition)
    if state is None:
        return True
    found = set()
    for broker_id in state.replicas:
        replica = world.replica(broker_id, partition)
        if replica is not None:
            log = replica.log
            offsets = (log.log_start_offset, log.high_watermark, log.log_end_offset)
            found.add((offsets, log_bytes(world, broker_id, partition)))
    return len(found) == 1


def table(world: Cluster) -> str:
    """The leader of each partition and the offsets of its replicas, a line per replica."""
    image = world.image
    lines = [f"at {world.schedule.now_ms} ms, controller {image.controller}"]
    lines += [f"  {_machine_line(world, machine)}" for machine in world.machines.values()]
    for topic in image.topics.values():
        for number, state in topic.partitions.items():
            lines.append(f"  {topic.name}-{number}: {_state_line(state)}")
            for broker_id in state.replicas:
                lines.append(f"    {_replica_line(world, broker_id, topic.name, number)}")
    return "\n".join(lines)


def _machine_line(world: Cluster, machine: Machine) -> str:
    if not machine.is_running:
        how = "down" if machine.is_powered else "without power"
    elif not machine.is_up:
        how = "starts"
    else:
        how = "is paused" if machine.is_paused else "is up"
    registered = world.image.brokers.get(machine.broker_id)
    epoch = "not registered" if registered is None else f"registered in epoch {registered.epoch}"
    return f"{machine.broker_id} {how} in life {machine.life}, {epoch}"


def _state_line(state: PartitionImage) -> str:
    return (
        f"leader {state.leader} in epoch {state.leader_epoch}.{state.partition_epoch}, "
        f"replicas {list(state.replicas)}, in sync {list(state.in_sync_replicas)}, "
        f"eligible {list(state.elr)}"
    )


def _replica_line(world: Cluster, broker_id: BrokerId, topic: str, number: int) -> str:
    replica = world.replica(broker_id, TopicPartition(topic, number))
    if replica is None:
        return f"{broker_id}: nothing"
    log = replica.log
    role = "leads" if replica.is_leading else f"follows {replica.leader_id}"
    line = (
        f"{broker_id}: {role} in epoch {replica.leader_epoch}, log {log.log_start_offset} to "
        f"{log.log_end_offset}, high watermark {log.high_watermark}, "
        f"epochs {[tuple(entry) for entry in log.leader_epochs.entries]}"
    )
    leader = replica.leader
    if leader is not None:
        known = {each: at.log_end_offset for each, at in sorted(leader.progress.items())}
        line += f", knows {known}"
    return line
