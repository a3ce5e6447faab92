"""What the consumers of a classic group tell one another: subscriptions and assignments as bytes.

These are Kafka's bytes (`ConsumerProtocol`), so that members of other clients can lead ours and the
other way round. Brokers pass them on. Written is the newest version; read is every version, those
that are newer than this client too, because each only adds fields at the end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from strandline.errors import MalformedFrame
from strandline.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from strandline.protocol.messages.consumer_protocol import TopicPartition as TopicPartitions
from strandline.protocol.schema import decode_from, encode_versioned
from strandline.types import TopicPartition

PROTOCOL_TYPE: Final = "consumer"
NO_GENERATION: Final = -1
_NEWEST: Final = 3
_VERSION_BYTES: Final = 2

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member wants to read, and what it reads now (KIP-429)."""

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    """In which it was given what it owns."""
    user_data: bytes | None = None
    """What its assignor tells the leader."""
    rack: str | None = None


def subscription_bytes(subscription: Subscription) -> bytes:
    """The metadata of a JoinGroup request."""
    declared = ConsumerProtocolSubscription(
        topics=sorted(subscription.topics),
        user_data=subscription.user_data,
        owned_partitions=grouped(subscription.owned),
        generation_id=subscription.generation,
        rack_id=subscription.rack,
    )
    return encode_versioned(declared, _NEWEST)


def read_subscription(data: bytes) -> Subscription:
    """The subscription of a member. Raises `MalformedFrame`."""
    found = _read(ConsumerProtocolSubscription, data)
    return Subscription(
        tuple(found.topics),
        ungrouped(found.owned_partitions),
        found.generation_id,
        None if found.user_data is None else bytes(found.user_data),
        found.rack_id,
    )


def assignment_bytes(partitions: Iterable[TopicPartition]) -> bytes:
    """The assignment of one member in a SyncGroup request."""
    declared = ConsumerProtocolAssignment(assigned_partitions=grouped(partitions))
    return encode_versioned(declared, _NEWEST)


def read_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """The partitions of an assignment; none if it is empty. Raises `MalformedFrame`."""
    if not data:
        return ()
    return ungrouped(_read(ConsumerProtocolAssignment, data).assigned_partitions)


def grouped(partitions: Iterable[TopicPartition]) -> list[TopicPartitions]:
    """The partitions under their topics, in order."""
    numbers: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        numbers.setdefault(topic, []).append(partition)
    return [TopicPartitions(topic=topic, partitions=each) for topic, each in numbers.items()]


def ungrouped(topics: Iterable[TopicPartitions]) -> tuple[TopicPartition, ...]:
    """The partitions one by one."""
    return tuple(
        TopicPartition(each.topic, number) for each in topics for number in each.partitions
    )


def _read(declared: type[T], data: bytes) -> T:
    if len(data) < _VERSION_BYTES:
        raise MalformedFrame(f"{declared.__name__} has no version in front of it.")
    version = int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)
    found, _ = decode_from(declared, max(0, min(version, _NEWEST)), data, _VERSION_BYTES)
    return found
