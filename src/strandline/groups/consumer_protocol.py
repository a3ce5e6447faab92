"""What consumers tell one another inside a group: subscriptions and assignments.

To the coordinator these are opaque bytes, with two exceptions: it must know which topics a group
subscribes to, to keep their offsets from expiring; and it shows people who owns what. Every later
version only adds fields at the end, so the fields of version 0 are read and the rest is left alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, TypeVar

from strandline.errors import CorruptRecords, MalformedFrame
from strandline.protocol.coordinator_log import read_number
from strandline.protocol.framing import REQUEST_ELEMENTS_MAX
from strandline.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from strandline.protocol.messages.consumer_protocol import TopicPartition as TopicPartitions
from strandline.protocol.schema import decode_from, encode_versioned
from strandline.types import TopicPartition

CONSUMER_PROTOCOL_TYPE: Final = "consumer"

VERSION_MAX: Final = 3
_VERSION_BYTES = 2

T = TypeVar("T")


def subscribed_topics(subscription: bytes) -> frozenset[str]:
    """The topics of a subscription. Raises `CorruptRecords`."""
    return frozenset(_read(ConsumerProtocolSubscription, subscription).topics)


def assigned_partitions(assignment: bytes) -> tuple[TopicPartition, ...]:
    """The partitions of an assignment. Raises `CorruptRecords`."""
    if not assignment:
        return ()
    return tuple(
        TopicPartition(assigned.topic, partition)
        for assigned in _read(ConsumerProtocolAssignment, assignment).assigned_partitions
        for partition in assigned.partitions
    )


def read_subscription(subscription: bytes) -> ConsumerProtocolSubscription:
    """A subscription with everything that its version has. Raises `CorruptRecords`."""
    return _read(ConsumerProtocolSubscription, subscription, version_of(subscription))


def read_assignment(assignment: bytes) -> ConsumerProtocolAssignment:
    """An assignment with what its assignor wrote for itself. Raises `CorruptRecords`."""
    return _read(ConsumerProtocolAssignment, assignment, version_of(assignment))


def written_assignment(partitions: Mapping[str, Collection[int]], subscription: bytes) -> bytes:
    """An assignment for a member with this subscription, in its version. Raises
    `CorruptRecords`."""
    assigned = [
        TopicPartitions(topic=topic, partitions=sorted(numbers))
        for topic, numbers in partitions.items()
    ]
    message = ConsumerProtocolAssignment(assigned_partitions=assigned)
    return encode_versioned(message, version_of(subscription))


def version_of(data: bytes) -> int:
    """The version in which a subscription or assignment is written, of those that are known."""
    return max(0, min(read_number(data), VERSION_MAX))


def _read(declared: type[T], data: bytes, version: int = 0) -> T:
    try:
        return decode_from(declared, version, data, _VERSION_BYTES, REQUEST_ELEMENTS_MAX)[0]
    except MalformedFrame as error:
        raise CorruptRecords(str(error)) from error
