"""Taking in partitions that lie in a log directory but that the metadata does not know.

This is how a Kafka log directory opens: its partitions are named by their directories, with the
topic's id in each, and nothing else is known about them. Each unknown topic is registered with
all the partitions up to its highest number; those that are not on this disk start empty. The new
leader epoch is larger than any in the log, so that the epochs of the log keep growing.
What contradicts the metadata is not touched: it is returned as stray.

A broker adopts once, before it first serves; a node in the store remembers that it did. Later an
unknown log is what is left of a deleted topic, and adopting it would raise the topic from the dead.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random

from strandline.cluster.controller.decision import controller_epoch, fenced
from strandline.cluster.controller.internal_topics import internal_topic_spec
from strandline.cluster.controller.topic_writes import config_write, topic_creation
from strandline.cluster.identifiers import random_uuid
from strandline.cluster.image import ClusterImage, TopicImage
from strandline.cluster.store import Create, Operation
from strandline.cluster.topic_names import CLUSTER_METADATA, name_problem
from strandline.cluster.znodes import (
    ConfigResource,
    PartitionStateNode,
    ResourceKind,
    TopicNode,
    adoption_path,
)
from strandline.config.broker import BrokerConfig
from strandline.types import (
    NO_EPOCH,
    NO_TOPIC_ID,
    BrokerId,
    LeaderEpoch,
    TopicId,
    TopicPartition,
)


@dataclass(frozen=True, slots=True)
class FoundPartition:
    """A partition's log on disk. Very old directories have no topic id."""

    partition: TopicPartition
    topic_id: TopicId = NO_TOPIC_ID
    latest_epoch: LeaderEpoch = NO_EPOCH
    """The largest leader epoch that the log knows."""


@dataclass(frozen=True, slots=True)
class Adoption:
    """What is taken in. `registered` lists every partition of the new topics, found or empty."""

    registered: tuple[TopicPartition, ...]
    empty: tuple[TopicPartition, ...]
    stray: tuple[FoundPartition, ...]
    operations: tuple[Operation, ...]


def adopt_partitions(
    image: ClusterImage,
    found: Sequence[FoundPartition],
    broker_id: BrokerId,
    broker: BrokerConfig,
    *,
    random: Random,
) -> Adoption:
    """Register the topics that only the disk knows, with this broker as their only replica.

    The first time, the operations are never empty: they remember that this broker has adopted.
    """
    may_adopt = broker_id not in image.adopted_by
    registered: list[TopicPartition] = []
    empty: list[TopicPartition] = []
    stray: list[FoundPartition] = []
    operations: list[Operation] = []
    for name, logs in sorted(_by_topic(found).items()):
        topic = image.topics.get(name)
        ids = {log.topic_id for log in logs} - {NO_TOPIC_ID}
        if topic is not None:
            stray += (log for log in logs if not _belongs(log, topic, broker_id))
        elif not (may_adopt and _is_adoptable(image, name, ids)):
            stray += logs
        else:
            topic_id = ids.pop() if ids else random_uuid(random)
            count = _partition_count(name, logs, broker)
            present = {log.partition.partition for log in logs}
            partitions = [TopicPartition(name, number) for number in range(count)]
            registered += partitions
            empty += (p for p in partitions if p.partition not in present)
            operations += _registration(image, TopicLogs(name, topic_id, count, logs), broker_id)
            operations += _settings(image, name, broker)
    if may_adopt:
        operations.append(Create(adoption_path(broker_id)))
    return Adoption(tuple(registered), tuple(empty), tuple(stray), fenced(image, operations))


@dataclass(frozen=True, slots=True)
class TopicLogs:
    """A topic about to be registered, and its logs on this disk."""

    name: str
    topic_id: TopicId
    partition_count: int
    logs: Sequence[FoundPartition]


def _by_topic(found: Iterable[FoundPartition]) -> dict[str, list[FoundPartition]]:
    topics: dict[str, list[FoundPartition]] = defaultdict(list)
    for log in found:
        topics[log.partition.topic].append(log)
    return topics


def _belongs(log: FoundPartition, topic: TopicImage, broker_id: BrokerId) -> bool:
    """Whether the log is a replica that the metadata assigns to this broker."""
    partition = topic.partitions.get(log.partition.partition)
    has_same_id = NO_TOPIC_ID in (log.topic_id, topic.topic_id) or log.topic_id == topic.topic_id
    return has_same_id and partition is not None and broker_id in partition.replicas


def _is_adoptable(image: ClusterImage, name: str, ids: set[TopicId]) -> bool:
    """Whether a topic may have this name and id.

    Partitions that disagree about the id are of different topics, and an id that is in use belongs
    to a topic of another name. KRaft's own metadata log is not a topic.
    """
    return (
        name != CLUSTER_METADATA
        and name_problem(name) is None
        and len(ids) <= 1
        and not any(topic_id in image.topic_names for topic_id in ids)
    )


def _partition_count(name: str, logs: Sequence[FoundPartition], broker: BrokerConfig) -> int:
    """Groups find their partition by the topic's size: an internal topic gets its full size."""
    count = max(log.partition.partition for log in logs) + 1
    spec = internal_topic_spec(name, broker, broker_count=1)
    return count if spec is None else max(count, spec.partition_count)


def _registration(image: ClusterImage, topic: TopicLogs, broker_id: BrokerId) -> list[Operation]:
    numbers = range(topic.partition_count)
    epochs = {log.partition.partition: log.latest_epoch for log in topic.logs}
    states = {
        number: PartitionStateNode(
            leader=broker_id,
            leader_epoch=LeaderEpoch(epochs.get(number, NO_EPOCH) + 1),
            in_sync_replicas=(broker_id,),
            controller_epoch=controller_epoch(image),
        )
        for number in numbers
    }
    replicas = dict.fromkeys(numbers, (broker_id,))
    return topic_creation(TopicNode(topic.name, topic.topic_id, replicas), states)


def _settings(image: ClusterImage, name: str, broker: BrokerConfig) -> list[Operation]:
    """An internal topic must be compacted whatever its log directory knows of settings."""
    resource = ConfigResource(ResourceKind.TOPIC, name)
    spec = internal_topic_spec(name, broker, broker_count=1)
    if spec is None or resource in image.configs:
        return []
    overrides = {key: value for key, value in spec.configs.items() if value is not None}
    return config_write(image, resource, overrides)
