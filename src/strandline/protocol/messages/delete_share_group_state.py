"""DeleteShareGroupState: share partitions end (KIP-932)."""

from __future__ import annotations

from uuid import UUID

from strandline.protocol.declare import (
    array,
    int16,
    int32,
    message,
    nullable_string,
    string,
    structure,
    uuid,
)


@structure
class PartitionData:
    """One partition."""

    partition: int = int32()


@structure
class DeleteStateData:
    """Partitions of one topic."""

    topic_id: UUID = uuid()
    partitions: list[PartitionData] = array(PartitionData)


@message("0", flexible="0+")
class DeleteShareGroupStateRequest:
    """The share partitions that end."""

    group_id: str = string()
    topics: list[DeleteStateData] = array(DeleteStateData)


@structure
class PartitionResult:
    """What became of one partition."""

    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string(default=None)


@structure
class DeleteStateResult:
    """What became of one topic."""

    topic_id: UUID = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


@message("0", flexible="0+")
class DeleteShareGroupStateResponse:
    """What became of them."""

    results: list[DeleteStateResult] = array(DeleteStateResult)
