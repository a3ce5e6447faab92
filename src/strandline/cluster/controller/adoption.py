"""Taking in partitions that lie in a log directory but that the metadata does not know.

This is how a Kafka log directory opens: its partitions are named by their directories, with the
topic's id in each; their settings are in Kafka's metadata log, if that could be read
(`adopted_settings`). Each unknown topic is registered with all the partitions up to its highest
number; those that are not on this disk start empty. The new leader epoch is larger than any in the
log, so that the epochs of the log keep growing. What contradicts the metadata, or other logs, is
not touched: it is returned as stray.

A broker adopts once, before it first serves; a node in the store remembers that it did. Later an
unknown log is what is left of a deleted topic, and adopting it would raise the topic from the dead.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random

from strandline.cluster.controller.adopted_settings import (
    settings_of_brokers,
    settings_of_groups,
    settings_of_topic,
)
from strandline.cluster.controller.decision import (
    MAX_PARTITIONS_PER_REQUEST,
    controller_epoch,
    fenced,
)
from strandline.cluster.controller.internal_topics import internal_topic_spec
from strandline.cluster.controller.topic_writes import config_write, topic_creation
from strandline.cluster.identifiers import random_uuid
from strandline.cluster.image import ClusterImage, TopicImage
from strandline.cluster.kraft_settings import KraftSettings
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
    kept_for_ever: tuple[str, ...]
    """Topics whose settings are not known."""
    left_out: tuple[str, ...]
    """Sentences about settings that are known but not allowed here."""
    operations: tuple[Operation, ...]

    def notices(self) -> list[str]:
        """Warnings for the operator, as sentences."""
        notices = []
        topics = sorted({partition.topic for partition in self.registered})
        if topics:
            notices.append(
                f"Found logs of {len(topics)} topics that the metadata did not know and took them "
                f"in: {', '.join(topics)}."
            )
        if self.kept_for_ever:
            notices.append(
                f"Topics {', '.join(self.kept_for_ever)}: their settings were kept elsewhere, so "
                "their records are kept for ever until retention.ms is set."
            )
        return [*notices, *self.left_out]


def adopt_partitions(
    image: ClusterImage,
    found: Sequence[FoundPartition],
    broker_id: BrokerId,
    broker: BrokerConfig,
    *,
    random: Random,
    kept: KraftSettings | None = None,
) -> Adoption:
    """Register the topics that only the disk knows, with this broker as their only replica.

    `kept` is what Kafka's metadata log says, if there is one. The first time, the operations are
    never empty: they remember that this broker has adopted.
    """
    work = _Work(image, broker_id, broker, kept, random)
    may_adopt = broker_id not in image.adopted_by
    for name, logs in sorted(_by_topic(found).items()):
        topic = image.topics.get(name)
        if topic is not None:
            work.stray += (log for log in logs if not _belongs(log, topic, broker_id))
        elif may_adopt:
            work.adopt(name, logs)
        else:
            work.stray += logs
    if may_adopt:
        work.take_over_broker_settings()
        work.operations.append(Create(adoption_path(broker_id)))
    return work.adoption()


def strays(
    image: ClusterImage, found: Iterable[FoundPartition], broker_id: BrokerId
) -> tuple[FoundPartition, ...]:
    """The logs that the metadata does not give to this broker, which has adopted what it may."""
    topics = image.topics
    return tuple(
        log
        for log in found
        if log.partition.topic not in topics
        or not _belongs(log, topics[log.partition.topic], broker_id)
    )


class _Work:
    """The topics of one adoption, taken in one after the other."""

    def __init__(
        self,
        image: ClusterImage,
        broker_id: BrokerId,
        broker: BrokerConfig,
        kept: KraftSettings | None,
        random: Random,
    ) -> None:
        self.stray: list[FoundPartition] = []
        self.operations: list[Operation] = []
        self._image = image
        self._broker_id = broker_id
        self._broker = broker
        self._kept = kept
        self._random = random
        self._ids = set(image.topic_names)
        self._registered: list[TopicPartition] = []
        self._empty: list[TopicPartition] = []
        self._kept_for_ever: list[str] = []
        self._left_out: list[str] = []

    def adopt(self, name: str, logs: Sequence[FoundPartition]) -> None:
        """Register one topic with its settings, or set its logs aside."""
        ids = {log.topic_id for log in logs} - {NO_TOPIC_ID}
        count = _partition_count(name, logs, self._broker)
        if not self._is_adoptable(name, ids, missing=count - len(logs)):
            self.stray += logs
            return
        topic_id = ids.pop() if ids else random_uuid(self._random)
        self._ids.add(topic_id)
        present = {log.partition.partition for log in logs}
        partitions = [TopicPartition(name, number) for number in range(count)]
        self._registered += partitions
        self._empty += (p for p in partitions if p.partition not in present)
        topic = TopicLogs(name, topic_id, count, logs)
        self.operations += _registration(self._image, topic, self._broker_id)
        self._take_over_settings(name, topic_id)

    def take_over_broker_settings(self) -> None:
        """What Kafka's metadata log says of this broker and of all, and of consumer groups."""
        if self._kept is None:
            return
        for operations, left_out in (
            settings_of_brokers(self._image, self._kept, self._broker_id, self._broker),
            settings_of_groups(self._image, self._kept, self._broker),
        ):
            self.operations += operations
            self._left_out += left_out

    def adoption(self) -> Adoption:
        """The result."""
        return Adoption(
            tuple(self._registered),
            tuple(self._empty),
            tuple(self.stray),
            tuple(self._kept_for_ever),
            tuple(self._left_out),
            fenced(self._image, self.operations),
        )

    def _take_over_settings(self, name: str, topic_id: TopicId) -> None:
        resource = ConfigResource(ResourceKind.TOPIC, name)
        if resource in self._image.configs:
            return
        settings = settings_of_topic(name, topic_id, self._kept, self._broker)
        self.operations += config_write(self._image, resource, settings.overrides)
        self._left_out += settings.left_out
        if not settings.are_known:
            self._kept_for_ever.append(name)

    def _is_adoptable(self, name: str, ids: set[TopicId], *, missing: int) -> bool:
        """Whether a topic may have this name, this id, and so many partitions without a log.

        Partitions that disagree about the id are of different topics, and an id that is in use
        belongs to a topic of another name. KRaft's own metadata log is not a topic. A single
        directory with a huge number must not make millions of empty partitions.
        """
        return (
            name != CLUSTER_METADATA
            and name_problem(name) is None
            and len(ids) <= 1
            and not ids & self._ids
            and missing <= MAX_PARTITIONS_PER_REQUEST
        )


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
