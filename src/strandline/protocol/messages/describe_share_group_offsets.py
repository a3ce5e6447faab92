"""DescribeShareGroupOffsets: where share groups are in their topics (KIP-932)."""

from __future__ import annotations

from uuid import UUID

from strandline.protocol.declare import (
    INT32,
    array,
    int16,
    int32,
    int64,
    message,
    nullable_array,
    nullable_string,
    string,
    structure,
    uuid,
)


@structure
class DescribeShareGroupOffsetsRequestTopic:
    """Partitions of one topic."""

    topic_name: str = string()
    partitions: list[int] = array(INT32)


@structure
class DescribeShareGroupOffsetsRequestGroup:
    """A group, with topics; null: all that it has."""

    group_id: str = string()
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = nullable_array(
        DescribeShareGroupOffsetsRequestTopic
    )


@message("0-1", flexible="0+")
class DescribeShareGroupOffsetsRequest:
    """The groups, and of which topics."""

    groups: list[DescribeShareGroupOffsetsRequestGroup] = array(
        DescribeShareGroupOffsetsRequestGroup
    )


@structure
class DescribeShareGroupOffsetsResponsePartition:
    """Where a group is in one partition; -1: it has not begun."""

    partition_index: int = int32()
    start_offset: int = int64()
    leader_epoch: int = int32()
    lag: int = int64("1+", default=-1, ignorable=True)
    error_code: int = int16()
    error_message: str | None = nullable_string(default=None)


@structure
class DescribeShareGroupOffsetsResponseTopic:
    """Where a group is in one topic."""

    topic_name: str = string()
    topic_id: UUID = uuid()
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = array(
        DescribeShareGroupOffsetsResponsePartition
    )


@structure
class DescribeShareGroupOffsetsResponseGroup:
    """Where one group is."""

    group_id: str = string()
    topics: list[DescribeShareGroupOffsetsResponseTopic] = array(
        DescribeShareGroupOffsetsResponseTopic
    )
    error_code: int = int16()
    error_message: str | None = nullable_string(default=None)


@message("0-1", flexible="0+")
class DescribeShareGroupOffsetsResponse:
    """Where each group is."""

    throttle_time_ms: int = int32()
    groups: list[DescribeShareGroupOffsetsResponseGroup] = array(
        DescribeShareGroupOffsetsResponseGroup
    )
