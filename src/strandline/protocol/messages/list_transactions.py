"""ListTransactions: the transactions that one broker coordinates (KIP-664)."""

from __future__ import annotations

from strandline.protocol.declare import (
    INT64,
    STRING,
    array,
    int16,
    int32,
    int64,
    message,
    nullable_string,
    string,
    structure,
)


@message("0-2", flexible="0+")
class ListTransactionsRequest:
    """Filters; empty ones let everything pass."""

    state_filters: list[str] = array(STRING)
    producer_id_filters: list[int] = array(INT64)
    duration_filter: int = int64("1+", default=-1)
    transactional_id_pattern: str | None = nullable_string("2+", default=None)


@structure
class TransactionState:
    """One transaction."""

    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


@message("0-2", flexible="0+")
class ListTransactionsResponse:
    """The transactions, and the filters that were not understood."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = array(STRING)
    transaction_states: list[TransactionState] = array(TransactionState)
