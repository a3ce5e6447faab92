"""What AlterReplicaLogDirs asks for and answers, by partitions instead of nested lists."""

from __future__ import annotations

from collections.abc import Mapping

from strandline.errors import ErrorCode
from strandline.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from strandline.types import TopicPartition


def wanted_places(request: AlterReplicaLogDirsRequest) -> dict[TopicPartition, str]:
    """Where each replica is to lie; of two directories for a partition the last counts."""
    return {
        TopicPartition(topic.name, number): each.path
        for each in request.dirs
        for topic in each.topics
        for number in topic.partitions
    }


def places_answer(codes: Mapping[TopicPartition, ErrorCode]) -> AlterReplicaLogDirsResponse:
    """The answer with a code for each replica."""
    topics: dict[str, AlterReplicaLogDirTopicResult] = {}
    for partition, code in codes.items():
        topic = topics.setdefault(
            partition.topic, AlterReplicaLogDirTopicResult(topic_name=partition.topic)
        )
        topic.partitions.append(
            AlterReplicaLogDirPartitionResult(partition_index=partition.partition, error_code=code)
        )
    return AlterReplicaLogDirsResponse(results=list(topics.values()))
