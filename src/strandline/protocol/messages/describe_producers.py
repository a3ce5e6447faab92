"""DescribeProducers: the producers whose state a partition's leader keeps (KIP-664)."""

from __future__ import annotations

from strandline.protocol.declare import (
    INT32,
    array,
    int16,
    int32,
    int64,
    message,
    nullable_string,
    string,
    structure,
)


@structure
class TopicRequest:
    """Partitions of one topic."""

    name: str = string()
    partition_indexes: list[int] = array(INT32)


@message("0", flexible="0+")
class DescribeProducersRequest:
    """The partitions of interest."""

    topics: list[TopicRequest] = array(TopicRequest)


@structure
class ProducerState:
    """What the leader remembers of one producer."""

    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(default=-1)
    last_timestamp: int = int64(default=-1)
    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64(default=-1)


@structure
class PartitionResponse:
    """The producers of one partition."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string(default=None)
    active_producers: list[ProducerState] = array(ProducerState)


@structure
class TopicResponse:
    """Partitions of one topic."""

    name: str = string()
    partitions: list[PartitionResponse] = array(PartitionResponse)


@message("0", flexible="0+")
class DescribeProducersResponse:
    """The producers."""

    throttle_time_ms: int = int32()
    topics: list[TopicResponse] = array(TopicResponse)
