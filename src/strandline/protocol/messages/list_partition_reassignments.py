"""ListPartitionReassignments: the moves that are under way (KIP-455)."""

from __future__ import annotations

from strandline.protocol.declare import (
    INT32,
    array,
    int16,
    int32,
    message,
    nullable_array,
    nullable_string,
    string,
    structure,
)


@structure
class ListPartitionReassignmentsTopics:
    """Partitions of one topic."""

    name: str = string()
    partition_indexes: list[int] = array(INT32)


@message("0", flexible="0+")
class ListPartitionReassignmentsRequest:
    """The partitions of interest; null for all."""

    timeout_ms: int = int32(default=60_000)
    topics: list[ListPartitionReassignmentsTopics] | None = nullable_array(
        ListPartitionReassignmentsTopics, null_by_default=True
    )


@structure
class OngoingPartitionReassignment:
    """One move: all replicas, those that come, those that go."""

    partition_index: int = int32()
    replicas: list[int] = array(INT32)
    adding_replicas: list[int] = array(INT32)
    removing_replicas: list[int] = array(INT32)


@structure
class OngoingTopicReassignment:
    """Partitions of one topic."""

    name: str = string()
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


@message("0", flexible="0+")
class ListPartitionReassignmentsResponse:
    """The moves."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)
