"""What an error means for a transaction, as in Kafka's `TransactionManager`.

    RETRY   ask again, after a wait
    ABORT   this transaction cannot be committed; the next one may
    FAIL    this producer may not go on

This file knows codes and sentences. It must not know what a transaction does next.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, TypeVar

from strandline.client.refusal import refusal
from strandline.errors import (
    RETRIABLE,
    ErrorCode,
    ProducerFailed,
    ProtocolError,
    TransactionFailed,
)

T = TypeVar("T")

FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
ID_FORGOTTEN: Final = frozenset(
    {ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)
"""The next transaction needs another producer id, which brokers grant since InitProducerId 3."""
_ABORTS: Final = frozenset(
    {
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
)
_BATCH_FAILS: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
_WAITS: Final = RETRIABLE | {ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT}
_OFFSETS_LATE: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
)


class Verdict(Enum):
    """See the module."""

    RETRY = 1
    ABORT = 2
    FAIL = 3


def verdict(code: ErrorCode, *, may_renew: bool) -> Verdict:
    """What an error of a coordinator means. `may_renew`: it grants further ids and epochs."""
    if code in _WAITS:
        return Verdict.RETRY
    if code in _ABORTS or (code in ID_FORGOTTEN and may_renew):
        return Verdict.ABORT
    return Verdict.FAIL


def batch_verdict(code: ErrorCode) -> Verdict:
    """What the error with which a batch failed for good means.

    A leader that refuses the epoch may only be behind its coordinator: that is asked when the
    transaction is aborted, and says whether another producer has begun.
    """
    return Verdict.FAIL if code in _BATCH_FAILS else Verdict.ABORT


def failed_transaction(error: ProtocolError) -> TransactionFailed:
    """Why a transaction cannot be committed, and what to do."""
    cause = error.message
    if error.code in _OFFSETS_LATE:
        cause = "The group has given the partitions of these offsets to other members."
    advice = "Abort the transaction; then its work can be done again."
    return TransactionFailed(error.code, f"{cause} {advice}".strip())


def failed_producer(code: ErrorCode, transactional_id: str, why: str = "") -> ProducerFailed:
    """Why a producer may not go on, and what to do."""
    if code in FENCED:
        return ProducerFailed(
            ErrorCode.PRODUCER_FENCED,
            f"This producer may not write any more: another one with the transactional.id "
            f"'{transactional_id}' has begun, or a transaction was open for longer than "
            "transaction.timeout.ms. Close it.",
        )
    if code is ErrorCode.INVALID_TXN_STATE:
        why = (
            "The coordinator has ended the transaction otherwise: it was open for longer than "
            "transaction.timeout.ms."
        )
    cause = refusal(code, why or None, f"transactional id '{transactional_id}'").message
    return ProducerFailed(code, f"{cause} Close this producer.")


def not_now(message: str) -> ProtocolError:
    """Something that is called in the wrong order."""
    return ProtocolError(ErrorCode.INVALID_TXN_STATE, message)


def overdue(call: str, trouble: ProtocolError | None) -> ProtocolError:
    """What a program is told whose patience ended; what it has asked for goes on."""
    why = "" if trouble is None else f" {trouble.message}"
    return ProtocolError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"'{call}' is not done yet: call it again, or close the producer.{why}",
    )


def needed(transactions: T | None) -> T:
    """The transactions, for what cannot be done without. Raises `ProtocolError`."""
    if transactions is None:
        raise not_now("Without the setting transactional.id a producer has no transactions.")
    return transactions
