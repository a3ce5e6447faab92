"""What consumers tell one another inside a group: subscriptions and assignments.

To the coordinator these are opaque bytes, with two exceptions: it must know which topics a group
subscribes to, to keep their offsets from expiring; and it shows people who owns what. Every later
version only adds fields at the end, so the fields of version 0 are read and the rest is left alone:

    subscription   version: int16, topics: array of string, user data: bytes?, ...
    assignment     version: int16, array of (topic: string, partitions: array of int32), ...
"""

from __future__ import annotations

from typing import Final

from strandline.groups.wire import Reader
from strandline.types import TopicPartition

CONSUMER_PROTOCOL_TYPE: Final = "consumer"


def subscribed_topics(subscription: bytes) -> frozenset[str]:
    """The topics of a subscription. Raises `CorruptRecords`."""
    reader = Reader(subscription)
    reader.int16()
    topics = frozenset(reader.string() for _ in range(reader.count()))
    user_data_bytes = reader.int32()
    if user_data_bytes >= 0:
        reader.take(user_data_bytes)  # a cut-off subscription must not pass for a whole one
    return topics


def assigned_partitions(assignment: bytes) -> tuple[TopicPartition, ...]:
    """The partitions of an assignment. Raises `CorruptRecords`."""
    if not assignment:
        return ()
    reader = Reader(assignment)
    reader.int16()
    partitions = []
    for _ in range(reader.count()):
        topic = reader.string()
        partitions += [TopicPartition(topic, reader.int32()) for _ in range(reader.count())]
    return tuple(partitions)
