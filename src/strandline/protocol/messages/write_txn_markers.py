"""WriteTxnMarkers: the transaction coordinator tells leaders how transactions ended."""

from __future__ import annotations

from strandline.protocol.declare import (
    INT32,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    message,
    string,
    structure,
)


@structure
class WritableTxnMarkerTopic:
    """Partitions of one topic."""

    name: str = string()
    partition_indexes: list[int] = array(INT32)


@structure
class WritableTxnMarker:
    """One ended transaction; the result is true for a commit."""

    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_result: bool = boolean()
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic)
    coordinator_epoch: int = int32()
    transaction_version: int = int8("2+", ignorable=True)


@message("1-2", flexible="1+")
class WriteTxnMarkersRequest:
    """The markers to write."""

    markers: list[WritableTxnMarker] = array(WritableTxnMarker)


@structure
class WritableTxnMarkerPartitionResult:
    """Outcome for one partition."""

    partition_index: int = int32()
    error_code: int = int16()


@structure
class WritableTxnMarkerTopicResult:
    """Partitions of one topic."""

    name: str = string()
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult)


@structure
class WritableTxnMarkerResult:
    """Outcome for one marker."""

    producer_id: int = int64()
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult)


@message("1-2", flexible="1+")
class WriteTxnMarkersResponse:
    """Outcome per marker and partition."""

    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)
