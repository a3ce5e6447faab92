"""AlterPartitionReassignments: move partitions to other brokers (KIP-455).

Null replicas cancel a move that is under way.
"""

from __future__ import annotations

from strandline.protocol.declare import (
    INT32,
    array,
    boolean,
    int16,
    int32,
    message,
    nullable_array,
    nullable_string,
    string,
    structure,
)


@structure
class ReassignablePartition:
    """Where one partition is to live; null cancels."""

    partition_index: int = int32()
    replicas: list[int] | None = nullable_array(INT32, null_by_default=True)


@structure
class ReassignableTopic:
    """Partitions of one topic."""

    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


@message("0-1", flexible="0+")
class AlterPartitionReassignmentsRequest:
    """The moves to begin or cancel."""

    timeout_ms: int = int32(default=60_000)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


@structure
class ReassignablePartitionResponse:
    """Outcome for one partition."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()


@structure
class ReassignableTopicResponse:
    """Partitions of one topic."""

    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


@message("0-1", flexible="0+")
class AlterPartitionReassignmentsResponse:
    """Outcome per partition."""

    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean("1+", default=True, ignorable=True)
    error_code: int = int16()
    error_message: str | None = nullable_string()
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)
