"""DeleteRecords: give up what lies before an offset."""

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
class DeleteRecordsPartition:
    """What lies before `offset` goes; -1 stands for the high watermark."""

    partition_index: int = int32()
    offset: int = int64()


@structure
class DeleteRecordsTopic:
    """Partitions of one topic."""

    name: str = string()
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition)


@message("0-2", flexible="2+")
class DeleteRecordsRequest:
    """Where each log is to start."""

    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic)
    timeout_ms: int = int32()


@structure
class DeleteRecordsPartitionResult:
    """The smallest log start among the replicas afterwards."""

    partition_index: int = int32()
    low_watermark: int = int64()
    error_code: int = int16()


@structure
class DeleteRecordsTopicResult:
    """Partitions of one topic."""

    name: str = string()
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult)


@message("0-2", flexible="2+")
class DeleteRecordsResponse:
    """Outcome per partition."""

    throttle_time_ms: int = int32()
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult)
