"""OffsetDelete: forget a group's offsets for some partitions (KIP-496)."""

from __future__ import annotations

from strandline.protocol.declare import (
    array,
    int16,
    int32,
    message,
    string,
    structure,
)


@structure
class OffsetDeleteRequestPartition:
    """One partition."""

    partition_index: int = int32()


@structure
class OffsetDeleteRequestTopic:
    """Partitions of one topic."""

    name: str = string()
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)


@message("0")
class OffsetDeleteRequest:
    """The offsets to forget."""

    group_id: str = string()
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)


@structure
class OffsetDeleteResponsePartition:
    """Outcome for one partition."""

    partition_index: int = int32()
    error_code: int = int16()


@structure
class OffsetDeleteResponseTopic:
    """Partitions of one topic."""

    name: str = string()
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)


@message("0")
class OffsetDeleteResponse:
    """Outcome per partition."""

    error_code: int = int16()
    throttle_time_ms: int = int32()
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic)
