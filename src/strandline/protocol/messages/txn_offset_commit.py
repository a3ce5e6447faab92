"""TxnOffsetCommit: store how far a group has read, as part of a transaction."""

from __future__ import annotations

from strandline.protocol.declare import (
    array,
    int16,
    int32,
    int64,
    message,
    nullable_string,
    string,
    structure,
)


@structure
class TxnOffsetCommitRequestPartition:
    """Offset and note for one partition."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("2+", default=-1, ignorable=True)
    committed_metadata: str | None = nullable_string()


@structure
class TxnOffsetCommitRequestTopic:
    """Partitions of one topic."""

    name: str = string()
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition)


@message("0-5", flexible="3+")
class TxnOffsetCommitRequest:
    """Offsets to store when the transaction commits."""

    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id: int = int32("3+", default=-1)
    member_id: str = string("3+")
    group_instance_id: str | None = nullable_string("3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic)


@structure
class TxnOffsetCommitResponsePartition:
    """Outcome for one partition."""

    partition_index: int = int32()
    error_code: int = int16()


@structure
class TxnOffsetCommitResponseTopic:
    """Partitions of one topic."""

    name: str = string()
    partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition)


@message("0-5", flexible="3+")
class TxnOffsetCommitResponse:
    """Outcome per partition."""

    throttle_time_ms: int = int32()
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic)
