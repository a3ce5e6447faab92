"""From the partition as it should be to the nodes that say so.

A decision collects changed partitions here, and gets the operations: one write per partition state
and one per topic whose assignment changed, each guarded by the version that the image has.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from strandline.cluster.controller.decision import controller_epoch, fenced_from_deletions
from strandline.cluster.image import ClusterImage, PartitionImage, TopicImage
from strandline.cluster.store import MalformedNode, Operation, SetData
from strandline.cluster.znodes import PartitionStateNode, TopicNode, state_path, topic_path
from strandline.errors import ErrorCode, ProtocolError
from strandline.types import TopicPartition

BYTES_PER_MULTI: Final = 256 * 1024
"""About how much one multi writes, unless one item alone has more. ZooKeeper takes four times as
much, and hands it to every broker before anything else."""


class StateWrites:
    """The writes of one decision, in the order in which they were added."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._operations: list[Operation] = []
        self._assignments: dict[str, TopicNode] = {}
        self.count = 0
        """Partitions written."""
        self.size = 0
        """About how many bytes that takes."""

    def put(self, key: TopicPartition, partition: PartitionImage) -> None:
        """Write what differs from the image. Raises KAFKA_STORAGE_ERROR unless it `can_write`."""
        _check_readable(self._image, key, partition)
        topic = self._image.topics[key.topic]
        before = topic.partitions[key.partition]
        self.count += 1
        if state_of(before) != state_of(partition):
            self._put_state(key, topic, partition)
        if _assignment(before) != _assignment(partition):
            node = self._assignments.get(key.topic)
            if node is None:
                node = topic.node
                self.size += len(node.encode())
            self._assignments[key.topic] = _reassigned(node, key.partition, partition)

    def put_again(self, key: TopicPartition, partition: PartitionImage) -> None:
        """Write the state as it is, so that its version moves. Raises as `put`."""
        _check_readable(self._image, key, partition)
        self.count += 1
        self._put_state(key, self._image.topics[key.topic], partition)

    def operations(self) -> tuple[Operation, ...]:
        """All of it, fenced."""
        assignments = (
            SetData(node.path, node.encode(), self._image.topics[name].version)
            for name, node in self._assignments.items()
        )
        return fenced_from_deletions(self._image, [*self._operations, *assignments])

    def _put_state(self, key: TopicPartition, topic: TopicImage, partition: PartitionImage) -> None:
        former = topic.states[key.partition]
        node = replace(
            state_of(partition),
            controller_epoch=controller_epoch(self._image),
            extra=former.value.extra,
        )
        write = SetData(state_path(key), node.encode(), former.version)
        self._operations.append(write)
        self.size += len(write.path) + len(write.data)


def can_write(image: ClusterImage, key: TopicPartition, partition: PartitionImage) -> bool:
    """Whether the nodes that say so can be read now: what another program put into one that cannot
    is not written over, and its version is not known."""
    return _unreadable_path(image, key, partition) is None


def _check_readable(image: ClusterImage, key: TopicPartition, partition: PartitionImage) -> None:
    path = _unreadable_path(image, key, partition)
    if path is not None:
        problem = MalformedNode(path, image.unreadable[path])
        raise ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR, str(problem))


def _unreadable_path(
    image: ClusterImage, key: TopicPartition, partition: PartitionImage
) -> str | None:
    if not image.unreadable:
        return None
    paths = [state_path(key)]
    if _assignment(image.topics[key.topic].partitions[key.partition]) != _assignment(partition):
        paths.append(topic_path(key.topic))
    return next((path for path in paths if path in image.unreadable), None)


def state_of(partition: PartitionImage, *, controller_epoch: int = 0) -> PartitionStateNode:
    """The partition's state as a node's value."""
    return PartitionStateNode(
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        in_sync_replicas=partition.in_sync_replicas,
        controller_epoch=controller_epoch,
        is_recovering=partition.is_recovering,
        in_sync_epochs=partition.in_sync_epochs,
        elr=partition.elr,
        last_known_elr=partition.last_known_elr,
    )


def _assignment(partition: PartitionImage) -> tuple[object, ...]:
    return partition.replicas, partition.adding, partition.removing


def _reassigned(node: TopicNode, number: int, partition: PartitionImage) -> TopicNode:
    """The topic's assignment with another one for this partition."""
    adding = {n: replicas for n, replicas in node.adding_replicas.items() if n != number}
    removing = {n: replicas for n, replicas in node.removing_replicas.items() if n != number}
    if partition.adding:
        adding[number] = partition.adding
    if partition.removing:
        removing[number] = partition.removing
    return replace(
        node,
        partitions={**node.partitions, number: partition.replicas},
        adding_replicas=dict(sorted(adding.items())),
        removing_replicas=dict(sorted(removing.items())),
    )
