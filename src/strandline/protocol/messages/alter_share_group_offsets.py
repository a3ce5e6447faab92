"""AlterShareGroupOffsets: put share groups elsewhere in their topics (KIP-932)."""

from __future__ import annotations

from uuid import UUID

from strandline.protocol.declare import (
    array,
    int16,
    int32,
    int64,
    message,
    nullable_string,
    string,
    structure,
    uuid,
)


@structure
class AlterShareGroupOffsetsRequestPartition:
    """Where to start."""

    partition_index: int = int32()
    start_offset: int = int64()


@structure
class AlterShareGroupOffsetsRequestTopic:
    """Partitions of one topic."""

    topic_name: str = string()
    partitions: list[AlterShareGroupOffsetsRequestPartition] = array(
        AlterShareGroupOffsetsRequestPartition
    )


@message("0", flexible="0+")
class AlterShareGroupOffsetsRequest:
    """The group, and where it is to start."""

    group_id: str = string()
    topics: list[AlterShareGroupOffsetsRequestTopic] = array(AlterShareGroupOffsetsRequestTopic)


@structure
class AlterShareGroupOffsetsResponsePartition:
    """What became of one partition."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string(default=None)


@structure
class AlterShareGroupOffsetsResponseTopic:
    """What became of one topic."""

    topic_name: str = string()
    topic_id: UUID = uuid()
    partitions: list[AlterShareGroupOffsetsResponsePartition] = array(
        AlterShareGroupOffsetsResponsePartition
    )


@message("0", flexible="0+")
class AlterShareGroupOffsetsResponse:
    """What became of it."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string(default=None)
    responses: list[AlterShareGroupOffsetsResponseTopic] = array(
        AlterShareGroupOffsetsResponseTopic
    )
