"""InitializeShareGroupState: a share partition begins (KIP-932)."""

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
class PartitionData:
    """One partition."""

    partition: int = int32()
    state_epoch: int = int32()
    start_offset: int = int64()


@structure
class InitializeStateData:
    """Partitions of one topic."""

    topic_id: UUID = uuid()
    partitions: list[PartitionData] = array(PartitionData)


@message("0", flexible="0+")
class InitializeShareGroupStateRequest:
    """The share partitions that begin, each with its state epoch."""

    group_id: str = string()
    topics: list[InitializeStateData] = array(InitializeStateData)


@structure
class PartitionResult:
    """What became of one partition."""

    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string(default=None)


@structure
class InitializeStateResult:
    """What became of one topic."""

    topic_id: UUID = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


@message("0", flexible="0+")
class InitializeShareGroupStateResponse:
    """What became of them."""

    results: list[InitializeStateResult] = array(InitializeStateResult)
