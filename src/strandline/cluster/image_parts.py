"""The values that a cluster image is made of: brokers, topics, partitions, and what differs.

Plain immutable data; `image` builds them. Maps are plain dictionaries that are not changed. The
versions kept beside the values are those that a compare-and-set of the node must name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from strandline.authorization.acls import ResourcePattern
from strandline.cluster.store import ANY_VERSION, NO_ZXID, SessionId, Zxid
from strandline.cluster.znodes import (
    BrokerNode,
    ConfigResource,
    Endpoint,
    PartitionStateNode,
    TopicNode,
    endpoint_at,
)
from strandline.types import NO_EPOCH, NO_LEADER, BrokerId, LeaderEpoch, TopicId, TopicPartition

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Versioned(Generic[Value]):
    """A node's value and the version under which it was read."""

    value: Value
    version: int


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """A live broker. `epoch` names this one registration; a restart gets a larger one."""

    node: BrokerNode
    epoch: Zxid
    session: SessionId
    version: int = ANY_VERSION
    """Of the registration's node."""

    @property
    def broker_id(self) -> BrokerId:
        return self.node.broker_id

    @property
    def rack(self) -> str | None:
        return self.node.rack

    @property
    def is_shutting_down(self) -> bool:
        """Whether the broker asked to be relieved of what it leads, because it is to stop."""
        return self.node.is_shutting_down

    @property
    def offline(self) -> frozenset[TopicPartition]:
        """Partitions whose replica on this broker lies on a failed disk."""
        return self.node.offline

    @property
    def previous_epoch(self) -> int:
        """The former registration since which it lost nothing, or `NO_PREVIOUS_EPOCH`."""
        return self.node.previous_epoch

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        return self.node.endpoints

    def endpoint(self, listener: str) -> Endpoint | None:
        """Where that listener of the broker is reached."""
        return endpoint_at(self.node.endpoints, listener)


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """One partition. Until its first leader is elected the epochs are -1 and no replica leads."""

    replicas: tuple[BrokerId, ...]
    in_sync_replicas: tuple[BrokerId, ...] = ()
    leader: BrokerId = NO_LEADER
    leader_epoch: LeaderEpoch = NO_EPOCH
    partition_epoch: int = -1
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()
    is_recovering: bool = False
    in_sync_epochs: Mapping[BrokerId, int] = field(default_factory=dict)
    """Broker epochs under which members of the in-sync set and of `elr` were known complete."""
    elr: tuple[BrokerId, ...] = ()
    """Eligible leader replicas: not in sync, but with every committed record (KIP-966)."""
    last_known_elr: tuple[BrokerId, ...] = ()
    """Were complete before they restarted uncleanly."""

    @property
    def has_leader(self) -> bool:
        return self.leader >= 0

    @property
    def has_eligible(self) -> bool:
        """Whether replicas outside the in-sync set may lead, now or after a crash of the others:
        its leader commits nothing without them (D-13)."""
        return bool(self.elr or self.last_known_elr)

    def leads_under(self, broker_epoch: int) -> bool:
        """Whether the leader that this state names is the one registered under that epoch.

        A leader that came back before the controller acted is still named by the state, under the
        epoch that it had. It may have lost records, so it must not lead before it is elected anew.
        """
        return self.has_leader and self.in_sync_epochs.get(self.leader) == broker_epoch


@dataclass(frozen=True, slots=True)
class TopicImage:
    """One topic. `node` and `states` are the nodes behind it, for those that rewrite them."""

    node: TopicNode
    version: int
    partitions: Mapping[int, PartitionImage]
    states: Mapping[int, Versioned[PartitionStateNode]]
    partition_nodes: frozenset[int] | None = None
    """Partitions with a node above that of their state; None if the node above those is missing."""
    created_zxid: Zxid = NO_ZXID
    """The transaction that made `node`: it tells the topic from others of the same name."""

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def topic_id(self) -> TopicId:
        return self.node.topic_id

    @property
    def is_started(self) -> bool:
        """Whether every partition has had a leader, or was told that it has none."""
        return len(self.states) >= len(self.partitions)

    @property
    def replication_factor(self) -> int:
        """Replicas of the lowest partition; new partitions get as many."""
        return len(self.partitions[min(self.partitions)].replicas) if self.partitions else 0


@dataclass(frozen=True, slots=True)
class ImageDelta:
    """What one step changed. A topic deleted and made again in one step is in both lists."""

    topics_created: tuple[TopicImage, ...] = ()
    topics_deleted: tuple[TopicImage, ...] = ()
    """As they were last."""
    partitions_changed: tuple[TopicPartition, ...] = ()
    """Sorted: every partition that is new or differs, those of created topics included."""
    brokers_changed: tuple[BrokerId, ...] = ()
    """Sorted: brokers that came, went, came back under a new epoch, or describe themselves anew."""
    configs_changed: tuple[ConfigResource, ...] = ()
    acls_changed: tuple[ResourcePattern, ...] = ()
    tokens_changed: tuple[str, ...] = ()
    deletions_changed: tuple[str, ...] = ()
    """Sorted: topics whose deletion was asked for by a node, or is so no more."""
    controller_changed: bool = False
    unreadable_changed: tuple[str, ...] = ()
    """Sorted paths of nodes that cannot be read any more, or can again, or differ."""

    def __bool__(self) -> bool:
        return self != _NOTHING


_NOTHING = ImageDelta()
