"""ReadShareGroupStateSummary: where share partitions start (KIP-932)."""

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
    leader_epoch: int = int32()


@structure
class ReadStateSummaryData:
    """Partitions of one topic."""

    topic_id: UUID = uuid()
    partitions: list[PartitionData] = array(PartitionData)


@message("0-1", flexible="0+")
class ReadShareGroupStateSummaryRequest:
    """Of which share partitions."""

    group_id: str = string()
    topics: list[ReadStateSummaryData] = array(ReadStateSummaryData)


@structure
class PartitionResult:
    """What became of one partition."""

    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string(default=None)
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32("1+", default=-1, ignorable=True)


@structure
class ReadStateSummaryResult:
    """Where the partitions of one topic start."""

    topic_id: UUID = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


@message("0-1", flexible="0+")
class ReadShareGroupStateSummaryResponse:
    """Where they start."""

    results: list[ReadStateSummaryResult] = array(ReadStateSummaryResult)
