"""How one topic's nodes become one topic of the image.

A topic is described by one node for its assignment and one for each partition's state, which come
and go separately, in any order within a transaction. `TopicStep` collects what happened to them
and joins only the partitions that were touched. It knows no other topic.
"""

from __future__ import annotations

from strandline.cluster.image_parts import PartitionImage, TopicImage, Versioned
from strandline.cluster.store import NO_ZXID, NodeStat
from strandline.cluster.znodes import PartitionStateNode, TopicNode
from strandline.types import NO_TOPIC_ID, TopicId, TopicPartition


class TopicStep:
    """What one transaction does to one topic."""

    def __init__(self, name: str, before: TopicImage | None) -> None:
        self.before = before
        self._name = name
        self._node = before.node if before else None
        self._version = before.version if before else -1
        self._created_zxid = before.created_zxid if before else NO_ZXID
        self._states = dict(before.states) if before else {}
        self._nodes = before.partition_nodes if before else None
        self._added: set[int] = set()
        self._touched: set[int] = set()
        # The assignment was deleted at some moment, even if it came back later.
        self._was_removed = False

    def put_node(self, data: bytes, stat: NodeStat) -> None:
        """The topic has this assignment now."""
        self._node = TopicNode.decode(self._name, data)
        self._version = stat.version
        self._created_zxid = stat.created_zxid

    def remove_node(self) -> None:
        """The topic is gone, at least for the moment."""
        self._node = None
        self._was_removed = True

    def put_inner_node(self) -> None:
        """The node above the partitions is there."""
        if self._nodes is None:
            self._nodes = frozenset()

    def remove_inner_node(self) -> None:
        """The node above the partitions is gone."""
        self._nodes = None
        self._added.clear()

    def put_partition_node(self, number: int) -> None:
        """The node above that partition's state is there."""
        self._added.add(number)

    def remove_partition_node(self, number: int) -> None:
        """The node above that partition's state is gone."""
        self._added.discard(number)
        if self._nodes:
            self._nodes -= {number}

    def put_state(self, number: int, data: bytes, version: int) -> None:
        """The partition has this leader now."""
        partition = TopicPartition(self._name, number)
        self._states[number] = Versioned(PartitionStateNode.decode(partition, data), version)
        self._touched.add(number)

    def remove_state(self, number: int) -> None:
        """No replica leads the partition any more."""
        self._states.pop(number, None)
        self._touched.add(number)

    def finish(self) -> TopicImage | None:
        """The topic as it is now, or None if it does not exist."""
        node = self._node
        if node is None:
            return None
        if self.before and node is self.before.node:
            partitions = dict(self.before.partitions)
            numbers = self._touched & partitions.keys()
        else:
            partitions = {}
            numbers = set(node.partitions)
        for number in sorted(numbers):
            partitions[number] = _joined(node, number, self._states.get(number))
        nodes = self._nodes
        if nodes is not None and self._added:
            nodes |= self._added
        return TopicImage(node, self._version, partitions, self._states, nodes, self._created_zxid)

    def keeps_identity(self, topic: TopicImage) -> bool:
        """Whether the topic is the one there was before, and not a new one of the same name."""
        return (
            self.before is not None
            and self.before.topic_id == topic.topic_id
            and not self._was_removed
        )

    def touched(self, topic: TopicImage) -> set[int]:
        """Existing partitions that may differ from before."""
        if self.before and topic.node is self.before.node:
            return self._touched & topic.partitions.keys()
        return set(topic.partitions)


class TopicChanges:
    """What a transaction did to all topics, gathered topic by topic."""

    def __init__(self) -> None:
        self.created: list[TopicImage] = []
        self.deleted: list[TopicImage] = []
        self.partitions: list[TopicPartition] = []

    def include(
        self, step: TopicStep, topics: dict[str, TopicImage], names: dict[TopicId, str]
    ) -> None:
        """Carry one topic's step over into the maps of the next image."""
        former, topic = step.before, step.finish()
        known = former if former and topic and step.keeps_identity(topic) else None
        if former and known is None:
            self.deleted.append(former)
            # Another topic of this step may have taken the id over.
            if names.get(former.topic_id) == former.name:
                del names[former.topic_id]
            del topics[former.name]
        if topic is None:
            return
        if known is None:
            self.created.append(topic)
        topics[topic.name] = topic
        if topic.topic_id != NO_TOPIC_ID:
            names[topic.topic_id] = topic.name
        partitions = known.partitions if known else {}
        self.partitions += (
            TopicPartition(topic.name, number)
            for number in step.touched(topic)
            if partitions.get(number) != topic.partitions[number]
        )


def _joined(
    node: TopicNode, number: int, state: Versioned[PartitionStateNode] | None
) -> PartitionImage:
    replicas = node.partitions[number]
    adding = node.adding_replicas.get(number, ())
    removing = node.removing_replicas.get(number, ())
    if state is None:
        return PartitionImage(replicas, adding=adding, removing=removing)
    return PartitionImage(
        replicas=replicas,
        in_sync_replicas=state.value.in_sync_replicas,
        leader=state.value.leader,
        leader_epoch=state.value.leader_epoch,
        partition_epoch=state.version,
        adding=adding,
        removing=removing,
        is_recovering=state.value.is_recovering,
        in_sync_epochs=state.value.in_sync_epochs,
        elr=state.value.elr,
        last_known_elr=state.value.last_known_elr,
    )
