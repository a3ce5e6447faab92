"""DescribeTransactions: the state of single transactions (KIP-664)."""

from __future__ import annotations

from strandline.protocol.declare import (
    INT32,
    STRING,
    array,
    int16,
    int32,
    int64,
    message,
    string,
    structure,
)


@message("0", flexible="0+")
class DescribeTransactionsRequest:
    """The transactional ids of interest."""

    transactional_ids: list[str] = array(STRING)


@structure
class TopicData:
    """Partitions of one topic."""

    topic: str = string()
    partitions: list[int] = array(INT32)


@structure
class TransactionState:
    """One transaction."""

    error_code: int = int16()
    transactional_id: str = string()
    transaction_state: str = string()
    transaction_timeout_ms: int = int32()
    transaction_start_time_ms: int = int64()
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: list[TopicData] = array(TopicData)


@message("0", flexible="0+")
class DescribeTransactionsResponse:
    """The transactions."""

    throttle_time_ms: int = int32()
    transaction_states: list[TransactionState] = array(TransactionState)
