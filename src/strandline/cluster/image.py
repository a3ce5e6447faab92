"""The whole cluster metadata as one immutable value.

An image is what a broker knows of the cluster: it is built from all nodes of the store once and
then advanced by each `Changes`; both ways give equal images. Advancing copies the maps on the way
to what changed (the map of topics, one topic's map of partitions) and shares everything else with
the former image, so that a holder of an image keeps a consistent one. It knows no driver and
decides nothing. Nodes of unknown kinds are not part of it. One whose content cannot be read is left
as it was and named: another program wrote it, and the rest is to be followed all the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar, assert_never

from strandline.authorization.acls import PatternType, ResourcePattern
from strandline.cluster.image_parts import (
    BrokerImage,
    ImageDelta,
    PartitionImage,
    TopicImage,
    Versioned,
)
from strandline.cluster.image_topics import TopicChanges, TopicStep
from strandline.cluster.store import (
    NO_ZXID,
    Changes,
    MalformedNode,
    NodeCreated,
    NodeDataSet,
    NodeDeleted,
    NodeStat,
    StoreView,
    Zxid,
)
from strandline.cluster.znodes import (
    DELETIONS,
    AclNode,
    BrokerNode,
    ClusterIdNode,
    ConfigNode,
    ConfigResource,
    ControllerEpochNode,
    ControllerNode,
    Endpoint,
    FeatureNode,
    ProducerIdBlockNode,
    RegistrationNode,
    TokenNode,
    resource_of,
)
from strandline.types import BrokerId, TopicId, TopicPartition

__all__ = [
    "BrokerImage",
    "ClusterImage",
    "ImageDelta",
    "PartitionImage",
    "TopicImage",
    "Versioned",
]

_DIGITS_MAX: Final = 10

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """All metadata as of transaction `zxid`. The default value is the image of an empty store."""

    zxid: Zxid = NO_ZXID
    cluster_id: str | None = None
    controller: BrokerId | None = None
    controller_epoch: Versioned[int] | None = None
    brokers: Mapping[BrokerId, BrokerImage] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topic_names: Mapping[TopicId, str] = field(default_factory=dict)
    configs: Mapping[ConfigResource, Versioned[ConfigNode]] = field(default_factory=dict)
    producer_id_block: Versioned[ProducerIdBlockNode | None] | None = None
    requested_deletions: Mapping[str, Zxid] = field(default_factory=dict)
    """Topics whose deletion a node asks for, and the transaction that made the node: it means only
    a topic that was there by then (`is_being_deleted`)."""
    deletions_version: int | None = None
    """Version of the node below which deletions are asked for: each removal of topics moves it.
    None while there is no such node."""
    adopted_by: frozenset[BrokerId] = frozenset()
    """Brokers that took in the logs they found in their directories, which they do once."""
    registrations: Mapping[BrokerId, RegistrationNode] = field(default_factory=dict)
    """What the cluster remembers of every broker that was ever registered, until it is
    unregistered: also of those that are down (`fenced`, as Kafka calls them)."""
    feature_levels: Versioned[FeatureNode] | None = None
    """What an administrator set; which levels are in force is told by `cluster.features`."""
    acls: Mapping[ResourcePattern, Versioned[AclNode]] = field(default_factory=dict)
    tokens: Mapping[str, Versioned[TokenNode]] = field(default_factory=dict)
    """Delegation tokens by their ids, those that have expired and are still there included."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """What is wrong with nodes that cannot be read, by path. The image has what they said before,
    if this process has heard that; nothing is written to them."""

    @classmethod
    def from_view(cls, view: StoreView) -> ClusterImage:
        """The image of a whole store."""
        step = _Step(cls())
        for node in view.nodes:
            step.put(node.path, node.data, node.stat)
        return step.finish(view.zxid)[0]

    def apply(self, changes: Changes) -> tuple[ClusterImage, ImageDelta]:
        """The image after these changes, and what differs."""
        step = _Step(self)
        for change in changes.changes:
            match change:
                case NodeCreated(path, data, stat) | NodeDataSet(path, data, stat):
                    step.put(path, data, stat)
                case NodeDeleted(path):
                    step.remove(path)
                case _:
                    assert_never(change)
        return step.finish(changes.zxid)

    def topic_by_id(self, topic_id: TopicId) -> TopicImage | None:
        """The topic with that id."""
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def is_being_deleted(self, name: str) -> bool:
        """Whether the topic is one whose deletion was asked for by a node, and not a later one of
        the same name."""
        asked, topic = self.requested_deletions.get(name), self.topics.get(name)
        return asked is not None and topic is not None and topic.created_zxid < asked

    def partition(self, partition: TopicPartition) -> PartitionImage | None:
        """The partition, if it exists."""
        topic = self.topics.get(partition.topic)
        return None if topic is None else topic.partitions.get(partition.partition)

    def chosen(
        self, topics: Collection[str] | None = None, number: int | None = None
    ) -> Iterator[tuple[TopicPartition, PartitionImage]]:
        """Partitions in order: of all topics or of these, all or those of one number. A question
        about few costs little, however many there are."""
        for name in sorted(self.topics if topics is None else set(topics) & self.topics.keys()):
            partitions = self.topics[name].partitions
            for each in sorted(partitions) if number is None else {number} & partitions.keys():
                yield TopicPartition(name, each), partitions[each]

    def overrides(self, resource: ConfigResource) -> Mapping[str, str]:
        """Settings of the resource that were changed at run time."""
        config = self.configs.get(resource)
        return {} if config is None else config.value.overrides

    def is_alive(self, broker: BrokerId) -> bool:
        """Whether the broker is registered."""
        return broker in self.brokers

    def is_registered(self, broker: BrokerId) -> bool:
        """Whether the broker is a member of the cluster, be it running or down."""
        return broker in self.brokers or broker in self.registrations

    @property
    def fenced(self) -> Mapping[BrokerId, RegistrationNode]:
        """The brokers that are members of the cluster and down, by id."""
        known = self.registrations
        return {broker: known[broker] for broker in sorted(known) if broker not in self.brokers}

    def reached_by(self, listener: str) -> dict[BrokerId, Endpoint]:
        """Where clients of a listener reach the live brokers. Those without it are left out."""
        ends = (
            (broker_id, broker.endpoint(listener)) for broker_id, broker in self.brokers.items()
        )
        return {broker_id: end for broker_id, end in ends if end is not None}

    @property
    def broker_count(self) -> int:
        """How many brokers the cluster has, those that are down included."""
        return len(self.brokers.keys() | self.registrations.keys())


class _Step:
    """One advance of an image: single nodes in, the next image and the difference out."""

    def __init__(self, image: ClusterImage) -> None:
        self._before = image
        self._topics: dict[str, TopicStep] = {}
        self._brokers = _Draft(image.brokers)
        self._configs = _Draft(image.configs)
        self._requested_deletions = _Draft(image.requested_deletions)
        self._deletions_version = image.deletions_version
        self._adopted_by = image.adopted_by
        self._registrations = _Draft(image.registrations)
        self._cluster_id = image.cluster_id
        self._controller = image.controller
        self._controller_epoch = image.controller_epoch
        self._producer_id_block = image.producer_id_block
        self._feature_levels = image.feature_levels
        self._acls = _Draft(image.acls)
        self._tokens = _Draft(image.tokens)
        self._unreadable = _Draft(image.unreadable)

    def put(self, path: str, data: bytes, stat: NodeStat) -> None:
        """The node has this content now."""
        try:
            self._put(path, data, stat)
        except MalformedNode as error:
            self._unreadable.put(path, error.what)
        else:
            self._unreadable.discard(path)

    def _put(self, path: str, data: bytes, stat: NodeStat) -> None:
        match path.split("/")[1:]:
            case ["brokers", "topics", topic]:
                self._topic(topic).put_node(data, stat)
            case ["brokers", "topics", topic, "partitions"]:
                self._topic(topic).put_inner_node()
            case ["brokers", "topics", topic, "partitions", number] if _is_id(number):
                self._topic(topic).put_partition_node(int(number))
            case ["brokers", "topics", topic, "partitions", number, "state"] if _is_id(number):
                self._topic(topic).put_state(int(number), data, stat.version)
            case ["brokers", "ids", number] if _is_id(number):
                # A registration creates the node empty and fills it in the same multi.
                if data:
                    node = BrokerNode.decode(BrokerId(int(number)), data)
                    broker = BrokerImage(node, stat.created_zxid, stat.owner, stat.version)
                    self._brokers.put(node.broker_id, broker)
            case ["config", folder, name, *below]:
                if resource := ConfigResource.of_path(folder, name, *below):
                    config = ConfigNode.decode(resource, data)
                    self._configs.put(resource, Versioned(config, stat.version))
            case ["admin", "delete_topics", topic]:
                self._requested_deletions.put(topic, stat.created_zxid)
            case ["strandline", "adopted_logs", number] if _is_id(number):
                self._adopted_by |= {BrokerId(int(number))}
            case ["strandline", "registrations", number] if _is_id(number):
                broker_id = BrokerId(int(number))
                registration = RegistrationNode.decode(broker_id, data, stat.modified_zxid)
                self._registrations.put(registration.broker_id, registration)
            case ["kafka-acl", kind, name]:
                self._put_acls(resource_of(PatternType.LITERAL, kind, name), data, stat)
            case ["kafka-acl-extended", "prefixed", kind, name]:
                self._put_acls(resource_of(PatternType.PREFIXED, kind, name), data, stat)
            case ["delegation_token", "tokens", token_id]:
                token = TokenNode.decode(token_id, data)
                self._tokens.put(token_id, Versioned(token, stat.version))
            case _:
                self._put_single(path, data, stat)

    def remove(self, path: str) -> None:
        """The node is gone."""
        self._unreadable.discard(path)
        match path.split("/")[1:]:
            case ["brokers", "topics", topic]:
                self._topic(topic).remove_node()
            case ["brokers", "topics", topic, "partitions"]:
                self._topic(topic).remove_inner_node()
            case ["brokers", "topics", topic, "partitions", number] if _is_id(number):
                self._topic(topic).remove_partition_node(int(number))
            case ["brokers", "topics", topic, "partitions", number, "state"] if _is_id(number):
                self._topic(topic).remove_state(int(number))
            case ["brokers", "ids", number] if _is_id(number):
                self._brokers.remove(BrokerId(int(number)))
            case ["config", folder, name, *below]:
                if resource := ConfigResource.of_path(folder, name, *below):
                    self._configs.remove(resource)
            case ["admin", "delete_topics", topic]:
                self._requested_deletions.remove(topic)
            case ["strandline", "adopted_logs", number] if _is_id(number):
                self._adopted_by -= {BrokerId(int(number))}
            case ["strandline", "registrations", number] if _is_id(number):
                self._registrations.remove(BrokerId(int(number)))
            case ["kafka-acl", kind, name]:
                self._remove_acls(resource_of(PatternType.LITERAL, kind, name))
            case ["kafka-acl-extended", "prefixed", kind, name]:
                self._remove_acls(resource_of(PatternType.PREFIXED, kind, name))
            case ["delegation_token", "tokens", token_id]:
                self._tokens.remove(token_id)
            case _:
                self._remove_single(path)

    def finish(self, zxid: Zxid) -> tuple[ClusterImage, ImageDelta]:
        """The next image and how it differs from the one before."""
        before = self._before
        topics, names = before.topics, before.topic_names
        topic_changes = TopicChanges()
        if self._topics:
            topics, names = dict(topics), dict(names)
            for _, step in sorted(self._topics.items()):
                topic_changes.include(step, topics, names)
        image = ClusterImage(
            zxid=zxid,
            cluster_id=self._cluster_id,
            controller=self._controller,
            controller_epoch=self._controller_epoch,
            brokers=self._brokers.current,
            topics=topics,
            topic_names=names,
            configs=self._configs.current,
            producer_id_block=self._producer_id_block,
            requested_deletions=self._requested_deletions.current,
            deletions_version=self._deletions_version,
            adopted_by=self._adopted_by,
            registrations=self._registrations.current,
            feature_levels=self._feature_levels,
            acls=self._acls.current,
            tokens=self._tokens.current,
            unreadable=self._unreadable.current,
        )
        delta = ImageDelta(
            topics_created=tuple(topic_changes.created),
            topics_deleted=tuple(topic_changes.deleted),
            partitions_changed=tuple(sorted(topic_changes.partitions)),
            brokers_changed=tuple(sorted(self._brokers.differing())),
            configs_changed=tuple(sorted(self._configs.differing())),
            acls_changed=tuple(sorted(self._acls.differing())),
            tokens_changed=tuple(sorted(self._tokens.differing())),
            deletions_changed=tuple(sorted(self._requested_deletions.differing())),
            controller_changed=(before.controller, before.controller_epoch)
            != (image.controller, image.controller_epoch),
            unreadable_changed=tuple(sorted(self._unreadable.differing())),
        )
        return image, delta

    def _put_acls(self, resource: ResourcePattern | None, data: bytes, stat: NodeStat) -> None:
        if resource is not None:
            self._acls.put(resource, Versioned(AclNode.decode(resource, data), stat.version))

    def _remove_acls(self, resource: ResourcePattern | None) -> None:
        if resource is not None:
            self._acls.remove(resource)

    def _topic(self, name: str) -> TopicStep:
        step = self._topics.get(name)
        if step is None:
            step = self._topics[name] = TopicStep(name, self._before.topics.get(name))
        return step

    def _put_single(self, path: str, data: bytes, stat: NodeStat) -> None:
        if path == ClusterIdNode.path:
            self._cluster_id = ClusterIdNode.decode(data).cluster_id
        elif path == ControllerNode.path:
            self._controller = ControllerNode.decode(data).broker_id
        elif path == ControllerEpochNode.path:
            epoch = ControllerEpochNode.decode(data).epoch
            self._controller_epoch = Versioned(epoch, stat.version)
        elif path == DELETIONS:
            self._deletions_version = stat.version
        elif path == ProducerIdBlockNode.path:
            self._producer_id_block = Versioned(ProducerIdBlockNode.decode(data), stat.version)
        elif path == FeatureNode.path:
            self._feature_levels = Versioned(FeatureNode.decode(data), stat.version)

    def _remove_single(self, path: str) -> None:
        if path == ClusterIdNode.path:
            self._cluster_id = None
        elif path == ControllerNode.path:
            self._controller = None
        elif path == ControllerEpochNode.path:
            self._controller_epoch = None
        elif path == DELETIONS:
            self._deletions_version = None
        elif path == ProducerIdBlockNode.path:
            self._producer_id_block = None
        elif path == FeatureNode.path:
            self._feature_levels = None


class _Draft(Generic[_Key, _Value]):
    """A mapping on its way to the next image: copied when it is first changed."""

    def __init__(self, before: Mapping[_Key, _Value]) -> None:
        self._before = before
        self._draft: dict[_Key, _Value] | None = None
        self._touched: set[_Key] = set()

    @property
    def current(self) -> Mapping[_Key, _Value]:
        return self._before if self._draft is None else self._draft

    def put(self, key: _Key, value: _Value) -> None:
        self._own(key)[key] = value

    def remove(self, key: _Key) -> None:
        self._own(key).pop(key, None)

    def discard(self, key: _Key) -> None:
        """Remove it, at no cost if it is not there."""
        if key in self.current:
            self.remove(key)

    def differing(self) -> set[_Key]:
        """Keys whose value is new, gone or another one."""
        return {key for key in self._touched if self._before.get(key) != self.current.get(key)}

    def _own(self, key: _Key) -> dict[_Key, _Value]:
        self._touched.add(key)
        if self._draft is None:
            self._draft = dict(self._before)
        return self._draft


def _is_id(text: str) -> bool:
    """Whether a path component is the number of a broker or partition as we would write it."""
    is_short = len(text) <= _DIGITS_MAX  # Python refuses to read numbers of thousands of digits
    return is_short and text.isascii() and text.isdecimal() and str(int(text)) == text
