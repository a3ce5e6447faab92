"""The records of `__transaction_state`, byte for byte those of Kafka 4.3.

One record per change of one transactional id: the whole state, which a later record replaces. The
messages are declared in `protocol.messages.transaction_state_topic`. Kafka 4.3 writes version 1 of
the value; an id without an open or ending transaction that is Empty has no list of partitions.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from strandline.errors import CorruptRecords
from strandline.protocol.coordinator_log import CoordinatorRecord, read_message, read_number
from strandline.protocol.messages.transaction_state_topic import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from strandline.protocol.schema import encode_versioned
from strandline.transactions.transaction import VERSION_2, Transaction, TransactionState
from strandline.types import NO_PRODUCER_ID, ProducerEpoch, ProducerId, TopicPartition

TRANSACTION_KEY: Final = 0
_PLAIN: Final = 0
_TAGGED: Final = 1


def decode_record(record: CoordinatorRecord) -> tuple[str, Transaction | None] | None:
    """The id and its state; None for the state: forgotten. None: a kind that is not known here.

    Raises `CorruptRecords`.
    """
    if read_number(record.key) != TRANSACTION_KEY:
        return None
    transactional_id = read_message(TransactionLogKey, record.key).transactional_id
    if record.value is None:
        return transactional_id, None
    return transactional_id, _from_value(read_message(TransactionLogValue, record.value))


def encode_record(
    transactional_id: str, transaction: Transaction | None, version: int = VERSION_2
) -> CoordinatorRecord:
    """The bytes of a state, or of a tombstone, in a cluster of that version of transactions.

    Version 0 has no place for tagged fields: early releases of Kafka would not read them. A state
    that needs one is written with it all the same, since its meaning would be another without.
    """
    key = _key(transactional_id)
    if transaction is None:
        return CoordinatorRecord(key, None)
    is_plain = version == 0 and not (
        transaction.raises_epoch
        or transaction.previous_producer_id != NO_PRODUCER_ID
        or transaction.next_producer_id != NO_PRODUCER_ID
    )
    return CoordinatorRecord(
        key, encode_versioned(_to_value(transaction), _PLAIN if is_plain else _TAGGED)
    )


@lru_cache(maxsize=128)
def _key(transactional_id: str) -> bytes:
    return encode_versioned(TransactionLogKey(transactional_id=transactional_id), TRANSACTION_KEY)


def _to_value(transaction: Transaction) -> TransactionLogValue:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(transaction.partitions):
        topics.setdefault(topic, []).append(partition)
    is_empty = transaction.state is TransactionState.EMPTY
    return TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=None
        if is_empty
        else [
            PartitionsSchema(topic=topic, partition_ids=partitions)
            for topic, partitions in topics.items()
        ],
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.started_ms,
        client_transaction_version=transaction.client_version,
    )


def _from_value(value: TransactionLogValue) -> Transaction:
    try:
        state = TransactionState(value.transaction_status)
    except ValueError as error:
        raise CorruptRecords(f"There is no state {value.transaction_status}.") from error
    return Transaction(
        producer_id=ProducerId(value.producer_id),
        producer_epoch=ProducerEpoch(value.producer_epoch),
        previous_producer_id=ProducerId(value.previous_producer_id),
        next_producer_id=ProducerId(value.next_producer_id),
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        partitions=frozenset(
            TopicPartition(topic.topic, partition)
            for topic in value.transaction_partitions or ()
            for partition in topic.partition_ids
        ),
        started_ms=value.transaction_start_timestamp_ms,
        updated_ms=value.transaction_last_update_timestamp_ms,
        client_version=value.client_transaction_version,
    )
