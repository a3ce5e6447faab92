"""What consumers of a classic group tell one another; brokers pass it on unread.

Each message stands behind its version as int16: see `schema.encode_versioned`. These bytes fill
`metadata` of JoinGroup and `assignment` of SyncGroup.
"""

from __future__ import annotations

from strandline.protocol.declare import (
    INT32,
    STRING,
    array,
    int32,
    message,
    nullable_binary,
    nullable_string,
    string,
    structure,
)


@structure
class TopicPartition:
    """Partitions of one topic."""

    topic: str = string()
    partitions: list[int] = array(INT32)


@message("0-3")
class ConsumerProtocolSubscription:
    """What a consumer wants to read, and what it reads now (KIP-429)."""

    topics: list[str] = array(STRING)
    user_data: bytes | None = nullable_binary(default=None)
    owned_partitions: list[TopicPartition] = array(TopicPartition, "1+", ignorable=True)
    generation_id: int = int32("2+", default=-1, ignorable=True)
    rack_id: str | None = nullable_string("3+", default=None, ignorable=True)


@message("0-3")
class ConsumerProtocolAssignment:
    """What a consumer gets to read."""

    assigned_partitions: list[TopicPartition] = array(TopicPartition)
    user_data: bytes | None = nullable_binary(default=None)
