"""AlterReplicaLogDirs: move replicas of a broker between its log directories."""

from __future__ import annotations

from strandline.protocol.declare import (
    INT32,
    array,
    int16,
    int32,
    message,
    string,
    structure,
)


@structure
class AlterReplicaLogDirTopic:
    """Partitions of one topic."""

    name: str = string()
    partitions: list[int] = array(INT32)


@structure
class AlterReplicaLogDir:
    """A directory, and what is to lie in it."""

    path: str = string()
    topics: list[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic)


@message("1-2", flexible="2+")
class AlterReplicaLogDirsRequest:
    """Where replicas of the broker that is asked are to lie."""

    dirs: list[AlterReplicaLogDir] = array(AlterReplicaLogDir)


@structure
class AlterReplicaLogDirPartitionResult:
    """Whether one replica moves."""

    partition_index: int = int32()
    error_code: int = int16()


@structure
class AlterReplicaLogDirTopicResult:
    """Partitions of one topic."""

    topic_name: str = string()
    partitions: list[AlterReplicaLogDirPartitionResult] = array(AlterReplicaLogDirPartitionResult)


@message("1-2", flexible="2+")
class AlterReplicaLogDirsResponse:
    """Whether they move; they are moved after this."""

    throttle_time_ms: int = int32()
    results: list[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult)
