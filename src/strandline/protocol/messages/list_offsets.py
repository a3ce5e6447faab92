"""ListOffsets: the offset that belongs to a timestamp, or the first or last offset of a log.

Negative timestamps ask for special offsets: -1 latest, -2 earliest, -3 of the largest timestamp,
-4 earliest local, -5 latest tiered, -6 earliest pending upload.
"""

from __future__ import annotations

from strandline.protocol.declare import (
    array,
    int8,
    int16,
    int32,
    int64,
    message,
    string,
    structure,
)


@structure
class ListOffsetsPartition:
    """The time to look up in one partition."""

    partition_index: int = int32()
    current_leader_epoch: int = int32("4+", default=-1, ignorable=True)
    timestamp: int = int64()


@structure
class ListOffsetsTopic:
    """Partitions of one topic."""

    name: str = string()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


@message("1-11", flexible="6+")
class ListOffsetsRequest:
    """Times to look up."""

    replica_id: int = int32()
    isolation_level: int = int8("2+")
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32("10+", ignorable=True)


@structure
class ListOffsetsPartitionResponse:
    """The first offset at or after the time, or -1."""

    partition_index: int = int32()
    error_code: int = int16()
    timestamp: int = int64(default=-1)
    offset: int = int64(default=-1)
    leader_epoch: int = int32("4+", default=-1)


@structure
class ListOffsetsTopicResponse:
    """Partitions of one topic."""

    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


@message("1-11", flexible="6+")
class ListOffsetsResponse:
    """The offsets found."""

    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)
