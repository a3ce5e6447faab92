"""DescribeTopicPartitions: partitions of topics, page by page (KIP-966)."""

from __future__ import annotations

from uuid import UUID

from strandline.protocol.declare import (
    INT32,
    array,
    boolean,
    int16,
    int32,
    message,
    nullable_array,
    nullable_one,
    nullable_string,
    string,
    structure,
    uuid,
)


@structure
class TopicRequest:
    """One topic."""

    name: str = string()


@structure
class Cursor:
    """The first partition of a page."""

    topic_name: str = string()
    partition_index: int = int32()


@message("0", flexible="0+")
class DescribeTopicPartitionsRequest:
    """The topics of interest, none for all, and where the page begins."""

    topics: list[TopicRequest] = array(TopicRequest)
    response_partition_limit: int = int32(default=2000)
    cursor: Cursor | None = nullable_one(Cursor)


@structure
class DescribeTopicPartitionsResponsePartition:
    """Leader and replicas of one partition."""

    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=-1)
    replica_nodes: list[int] = array(INT32)
    isr_nodes: list[int] = array(INT32)
    eligible_leader_replicas: list[int] | None = nullable_array(INT32, null_by_default=True)
    last_known_elr: list[int] | None = nullable_array(INT32, null_by_default=True)
    offline_replicas: list[int] = array(INT32)


@structure
class DescribeTopicPartitionsResponseTopic:
    """One topic with the partitions on this page."""

    error_code: int = int16()
    name: str | None = nullable_string()
    topic_id: UUID = uuid()
    is_internal: bool = boolean()
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(
        DescribeTopicPartitionsResponsePartition
    )
    topic_authorized_operations: int = int32(default=-0x8000_0000)


@message("0", flexible="0+")
class DescribeTopicPartitionsResponse:
    """A page; the cursor is null on the last one."""

    throttle_time_ms: int = int32()
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic)
    next_cursor: Cursor | None = nullable_one(Cursor)
