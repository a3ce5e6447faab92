"""ShareAcknowledge: members of share groups say what became of records (KIP-932)."""

from __future__ import annotations

from uuid import UUID

from strandline.protocol.declare import (
    INT8,
    array,
    boolean,
    int16,
    int32,
    int64,
    message,
    nullable_string,
    one,
    string,
    structure,
    uuid,
)


@structure
class AcknowledgementBatch:
    """What became of records: one type for all, or one for each.

    0: there is none (a gap), 1: accepted, 2: released, 3: rejected, 4: still being worked on.
    """

    first_offset: int = int64()
    last_offset: int = int64()
    acknowledge_types: list[int] = array(INT8)


@structure
class AcknowledgePartition:
    """What became of records of one partition."""

    partition_index: int = int32()
    acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch)


@structure
class AcknowledgeTopic:
    """What became of records of one topic."""

    topic_id: UUID = uuid()
    partitions: list[AcknowledgePartition] = array(AcknowledgePartition)


@message("1-2", flexible="0+")
class ShareAcknowledgeRequest:
    """What became of records that the member had acquired."""

    group_id: str | None = nullable_string(default=None)
    member_id: str | None = nullable_string()
    share_session_epoch: int = int32()
    is_renew_ack: bool = boolean("2+")
    topics: list[AcknowledgeTopic] = array(AcknowledgeTopic)


@structure
class LeaderIdAndEpoch:
    """Who leads a partition."""

    leader_id: int = int32()
    leader_epoch: int = int32()


@structure
class PartitionData:
    """One partition."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string(default=None)
    current_leader: LeaderIdAndEpoch = one(LeaderIdAndEpoch)


@structure
class ShareAcknowledgeTopicResponse:
    """Whether that counts, for one topic."""

    topic_id: UUID = uuid()
    partitions: list[PartitionData] = array(PartitionData)


@structure
class NodeEndpoint:
    """Where a leader is reached."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = nullable_string(default=None)


@message("1-2", flexible="0+")
class ShareAcknowledgeResponse:
    """Whether that counts."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string(default=None)
    acquisition_lock_timeout_ms: int = int32("2+", ignorable=True)
    responses: list[ShareAcknowledgeTopicResponse] = array(ShareAcknowledgeTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint)
