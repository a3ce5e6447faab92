"""AddPartitionsToTxn: partitions join a transaction before they are written to.

Up to version 3 a client asks for one transaction; from 4 brokers ask for several, also only to
verify (KIP-890).
"""

from __future__ import annotations

from strandline.protocol.declare import (
    INT32,
    array,
    boolean,
    int16,
    int32,
    int64,
    message,
    string,
    structure,
)


@structure
class AddPartitionsToTxnTopic:
    """Partitions of one topic."""

    name: str = string()
    partitions: list[int] = array(INT32)


@structure
class AddPartitionsToTxnTransaction:
    """One transaction and what joins it."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    verify_only: bool = boolean()
    topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic)


@message("0-5", flexible="3+")
class AddPartitionsToTxnRequest:
    """What joins which transaction."""

    transactions: list[AddPartitionsToTxnTransaction] = array(AddPartitionsToTxnTransaction, "4+")
    v3_and_below_transactional_id: str = string("0-3")
    v3_and_below_producer_id: int = int64("0-3")
    v3_and_below_producer_epoch: int = int16("0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, "0-3")


@structure
class AddPartitionsToTxnPartitionResult:
    """Outcome for one partition."""

    partition_index: int = int32()
    partition_error_code: int = int16()


@structure
class AddPartitionsToTxnTopicResult:
    """Partitions of one topic."""

    name: str = string()
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = array(
        AddPartitionsToTxnPartitionResult
    )


@structure
class AddPartitionsToTxnResult:
    """Outcome for one transaction."""

    transactional_id: str = string()
    topic_results: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult)


@message("0-5", flexible="3+")
class AddPartitionsToTxnResponse:
    """Outcome per transaction, up to version 3 per topic."""

    throttle_time_ms: int = int32()
    error_code: int = int16("4+", ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = array(AddPartitionsToTxnResult, "4+")
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array(
        AddPartitionsToTxnTopicResult, "0-3"
    )
