"""What a client knows of the cluster: its brokers, topics and leaders. Values only, no sockets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from strandline.client.settings import Address
from strandline.errors import ErrorCode
from strandline.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from strandline.types import NO_TOPIC_ID, BrokerId, LeaderEpoch, TopicId

NO_LEADER = BrokerId(-1)


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A broker that is alive."""

    broker_id: BrokerId
    address: Address
    rack: str | None


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """Who holds a partition. `leader` is -1 while there is none."""

    partition: int
    leader: BrokerId
    leader_epoch: LeaderEpoch
    replicas: tuple[BrokerId, ...]
    in_sync_replicas: tuple[BrokerId, ...]
    offline_replicas: tuple[BrokerId, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic and its partitions by number. The id is zero if the broker is too old to tell it."""

    name: str
    topic_id: TopicId
    is_internal: bool
    partitions: Mapping[int, PartitionInfo]


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The cluster as one broker described it. `refused` are codes by topic name."""

    cluster_id: str | None = None
    controller: BrokerId | None = None
    brokers: Mapping[BrokerId, BrokerInfo] = field(default_factory=dict)
    topics: Mapping[str, TopicInfo] = field(default_factory=dict)
    refused: Mapping[str, int] = field(default_factory=dict)


def view_of(response: MetadataResponse) -> ClusterView:
    """What a response says."""
    brokers = {
        BrokerId(each.node_id): BrokerInfo(
            BrokerId(each.node_id), Address(each.host, each.port), each.rack
        )
        for each in response.brokers
    }
    topics: dict[str, TopicInfo] = {}
    refused: dict[str, int] = {}
    for topic in response.topics:
        name = topic.name or ""
        if topic.error_code == ErrorCode.NONE:
            topics[name] = _topic(topic)
        else:
            refused[name] = topic.error_code
    controller = BrokerId(response.controller_id) if response.controller_id >= 0 else None
    return ClusterView(response.cluster_id, controller, brokers, topics, refused)


def merge_views(known: ClusterView, fresh: ClusterView) -> ClusterView:
    """A fresh view of some topics with what is known of the others."""
    topics = {name: topic for name, topic in known.topics.items() if name not in fresh.refused}
    refused = {name: code for name, code in known.refused.items() if name not in fresh.topics}
    return ClusterView(
        fresh.cluster_id,
        fresh.controller,
        fresh.brokers,
        {**topics, **fresh.topics},
        {**refused, **fresh.refused},
    )


def with_newest_epochs(known: ClusterView, fresh: ClusterView) -> ClusterView:
    """A fresh view; of partitions with an older leader epoch what is known already.

    A broker that is cut off from the others tells of leaders of before, and one of them would say
    of a reader's position that it is out of its log (KIP-320). A topic that is made anew begins
    with other epochs, so this needs topic ids.
    """
    topics: dict[str, TopicInfo] = {}
    for name, topic in fresh.topics.items():
        before = known.topics.get(name)
        if before is None or topic.topic_id == NO_TOPIC_ID or before.topic_id != topic.topic_id:
            topics[name] = topic
            continue
        partitions = {
            number: before.partitions[number]
            if number in before.partitions
            and 0 <= partition.leader_epoch < before.partitions[number].leader_epoch
            else partition
            for number, partition in topic.partitions.items()
        }
        topics[name] = replace(topic, partitions=partitions)
    return replace(fresh, topics=topics)


def _topic(topic: MetadataResponseTopic) -> TopicInfo:
    return TopicInfo(
        topic.name or "",
        topic.topic_id,
        topic.is_internal,
        {
            each.partition_index: PartitionInfo(
                each.partition_index,
                BrokerId(each.leader_id),
                LeaderEpoch(each.leader_epoch),
                tuple(map(BrokerId, each.replica_nodes)),
                tuple(map(BrokerId, each.isr_nodes)),
                tuple(map(BrokerId, each.offline_replicas)),
            )
            for each in sorted(topic.partitions, key=lambda each: each.partition_index)
        },
    )
