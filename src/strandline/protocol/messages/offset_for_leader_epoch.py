"""OffsetForLeaderEpoch: where an epoch ended in the leader's log (KIP-101, KIP-279)."""

from __future__ import annotations

from strandline.protocol.declare import (
    array,
    int16,
    int32,
    int64,
    message,
    string,
    structure,
)


@structure
class OffsetForLeaderPartition:
    """The epoch in question, and the one in which the asker believes to be."""

    partition: int = int32()
    current_leader_epoch: int = int32(default=-1)
    leader_epoch: int = int32()


@structure
class OffsetForLeaderTopic:
    """Partitions of one topic."""

    topic: str = string()
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


@message("2-4", flexible="4+")
class OffsetForLeaderEpochRequest:
    """Epochs to look up. Replica id -2 is a debugging consumer, -1 a consumer."""

    replica_id: int = int32("3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


@structure
class EpochEndOffset:
    """The largest epoch at or below the one in question, and where it ends."""

    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


@structure
class OffsetForLeaderTopicResult:
    """Partitions of one topic."""

    topic: str = string()
    partitions: list[EpochEndOffset] = array(EpochEndOffset)


@message("2-4", flexible="4+")
class OffsetForLeaderEpochResponse:
    """The ends found."""

    throttle_time_ms: int = int32()
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)
