"""How transactions end: by EndTxn, by a new producer of the same id, by their timeout.

With version 1 a repeated EndTxn is told by the state alone. With version 2 the epoch tells: an
ended transaction has the next one, so a request with the epoch before it is a repetition, and one
with the present epoch is about the next transaction, which may even be aborted before it began.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from strandline.errors import ErrorCode, ProtocolError
from strandline.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from strandline.transactions.certainty import confirm
from strandline.transactions.shard import Change, Entry, Shard
from strandline.transactions.transaction import (
    ABORTED,
    COMPLETE,
    EPOCH_MAX,
    PREPARED,
    VERSION_2,
    Transaction,
    TransactionState,
)
from strandline.types import NO_PRODUCER_ID, Instant, ProducerId

RAISES_EPOCH_SINCE = 5
"""The version of EndTxn with which a client says that it uses transactions of version 2."""

Ended: TypeAlias = Callable[[EndTxnResponse], None]


class NeedsProducerId(Exception):
    """A request can only be served with a fresh producer id: get one, and ask again."""


def end(
    shard: Shard,
    request: EndTxnRequest,
    version: int,
    fresh: ProducerId | None,
    now: Instant,
    answer: Ended,
) -> None:
    """Handle EndTxn, which is answered when the decision is durable.

    `fresh` is a producer id for the case that the epochs of the present one are used up. Raises
    `ProtocolError` and `NeedsProducerId`.
    """
    entry = shard.entries.get(request.transactional_id)
    if entry is None:
        raise ProtocolError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    raises_epoch = version >= RAISES_EPOCH_SINCE
    judge = _judge_version_2 if raises_epoch else _judge_version_1
    if judge(entry, request):
        if raises_epoch:
            answer(_ended(entry.current))
        else:  # It may be about the next transaction, which has the same epoch.
            confirm(shard, entry, now, lambda error: answer(_answer(error, entry.current)))
        return
    used_version = VERSION_2 if raises_epoch else 0
    target = entry.current.ending(
        commits=request.committed,
        version=used_version,
        next_producer_id=_next_id(entry.current, used_version, fresh),
        now_ms=now.wall_ms,
    )

    def told(error: ErrorCode) -> None:
        # What the client goes on with, although the markers are still to be written.
        answer(_answer(error, target.completed(now.wall_ms)))

    _decide(shard, entry, target, now, told)


def fence(
    shard: Shard,
    entry: Entry,
    version: int,
    fresh: ProducerId | None,
    now: Instant,
    answer: Callable[[ErrorCode], None] | None = None,
    *,
    by_another: bool = False,
) -> None:
    """Abort an open transaction whose producer is no more, under a raised epoch.

    `by_another`: for a new producer of the id, neither for the timeout nor for itself.

    Raises `NeedsProducerId`: the highest epoch must not get to a client (KAFKA-20090).
    """
    next_id = _next_id(entry.current, version, fresh)
    target = entry.current.fenced(version, next_id, now.wall_ms, by_another=by_another)
    _decide(shard, entry, target, now, answer)


def _next_id(current: Transaction, version: int, fresh: ProducerId | None) -> ProducerId:
    if version < VERSION_2 or not current.is_exhausted:
        return NO_PRODUCER_ID
    if fresh is None:
        raise NeedsProducerId
    return fresh


def _decide(
    shard: Shard,
    entry: Entry,
    target: Transaction,
    now: Instant,
    answer: Callable[[ErrorCode], None] | None,
) -> None:
    shard.change(
        [Change(entry, target)],
        now,
        answer=answer,
        durable=lambda _at: shard.send_markers(entry),
    )


def _answer(error: ErrorCode, ended: Transaction) -> EndTxnResponse:
    return _ended(ended) if error is ErrorCode.NONE else EndTxnResponse(error_code=error)


def _ended(transaction: Transaction) -> EndTxnResponse:
    return EndTxnResponse(
        producer_id=transaction.producer_id, producer_epoch=transaction.producer_epoch
    )


def _judge_version_1(entry: Entry, request: EndTxnRequest) -> bool:
    """Whether the request has been served already; False: serve it. Raises `ProtocolError`."""
    current = entry.current
    if current.producer_id != request.producer_id:
        raise ProtocolError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if current.producer_epoch != request.producer_epoch:
        raise ProtocolError(ErrorCode.PRODUCER_FENCED)
    if entry.is_pending:
        raise ProtocolError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if current.state is TransactionState.ONGOING:
        return False
    return _is_repeated(current, request)


def _judge_version_2(entry: Entry, request: EndTxnRequest) -> bool:
    """As `_judge_version_1`. The pending change comes first: it may bring another producer id."""
    if entry.is_pending:
        raise ProtocolError(ErrorCode.CONCURRENT_TRANSACTIONS)
    current = entry.current
    was_raised = current.producer_epoch == request.producer_epoch + 1
    was_rotated = (
        current.previous_producer_id == request.producer_id
        and request.producer_epoch == EPOCH_MAX - 1
        and current.producer_epoch == 0
    )
    if current.producer_id != request.producer_id and not was_rotated:
        raise ProtocolError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    is_next = current.producer_epoch == request.producer_epoch
    if current.state in PREPARED:
        if is_next and current.producer_id == request.producer_id:
            # The producer has heard of the decision and goes on, before the markers are written.
            # Its next transaction came to nothing, and it aborts that. Kafka fences it here.
            raise ProtocolError(ErrorCode.CONCURRENT_TRANSACTIONS)
        is_valid = was_raised
    elif current.state in COMPLETE:
        is_valid = was_raised or was_rotated or is_next
    else:
        is_valid = is_next
    if not is_valid:
        raise ProtocolError(ErrorCode.PRODUCER_FENCED)
    if current.state is TransactionState.ONGOING:
        return False
    if current.state not in PREPARED and not (was_raised or was_rotated):
        if request.committed:
            raise ProtocolError(ErrorCode.INVALID_TXN_STATE)
        return False  # nothing has begun here; what partitions know of it ends with the epoch
    if request.committed and current.state in ABORTED:
        # A producer commits nothing that it has aborted: the coordinator did that, as a rule for
        # the timeout. Programs begin anew after this error, not after others (KAFKA-20785).
        raise ProtocolError(ErrorCode.PRODUCER_FENCED)
    return _is_repeated(current, request)


def _is_repeated(current: Transaction, request: EndTxnRequest) -> bool:
    """The transaction is ending or has ended: as this request says, or otherwise?"""
    commits = current.state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
    if current.state is TransactionState.EMPTY or commits != request.committed:
        raise ProtocolError(ErrorCode.INVALID_TXN_STATE)
    if current.state in PREPARED:
        raise ProtocolError(ErrorCode.CONCURRENT_TRANSACTIONS)
    return True
