"""Fetch: read record batches, as a consumer or as a follower that replicates.

Incremental sessions (KIP-227) from version 7, divergence found by the leader (KIP-595) from 12,
topic ids (KIP-516) from 13, the replica's identity as a tagged field (KIP-903) from 15.
"""

from __future__ import annotations

from uuid import UUID

from strandline.protocol.declare import (
    INT32,
    array,
    int8,
    int16,
    int32,
    int64,
    message,
    nullable_array,
    nullable_string,
    records,
    string,
    structure,
    tagged_one,
    uuid,
)
from strandline.protocol.wire import Records


@structure
class ReplicaState:
    """The follower that fetches, with the epoch of its registration (KIP-903)."""

    replica_id: int = int32(default=-1)
    replica_epoch: int = int64(default=-1)


@structure
class FetchPartition:
    """From where to read one partition, and what a follower knows of it."""

    partition: int = int32()
    current_leader_epoch: int = int32("9+", default=-1, ignorable=True)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32("12+", default=-1)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    partition_max_bytes: int = int32()
    replica_directory_id: UUID = uuid("17+", tag=0, ignorable=True)
    high_watermark: int = int64("18+", default=0x7FFF_FFFF_FFFF_FFFF, tag=1, ignorable=True)


@structure
class FetchTopic:
    """Partitions of one topic."""

    topic: str = string("0-12", ignorable=True)
    topic_id: UUID = uuid("13+", ignorable=True)
    partitions: list[FetchPartition] = array(FetchPartition)


@structure
class ForgottenTopic:
    """Partitions to drop from the session."""

    topic: str = string("7-12", ignorable=True)
    topic_id: UUID = uuid("13+", ignorable=True)
    partitions: list[int] = array(INT32)


@message("4-18", flexible="12+")
class FetchRequest:
    """What to read, how long to wait and how much to return at most."""

    cluster_id: str | None = nullable_string("12+", default=None, tag=0, ignorable=True)
    replica_id: int = int32("0-14", default=-1)
    replica_state: ReplicaState | None = tagged_one(ReplicaState, "15+", tag=1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=0x7FFF_FFFF)
    isolation_level: int = int8()
    session_id: int = int32("7+", ignorable=True)
    session_epoch: int = int32("7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, "7+")
    rack_id: str = string("11+", ignorable=True)


@structure
class EpochEndOffset:
    """The last point on which leader and follower agree."""

    epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


@structure
class LeaderIdAndEpoch:
    """Who leads now (KIP-951)."""

    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


@structure
class SnapshotId:
    """A metadata snapshot to fetch instead; only in the metadata log of KRaft."""

    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


@structure
class AbortedTransaction:
    """A transaction whose records a committed reader skips, from its first offset."""

    producer_id: int = int64()
    first_offset: int = int64()


@structure
class PartitionData:
    """Records of one partition and its watermarks."""

    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64(default=-1)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset | None = tagged_one(EpochEndOffset, "12+", tag=0)
    current_leader: LeaderIdAndEpoch | None = tagged_one(LeaderIdAndEpoch, "12+", tag=1)
    snapshot_id: SnapshotId | None = tagged_one(SnapshotId, "12+", tag=2)
    aborted_transactions: list[AbortedTransaction] | None = nullable_array(AbortedTransaction)
    preferred_read_replica: int = int32("11+", default=-1)
    records: Records | None = records()


@structure
class FetchableTopicResponse:
    """Partitions of one topic."""

    topic: str = string("0-12", ignorable=True)
    topic_id: UUID = uuid("13+", ignorable=True)
    partitions: list[PartitionData] = array(PartitionData)


@structure
class NodeEndpoint:
    """Address of a leader named in the response (KIP-951)."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = nullable_string(default=None)


@message("4-18", flexible="12+")
class FetchResponse:
    """Records, partition by partition."""

    throttle_time_ms: int = int32()
    error_code: int = int16("7+", ignorable=True)
    session_id: int = int32("7+")
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "16+", tag=0)
