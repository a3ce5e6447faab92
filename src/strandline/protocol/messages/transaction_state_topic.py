"""Keys and values of `__transaction_state`, as Kafka's transaction coordinator writes them.

Each stands behind an int16, see `schema.encode_versioned`: of keys the kind of record, of values
the version. A record without a value says that the transactional id is forgotten.
"""

from __future__ import annotations

from strandline.protocol.declare import (
    INT32,
    array,
    int8,
    int16,
    int32,
    int64,
    message,
    nullable_array,
    string,
    structure,
)


@message("0")
class TransactionLogKey:
    """Whose state."""

    transactional_id: str = string()


@structure
class PartitionsSchema:
    """Partitions of one topic."""

    topic: str = string()
    partition_ids: list[int] = array(INT32)


@message("0-1", flexible="1+")
class TransactionLogValue:
    """The state of one transactional id. Version 1 adds tagged fields only."""

    producer_id: int = int64()
    previous_producer_id: int = int64("1+", default=-1, tag=0, ignorable=True)
    next_producer_id: int = int64("1+", default=-1, tag=1, ignorable=True)
    producer_epoch: int = int16()
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[PartitionsSchema] | None = nullable_array(PartitionsSchema)
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    client_transaction_version: int = int16("1+", default=0, tag=2, ignorable=True)
