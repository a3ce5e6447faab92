"""ShareFetch: members of share groups acquire records, and acknowledge them (KIP-932)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from strandline.protocol.declare import (
    INT8,
    INT32,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    message,
    nullable_string,
    one,
    records,
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
class FetchPartition:
    """A partition to read from, and what became of its records."""

    partition_index: int = int32()
    acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch)


@structure
class FetchTopic:
    """Partitions of one topic."""

    topic_id: UUID = uuid()
    partitions: list[FetchPartition] = array(FetchPartition)


@structure
class ForgottenTopic:
    """Partitions to take out of the session."""

    topic_id: UUID = uuid()
    partitions: list[int] = array(INT32)


@message("1-2", flexible="0+")
class ShareFetchRequest:
    """A member wants records, and says what became of earlier ones."""

    group_id: str | None = nullable_string(default=None)
    member_id: str | None = nullable_string()
    share_session_epoch: int = int32()
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=2147483647)
    max_records: int = int32()
    batch_size: int = int32()
    share_acquire_mode: int = int8("2+", ignorable=True)
    is_renew_ack: bool = boolean("2+")
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic)


@structure
class LeaderIdAndEpoch:
    """Who leads a partition."""

    leader_id: int = int32()
    leader_epoch: int = int32()


@structure
class AcquiredRecords:
    """A range of records that belongs to the member now."""

    first_offset: int = int64()
    last_offset: int = int64()
    delivery_count: int = int16()


@structure
class PartitionData:
    """One partition."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string(default=None)
    acknowledge_error_code: int = int16()
    acknowledge_error_message: str | None = nullable_string(default=None)
    current_leader: LeaderIdAndEpoch = one(LeaderIdAndEpoch)
    records: Any = records(nullable="none")
    acquired_records: list[AcquiredRecords] = array(AcquiredRecords)


@structure
class ShareFetchableTopicResponse:
    """Records of one topic."""

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
class ShareFetchResponse:
    """Records, which ranges of them are the member's, and whether acknowledgements count."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string(default=None)
    acquisition_lock_timeout_ms: int = int32()
    responses: list[ShareFetchableTopicResponse] = array(ShareFetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint)
