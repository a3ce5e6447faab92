"""What a message of librdkafka carries that was delivered: its annotations take all for absent."""

from __future__ import annotations

from confluent_kafka import Message


def value_of(message: Message) -> bytes:
    """Its value, which is there."""
    value = message.value()
    assert value is not None
    return value


def offset_of(message: Message) -> int:
    """Where it lies in its partition."""
    offset = message.offset()
    assert offset is not None
    return offset


def partition_of(message: Message) -> int:
    """The number of its partition."""
    partition = message.partition()
    assert partition is not None
    return partition
