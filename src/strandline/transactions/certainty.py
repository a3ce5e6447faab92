"""Answers that only a present coordinator may give: that a producer is fenced, that all is done.

A broker that has lost the leadership of a partition and has not heard of it knows too little. A
producer whose transaction began at the coordinator after it, asked to end that here, would be told
that nothing has begun, or is fenced; with version 1 it might even be told that its transaction is
committed, because the one before was. Such an answer waits until what is known of the id was
written once more: only the leader can have that committed. A former one answers NOT_COORDINATOR.

Requests that are older than what is known here are refused at once: knowing more would not save
them. See docs/design/0046-answers-of-former-coordinators.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from strandline.errors import ErrorCode
from strandline.transactions.shard import Change, Entry, Shard
from strandline.transactions.transaction import Transaction
from strandline.types import Instant

FINAL: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.PRODUCER_FENCED,
    }
)
"""A producer does not ask again after these."""


def confirm(shard: Shard, entry: Entry, now: Instant, answer: Callable[[ErrorCode], None]) -> None:
    """Have `answer` told NONE if this is the coordinator, else the error to answer with.

    Nothing may be pending for the id.
    """
    shard.change([Change(entry, entry.current)], now, answer=answer)


def refuse(
    shard: Shard,
    transactional_id: str,
    code: ErrorCode,
    producer: tuple[int, int],
    now: Instant,
    answer: Callable[[ErrorCode], None],
) -> None:
    """Refuse a request of a producer (its id and epoch): now, or once that is certain."""
    entry = shard.entries.get(transactional_id)
    if entry is None or code not in FINAL or not _may_be_newer(entry.current, *producer):
        answer(code)
    elif entry.is_busy:
        answer(ErrorCode.CONCURRENT_TRANSACTIONS)
    else:
        confirm(shard, entry, now, lambda error: answer(code if error is ErrorCode.NONE else error))


def _may_be_newer(current: Transaction, producer_id: int, epoch: int) -> bool:
    """Whether the producer may have been told of more than is known here."""
    if producer_id == current.producer_id:
        return epoch >= current.producer_epoch
    return producer_id != current.previous_producer_id
