"""Operations that make and remove the nodes of topics, partitions and settings.

Shared by the decisions that do so for different reasons. A topic's empty inner nodes are made and
removed here together with the nodes that mean something, and nowhere else.

A multi has a limited size: ZooKeeper takes a megabyte. So of a huge topic only some partitions get
their state with the assignment; the reconciliation makes the others, and it also removes a huge
topic step by step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from strandline.cluster.assignment import Replicas
from strandline.cluster.image import ClusterImage, TopicImage
from strandline.cluster.store import Check, Create, Delete, Operation, SetData
from strandline.cluster.znodes import (
    DELETIONS,
    ConfigNode,
    ConfigResource,
    PartitionStateNode,
    ResourceKind,
    TopicNode,
    deletion_path,
    partition_path,
    partitions_path,
    state_path,
)
from strandline.types import LeaderEpoch, TopicPartition

FIRST_LEADER_EPOCH: Final = LeaderEpoch(0)
STATES_PER_MULTI: Final = 50
"""Partition states that one multi makes: brokers make the logs of all of them before they
serve a client again."""
ASSIGNED_REPLICA_BYTES: Final = 12
"""About how long a replica in a topic's assignment is, with its share of the partition's number."""
REMOVALS_PER_MULTI: Final = 1000
"""Partition states that one multi removes when a request asks for it."""


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


def missing_partition_creation(
    topic: TopicImage, states: Mapping[int, PartitionStateNode]
) -> list[Operation]:
    """Make the states of partitions that are assigned, and whatever is missing above them.

    The version of the assignment guards against a deletion and a reassignment meanwhile.
    """
    if not states:
        return []
    operations: list[Operation] = [Check(topic.node.path, topic.version)]
    if topic.partition_nodes is None:
        operations.append(Create(partitions_path(topic.name)))
    present = topic.partition_nodes or frozenset()
    for number, state in sorted(states.items()):
        partition = TopicPartition(topic.name, number)
        if number not in present:
            operations.append(Create(partition_path(partition)))
        operations.append(Create(state_path(partition), state.encode()))
    return operations


REMOVED: Final = SetData(DELETIONS, b"")
"""Goes with the removal of topics: what was decided before it is refused."""


def deletion_request(image: ClusterImage, topic: TopicImage) -> list[Operation]:
    """Have the topic removed step by step. Nothing, if that is asked for already."""
    if image.is_being_deleted(topic.name):
        return []
    path = deletion_path(topic.name)
    # One that stands there was meant for a former topic of the name.
    stale = [Delete(path)] if topic.name in image.requested_deletions else []
    return [*stale, Create(path)]


def topic_removal(image: ClusterImage, topic: TopicImage) -> list[Operation]:
    """Remove a topic, its partitions and its settings.

    The version of the assignment guards against partitions added meanwhile. The states may change
    until the last moment: whichever broker leads, the topic goes.
    """
    return removal_step(image, topic, len(_numbers(topic)))[0]


def removal_step(
    image: ClusterImage, topic: TopicImage, partitions_max: int
) -> tuple[list[Operation], int]:
    """Remove so many partitions and, if none is left, the topic, with the node that may have asked
    for it. Also gives how many are left."""
    numbers = _numbers(topic)
    nodes = topic.partition_nodes or frozenset()
    operations: list[Operation] = []
    for number in numbers[:partitions_max]:
        partition = TopicPartition(topic.name, number)
        if number in topic.states or state_path(partition) in image.unreadable:
            operations.append(Delete(state_path(partition)))
        if number in nodes:
            operations.append(Delete(partition_path(partition)))
    left = len(numbers[partitions_max:])
    if left:
        return [Check(topic.node.path, topic.version), *operations], left
    if topic.partition_nodes is not None:
        operations.append(Delete(partitions_path(topic.name)))
    operations.append(Delete(topic.node.path, topic.version))
    operations += _settings_removal(image, topic.name)
    if topic.name in image.requested_deletions:
        operations.append(Delete(deletion_path(topic.name)))
    return operations, 0


def _settings_removal(image: ClusterImage, topic: str) -> list[Operation]:
    """Remove the settings of the topic; refused if they changed meanwhile, unless they cannot be
    read: then there is no version to name, and nothing in them that would be lost."""
    resource = ConfigResource(ResourceKind.TOPIC, topic)
    if resource.path in image.unreadable:
        return [Delete(resource.path)]
    if resource in image.configs:
        return config_write(image, resource, {})
    # There is no version to name, and any broker may write first settings: to make the node is
    # what shows that there are none.
    return [Create(resource.path, ConfigNode({}).encode()), Delete(resource.path)]


def _numbers(topic: TopicImage) -> list[int]:
    """Partitions that have any node of their own."""
    return sorted(topic.states.keys() | (topic.partition_nodes or frozenset()))


def config_write(
    image: ClusterImage, resource: ConfigResource, overrides: Mapping[str, str]
) -> list[Operation]:
    """Make these the overrides of the resource; a resource without overrides has no node, unless
    there are nodes below it."""
    stored = image.configs.get(resource)
    if stored is None:
        return [Create(resource.path, ConfigNode(overrides).encode())] if overrides else []
    if not overrides and not has_clients(image, resource):
        return [Delete(resource.path, stored.version)]
    node = ConfigNode(overrides, stored.value.extra)
    return [SetData(resource.path, node.encode(), stored.version)]


def has_clients(image: ClusterImage, resource: ConfigResource) -> bool:
    """Whether the resource is a user below which there are nodes of client ids."""
    return (
        resource.kind is ResourceKind.USER
        and ConfigResource.of_user(resource.name, None) in image.configs
    )


def first_state(
    image: ClusterImage, replicas: Replicas, *, controller_epoch: int
) -> PartitionStateNode | None:
    """The state of a new partition: live replicas are in sync and the first of them leads.

    Brokers that are shutting down do not count unless there are no others. None if no replica is
    alive.
    """
    alive = tuple(broker for broker in replicas if image.is_alive(broker))
    in_sync = tuple(b for b in alive if not image.brokers[b].is_shutting_down) or alive
    if not in_sync:
        return None
    return PartitionStateNode(
        leader=in_sync[0],
        leader_epoch=FIRST_LEADER_EPOCH,
        in_sync_replicas=in_sync,
        controller_epoch=controller_epoch,
        in_sync_epochs={broker: image.brokers[broker].epoch for broker in sorted(in_sync)},
    )
