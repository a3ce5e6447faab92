"""Operations that make and remove the nodes of topics, partitions and settings.

Shared by the decisions that do so for different reasons. A topic's empty inner nodes are made and
removed here together with the nodes that mean something, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping

from strandline.cluster.assignment import Replicas
from strandline.cluster.image import ClusterImage, TopicImage
from strandline.cluster.store import Create, Delete, Operation, SetData
from strandline.cluster.znodes import (
    ConfigNode,
    ConfigResource,
    PartitionStateNode,
    ResourceKind,
    TopicNode,
    partition_path,
    partitions_path,
    state_path,
)
from strandline.types import LeaderEpoch, TopicPartition

FIRST_LEADER_EPOCH = LeaderEpoch(0)


def topic_creation(node: TopicNode, states: Mapping[int, PartitionStateNode]) -> list[Operation]:
    """Make a topic with all its partitions."""
    operations: list[Operation] = [
        Create(node.path, node.encode()),
        Create(partitions_path(node.name)),
    ]
    for number, state in sorted(states.items()):
        operations += partition_creation(TopicPartition(node.name, number), state)
    return operations


def partition_creation(partition: TopicPartition, state: PartitionStateNode) -> list[Operation]:
    """Make the nodes of one partition below an existing topic."""
    return [
        Create(partition_path(partition)),
        Create(state_path(partition), state.encode()),
    ]


def topic_removal(image: ClusterImage, topic: TopicImage) -> list[Operation]:
    """Remove a topic, its partitions and its settings.

    The version of the assignment guards against partitions added meanwhile. The states may change
    until the last moment: whoever leads, the topic goes.
    """
    operations: list[Operation] = []
    for number in sorted(topic.states):
        partition = TopicPartition(topic.name, number)
        operations += [Delete(state_path(partition)), Delete(partition_path(partition))]
    operations += [Delete(partitions_path(topic.name)), Delete(topic.node.path, topic.version)]
    operations += config_write(image, ConfigResource(ResourceKind.TOPIC, topic.name), {})
    return operations


def config_write(
    image: ClusterImage, resource: ConfigResource, overrides: Mapping[str, str]
) -> list[Operation]:
    """Make these the overrides of the resource; a resource without overrides has no node."""
    stored = image.configs.get(resource)
    if stored is None:
        return [Create(resource.path, ConfigNode(overrides).encode())] if overrides else []
    if not overrides:
        return [Delete(resource.path, stored.version)]
    node = ConfigNode(overrides, stored.value.extra)
    return [SetData(resource.path, node.encode(), stored.version)]


def first_state(
    image: ClusterImage, replicas: Replicas, *, controller_epoch: int
) -> PartitionStateNode | None:
    """The state of a new partition: live replicas are in sync and the first of them leads.

    None if no replica is alive.
    """
    alive = tuple(broker for broker in replicas if image.is_alive(broker))
    if not alive:
        return None
    return PartitionStateNode(
        leader=alive[0],
        leader_epoch=FIRST_LEADER_EPOCH,
        in_sync_replicas=alive,
        controller_epoch=controller_epoch,
    )
