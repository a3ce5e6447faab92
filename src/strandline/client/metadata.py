"""What a client knows of the cluster: its brokers, topics and leaders.

This file decides what to believe of an answer. It must not know who is asked, nor when.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from strandline.client.settings import Address
from strandline.errors import ErrorCode
from strandline.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from strandline.types import NO_TOPIC_ID, BrokerId, LeaderEpoch, TopicId, TopicPartition


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
    """The cluster as brokers described it. `refused` are codes by topic name."""

    cluster_id: str | None = None
    controller: BrokerId | None = None
    brokers: Mapping[BrokerId, BrokerInfo] = field(default_factory=dict)
    topics: Mapping[str, TopicInfo] = field(default_factory=dict)
    refused: Mapping[str, int] = field(default_factory=dict)

    def topic_id(self, partition: TopicPartition) -> TopicId:
        """The id of a partition's topic; the nil one if it is not known."""
        topic = self.topics.get(partition.topic)
        return NO_TOPIC_ID if topic is None else topic.topic_id


class Learned(NamedTuple):
    """What an answer told, and what of it was not new."""

    topics: tuple[str, ...]
    """Those that it speaks of, refused ones included."""
    outdated: int
    """Partitions of which it told an older leader epoch than is known: that was not believed."""
    replaced: tuple[str, ...]
    """Topics with another id than before."""


class LeaderHint(Protocol):
    """Who leads, as answers to produce and fetch tell it to those that asked another broker."""

    leader_id: int
    leader_epoch: int


class LeaderEndpoint(Protocol):
    """Where such a leader is reached."""

    node_id: int
    host: str
    port: int
    rack: str | None


class Metadata:
    """What a client believes of the cluster, from the answers and hints of brokers.

    Theory: every broker may be behind. One that is cut off from the others tells of leaders of
    before, and one of them would say of a reader's position that it is out of its log. So leader
    epochs never go back (KIP-320), not even to a leader from none. Partitions are never taken away,
    so a known one that an answer lacks stays. A topic with another id is another topic, of which
    nothing was known, with epochs of its own; that needs brokers that tell ids.
    """

    def __init__(self) -> None:
        self.view = ClusterView()

    def learn(self, response: MetadataResponse, *, is_of_all: bool = False) -> Learned:
        """Believe an answer about some topics, or about all that there are."""
        known, fresh = self.view, _view_of(response)
        topics: dict[str, TopicInfo] = {}
        refused = dict(fresh.refused)
        outdated = 0
        replaced: list[str] = []
        for name, topic in fresh.topics.items():
            before = known.topics.get(name)
            if before is not None and before.topic_id != topic.topic_id:
                replaced.append(name)
                before = None
            if before is not None and topic.topic_id != NO_TOPIC_ID:
                topic, older = _with_newest_epochs(before, topic)
                outdated += older
            topics[name] = topic
        if not is_of_all:
            for name, topic in known.topics.items():
                if name not in refused:
                    topics.setdefault(name, topic)
            for name, code in known.refused.items():
                if name not in topics:
                    refused.setdefault(name, code)
        self.view = replace(fresh, topics=topics, refused=refused)
        return Learned((*fresh.topics, *fresh.refused), outdated, tuple(replaced))

    def learn_broker(self, broker: BrokerInfo) -> None:
        """Another answer named a broker; what metadata says of one that it knows stands."""
        if broker.broker_id not in self.view.brokers:
            brokers = {**self.view.brokers, broker.broker_id: broker}
            self.view = replace(self.view, brokers=brokers)

    def hint(
        self,
        partition: TopicPartition,
        topic_id: TopicId,
        hint: LeaderHint | None,
        endpoints: Iterable[LeaderEndpoint] = (),
    ) -> bool:
        """A broker that does not lead a partition said who does, and where (KIP-951).

        `topic_id` is the topic that the answer names, the nil one if it names it by name alone. So
        the leader epochs of a topic that was deleted are not taken for those of another one of that
        name: metadata with lower epochs, which are the true ones, would not be believed any more.

        Whether that was news, and can be used: the leader's address is known or told.
        """
        view = self.view
        topic = view.topics.get(partition.topic)
        known = None if topic is None else topic.partitions.get(partition.partition)
        if hint is None or topic is None or known is None or topic_id != topic.topic_id:
            return False
        leader, epoch = BrokerId(hint.leader_id), LeaderEpoch(hint.leader_epoch)
        if leader < 0 or epoch <= known.leader_epoch:
            return False
        named = [each for each in endpoints if each.node_id == leader]
        brokers = dict(view.brokers)
        for each in named:
            brokers[leader] = BrokerInfo(leader, Address(each.host, each.port), each.rack)
        if leader not in brokers:
            return False
        believed = replace(known, leader=leader, leader_epoch=epoch)
        topic = replace(topic, partitions={**topic.partitions, partition.partition: believed})
        self.view = replace(view, brokers=brokers, topics={**view.topics, topic.name: topic})
        return True


def _view_of(response: MetadataResponse) -> ClusterView:
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
        if topic.error_code and not name:
            continue  # it was asked for by an id that the broker does not know
        if topic.error_code == ErrorCode.NONE:
            topics[name] = _topic(topic)
        else:
            refused[name] = topic.error_code
    controller = BrokerId(response.controller_id) if response.controller_id >= 0 else None
    return ClusterView(response.cluster_id, controller, brokers, topics, refused)


def _with_newest_epochs(before: TopicInfo, fresh: TopicInfo) -> tuple[TopicInfo, int]:
    """A topic as it is told now, but for partitions with older epochs; how many these are."""
    partitions = {**before.partitions, **fresh.partitions}
    outdated = 0
    for number, partition in fresh.partitions.items():
        known = before.partitions.get(number)
        if known is not None and 0 <= partition.leader_epoch < known.leader_epoch:
            partitions[number] = known
            outdated += 1
    return replace(fresh, partitions=partitions), outdated


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
