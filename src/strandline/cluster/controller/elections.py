"""Who leads a partition when a broker starts.

A broker that starts has failed or stopped before, whether or not anybody saw it: a partition that
it led has had no leader since, and gets one under a new leader epoch, so that producers, consumers
and followers notice the interruption. Partitions that live brokers lead are left alone; there the
broker comes back as a follower and joins the in-sync set by fetching.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace

from strandline.cluster.controller.decision import Decision, controller_epoch, fenced
from strandline.cluster.image import ClusterImage, PartitionImage
from strandline.cluster.store import Operation, SetData
from strandline.cluster.znodes import state_path
from strandline.types import BrokerId, LeaderEpoch, TopicPartition


def elect_on_start(image: ClusterImage, broker_id: BrokerId) -> Decision[TopicPartition]:
    """Elect leaders for the partitions of a broker that has just registered.

    The results are the partitions that get a leader. A partition none of whose in-sync replicas is
    alive keeps waiting for one: an unclean election loses data and is never decided here.
    """
    alive = image.brokers.keys() | {broker_id}
    epoch = controller_epoch(image)
    elected: list[TopicPartition] = []
    operations: list[Operation] = []
    for name, topic in sorted(image.topics.items()):
        for number, state in sorted(topic.states.items()):
            partition = topic.partitions.get(number)
            if partition is None or broker_id not in partition.replicas:
                continue
            if partition.leader != broker_id and partition.leader in alive:
                continue
            leader = offline_leader(partition, alive)
            if leader is None:
                continue
            in_sync = tuple(broker for broker in partition.in_sync_replicas if broker in alive)
            node = replace(
                state.value,
                leader=leader,
                leader_epoch=LeaderEpoch(state.value.leader_epoch + 1),
                in_sync_replicas=in_sync,
                controller_epoch=epoch,
            )
            key = TopicPartition(name, number)
            elected.append(key)
            operations.append(SetData(state_path(key), node.encode(), state.version))
    return Decision(tuple(elected), fenced(image, operations))


def offline_leader(partition: PartitionImage, alive: Container[BrokerId]) -> BrokerId | None:
    """The first assigned replica that is alive and in sync, or None."""
    return _first(partition.replicas, alive, partition.in_sync_replicas)


def _first(
    candidates: Sequence[BrokerId], alive: Container[BrokerId], in_sync: Container[BrokerId]
) -> BrokerId | None:
    return next((b for b in candidates if b in alive and b in in_sync), None)
