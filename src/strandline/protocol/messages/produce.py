"""Produce: append record batches to partitions.

From version 13 topics are named by id (KIP-516). Versions 0 to 2 are gone since Kafka 4.0, though
ApiVersions still shows them, see `apis.Api.advertised_versions`.
"""

from __future__ import annotations

from uuid import UUID

from strandline.protocol.declare import (
    array,
    int16,
    int32,
    int64,
    message,
    nullable_string,
    records,
    string,
    structure,
    tagged_one,
    uuid,
)


@structure
class PartitionProduceData:
    """Batches for one partition."""

    index: int = int32()
    records: memoryview | None = records()


@structure
class TopicProduceData:
    """Partitions of one topic."""

    name: str = string("0-12", ignorable=True)
    topic_id: UUID = uuid("13+", ignorable=True)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


@message("3-13", flexible="9+")
class ProduceRequest:
    """Batches to append. Acks 0 wants no answer, 1 the leader's, -1 that of all in sync."""

    transactional_id: str | None = nullable_string(default=None)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


@structure
class BatchIndexAndErrorMessage:
    """A record that made its batch be refused."""

    batch_index: int = int32()
    batch_index_error_message: str | None = nullable_string(default=None)


@structure
class LeaderIdAndEpoch:
    """Who leads now, for a client that asked the wrong broker (KIP-951)."""

    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


@structure
class PartitionProduceResponse:
    """What became of the batches of one partition."""

    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64(default=-1)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = array(
        BatchIndexAndErrorMessage, "8+", ignorable=True
    )
    error_message: str | None = nullable_string("8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch | None = tagged_one(LeaderIdAndEpoch, "10+", tag=0)


@structure
class TopicProduceResponse:
    """Partitions of one topic."""

    name: str = string("0-12", ignorable=True)
    topic_id: UUID = uuid("13+", ignorable=True)
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


@structure
class NodeEndpoint:
    """Address of a leader named in the response (KIP-951)."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = nullable_string(default=None)


@message("3-13", flexible="9+")
class ProduceResponse:
    """What became of the batches."""

    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32()
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", tag=0)
