"""A topic's nodes: which brokers hold its partitions, and who leads each partition.

`/brokers/topics/<t>` changes only when partitions are added or moved:

    {"version": 3, "topic_id": "<22 characters>", "partitions": {"0": [1, 2, 3]},
     "adding_replicas": {"0": [3]}, "removing_replicas": {}}

`/brokers/topics/<t>/partitions/<p>/state` changes with every election and in-sync change; the
version of this node *is* the partition epoch:

    {"version": 1, "controller_epoch": 4, "leader": 1, "leader_epoch": 7, "isr": [1, 2],
     "leader_recovery_state": 1,                        only while the leader recovers (KIP-704)
     "isr_epochs": {"1": 77, "2": 91, "3": 64},         of our own
     "elr": [3], "last_known_elr": []}                  of our own: only when there are any

Keys of our own are passed over by Kafka's readers. `isr_epochs` has the broker epoch under which
each member of `isr` and `elr` was last known to be complete, so that a later controller sees that
a member restarted in between (KIP-380, KIP-903). `elr` and `last_known_elr` are those of KIP-966.

The nodes in between are empty and are always made and removed together with the state. A node
`/admin/delete_topics/<t>` asks for a deletion that is carried out later: of the topic whose node
was made before it, not of one that takes the name afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, cast

from strandline.cluster.identifiers import uuid_from_text, uuid_text
from strandline.cluster.store import MalformedNode
from strandline.cluster.znodes.content import (
    Content,
    Extra,
    Json,
    encoded,
    replicas_json,
)
from strandline.types import NO_TOPIC_ID, BrokerId, LeaderEpoch, TopicId, TopicPartition

ROOT: Final = "/brokers/topics"
DELETIONS: Final = "/admin/delete_topics"
LEADER_DURING_DELETION: Final = BrokerId(-2)
RECOVERING: Final = 1
_TOPIC_VERSION: Final = 3
_STATE_VERSION: Final = 1

Replicas = tuple[BrokerId, ...]


@dataclass(frozen=True, slots=True)
class TopicNode:
    """Assignment of a topic. `topic_id` is the zero id where a very old controller wrote it."""

    name: str
    topic_id: TopicId
    partitions: Mapping[int, Replicas]
    adding_replicas: Mapping[int, Replicas] = field(default_factory=dict)
    removing_replicas: Mapping[int, Replicas] = field(default_factory=dict)
    extra: Extra = field(default_factory=dict)

    @property
    def path(self) -> str:
        return topic_path(self.name)

    def encode(self) -> bytes:
        values: dict[str, Json] = {"version": _TOPIC_VERSION}
        if self.topic_id != NO_TOPIC_ID:
            values["topic_id"] = uuid_text(self.topic_id)
        values["partitions"] = replicas_json(self.partitions)
        values["adding_replicas"] = replicas_json(self.adding_replicas)
        values["removing_replicas"] = replicas_json(self.removing_replicas)
        return encoded(values, self.extra)

    @classmethod
    def decode(cls, name: str, data: bytes) -> TopicNode:
        content = Content(topic_path(name), data)
        content.integer("version")
        text = content.optional_text("topic_id")
        try:
            topic_id = NO_TOPIC_ID if text is None else uuid_from_text(text)
        except ValueError as error:
            raise content.malformed(str(error)) from error
        return cls(
            name=name,
            topic_id=topic_id,
            partitions=_replicas(content, "partitions"),
            adding_replicas=_replicas(content, "adding_replicas"),
            removing_replicas=_replicas(content, "removing_replicas"),
            extra=content.rest(),
        )


@dataclass(frozen=True, slots=True)
class PartitionStateNode:
    """Who leads a partition, since which epoch, and who is in sync.

    `controller_epoch` is that of the controller that wrote it last.
    """

    leader: BrokerId
    leader_epoch: LeaderEpoch
    in_sync_replicas: Replicas
    controller_epoch: int
    is_recovering: bool = False
    extra: Extra = field(default_factory=dict)
    in_sync_epochs: Mapping[BrokerId, int] = field(default_factory=dict)
    """Broker epochs of the members of `in_sync_replicas` and `elr`."""
    elr: Replicas = ()
    """Not in sync, but known to hold every committed record; disjoint from those in sync."""
    last_known_elr: Replicas = ()
    """Were complete, and restarted since without having shut down cleanly."""

    def encode(self) -> bytes:
        values: dict[str, Json] = {
            "version": _STATE_VERSION,
            "controller_epoch": self.controller_epoch,
            "leader": self.leader,
            "leader_epoch": self.leader_epoch,
            "isr": list[Json](self.in_sync_replicas),
        }
        if self.is_recovering:
            values["leader_recovery_state"] = RECOVERING
        if self.in_sync_epochs:
            epochs = sorted(self.in_sync_epochs.items())
            values["isr_epochs"] = {str(broker): epoch for broker, epoch in epochs}
        if self.elr:
            values["elr"] = list[Json](self.elr)
        if self.last_known_elr:
            values["last_known_elr"] = list[Json](self.last_known_elr)
        return encoded(values, self.extra)

    @classmethod
    def decode(cls, partition: TopicPartition, data: bytes) -> PartitionStateNode:
        """Of equal states there is one object: very many partitions are led by the same broker."""
        try:
            return _known_state(data)
        except MalformedNode:
            return _state_in(Content(state_path(partition), data))


@lru_cache(maxsize=1024)
def _known_state(data: bytes) -> PartitionStateNode:
    return _state_in(Content("a state", data))


def _state_in(content: Content) -> PartitionStateNode:
    content.integer("version")
    return PartitionStateNode(
        leader=BrokerId(content.integer("leader")),
        leader_epoch=LeaderEpoch(content.integer("leader_epoch")),
        in_sync_replicas=cast(Replicas, content.integers("isr")),
        controller_epoch=content.integer("controller_epoch"),
        is_recovering=content.integer("leader_recovery_state", 0) == RECOVERING,
        in_sync_epochs=cast("dict[BrokerId, int]", content.integer_mapping("isr_epochs")),
        elr=cast(Replicas, content.optional_integers("elr")),
        last_known_elr=cast(Replicas, content.optional_integers("last_known_elr")),
        extra=content.rest(),
    )


def topic_path(topic: str) -> str:
    """The node with the topic's assignment."""
    return f"{ROOT}/{topic}"


def partitions_path(topic: str) -> str:
    """The empty node above a topic's partitions."""
    return f"{ROOT}/{topic}/partitions"


def partition_path(partition: TopicPartition) -> str:
    """The empty node above a partition's state."""
    return f"{ROOT}/{partition.topic}/partitions/{partition.partition}"


def state_path(partition: TopicPartition) -> str:
    """The node with a partition's leader and in-sync replicas."""
    return f"{partition_path(partition)}/state"


def deletion_path(topic: str) -> str:
    """The node that asks for the topic's deletion."""
    return f"{DELETIONS}/{topic}"


def _replicas(content: Content, key: str) -> Mapping[int, Replicas]:
    return cast("dict[int, Replicas]", content.replica_mapping(key))
