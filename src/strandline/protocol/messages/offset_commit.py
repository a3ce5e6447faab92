"""OffsetCommit: store how far a group has read."""

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
class OffsetCommitRequestPartition:
    """Offset and note for one partition."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("6+", default=-1, ignorable=True)
    committed_metadata: str | None = nullable_string()


@structure
class OffsetCommitRequestTopic:
    """Partitions of one topic."""

    name: str = string("0-9", ignorable=True)
    topic_id: UUID = uuid("10+", ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


@message("2-10", flexible="8+")
class OffsetCommitRequest:
    """Offsets to store for a group, with the committer's membership."""

    group_id: str = string()
    generation_id_or_member_epoch: int = int32(default=-1)
    member_id: str = string()
    group_instance_id: str | None = nullable_string("7+", default=None)
    retention_time_ms: int = int64("2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


@structure
class OffsetCommitResponsePartition:
    """Outcome for one partition."""

    partition_index: int = int32()
    error_code: int = int16()


@structure
class OffsetCommitResponseTopic:
    """Partitions of one topic."""

    name: str = string("0-9", ignorable=True)
    topic_id: UUID = uuid("10+", ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


@message("2-10", flexible="8+")
class OffsetCommitResponse:
    """Outcome per partition."""

    throttle_time_ms: int = int32("3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)
