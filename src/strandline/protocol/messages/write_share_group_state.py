"""WriteShareGroupState: the leader of a partition has changes of the state kept (KIP-932)."""

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
class StateBatch:
    """Records in the same state.

    0: available, 2: acknowledged, 4: archived.
    """

    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


@structure
class PartitionData:
    """One partition."""

    partition: int = int32()
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32("1+", default=-1, ignorable=True)
    state_batches: list[StateBatch] = array(StateBatch)


@structure
class WriteStateData:
    """Partitions of one topic."""

    topic_id: UUID = uuid()
    partitions: list[PartitionData] = array(PartitionData)


@message("0-1", flexible="0+")
class WriteShareGroupStateRequest:
    """What changed in share partitions."""

    group_id: str = string()
    topics: list[WriteStateData] = array(WriteStateData)


@structure
class PartitionResult:
    """What became of one partition."""

    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string(default=None)


@structure
class WriteStateResult:
    """What became of one topic."""

    topic_id: UUID = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


@message("0-1", flexible="0+")
class WriteShareGroupStateResponse:
    """What became of it."""

    results: list[WriteStateResult] = array(WriteStateResult)
