"""ReadShareGroupState: the leader of a partition reads the state that was kept (KIP-932)."""

from __future__ import annotations

from uuid import UUID

from strandline.protocol.declare import (
    array,
    int8,
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
    leader_epoch: int = int32()


@structure
class ReadStateData:
    """Partitions of one topic."""

    topic_id: UUID = uuid()
    partitions: list[PartitionData] = array(PartitionData)


@message("0", flexible="0+")
class ReadShareGroupStateRequest:
    """Of which share partitions, under which epochs of their leaders."""

    group_id: str = string()
    topics: list[ReadStateData] = array(ReadStateData)


@structure
class StateBatch:
    """Records in the same state.

    0: available, 2: acknowledged, 4: archived.
    """

    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


@structure
class PartitionResult:
    """What became of one partition."""

    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string(default=None)
    state_epoch: int = int32()
    start_offset: int = int64()
    state_batches: list[StateBatch] = array(StateBatch)


@structure
class ReadStateResult:
    """What was kept of one topic."""

    topic_id: UUID = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


@message("0", flexible="0+")
class ReadShareGroupStateResponse:
    """What was kept."""

    results: list[ReadStateResult] = array(ReadStateResult)
