"""ElectLeaders: elect the preferred leader, or any live replica (KIP-460)."""

from __future__ import annotations

from strandline.protocol.declare import (
    INT32,
    array,
    int8,
    int16,
    int32,
    message,
    nullable_array,
    nullable_string,
    string,
    structure,
)


@structure
class TopicPartitions:
    """Partitions of one topic."""

    topic: str = string()
    partitions: list[int] = array(INT32)


@message("0-2", flexible="2+")
class ElectLeadersRequest:
    """The partitions, null for all; type 0 elects the preferred leader, 1 any live replica."""

    election_type: int = int8("1+")
    topic_partitions: list[TopicPartitions] | None = nullable_array(TopicPartitions)
    timeout_ms: int = int32(default=60_000)


@structure
class PartitionResult:
    """Outcome for one partition."""

    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()


@structure
class ReplicaElectionResult:
    """Partitions of one topic."""

    topic: str = string()
    partition_result: list[PartitionResult] = array(PartitionResult)


@message("0-2", flexible="2+")
class ElectLeadersResponse:
    """Outcome per partition."""

    throttle_time_ms: int = int32()
    error_code: int = int16("1+")
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)
