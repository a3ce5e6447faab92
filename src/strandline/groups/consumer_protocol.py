"""What consumers tell one another inside a group: subscriptions and assignments.

To the coordinator these are opaque bytes, with two exceptions: it must know which topics a group
subscribes to, to keep their offsets from expiring; and it shows people who owns what. Every later
version only adds fields at the end, so the fields of version 0 are read and the rest is left alone.
"""

from __future__ import annotations

from typing import Final, TypeVar

from strandline.errors import CorruptRecords, MalformedFrame
from strandline.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from strandline.protocol.schema import decode_from
from strandline.types import TopicPartition

CONSUMER_PROTOCOL_TYPE: Final = "consumer"

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


def _read(declared: type[T], data: bytes) -> T:
    try:
        return decode_from(declared, 0, data, _VERSION_BYTES)[0]
    except MalformedFrame as error:
        raise CorruptRecords(str(error)) from error
