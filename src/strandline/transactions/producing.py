"""InitProducerId and AddPartitionsToTxn: who may produce under an id, and into what."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from strandline.errors import ErrorCode, ProtocolError
from strandline.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from strandline.transactions.certainty import confirm
from strandline.transactions.ending import NeedsProducerId, fence
from strandline.transactions.shard import Change, Entry, Shard
from strandline.transactions.transaction import (
    EPOCH_MAX,
    PREPARED,
    VERSION_2,
    Transaction,
    TransactionState,
)
from strandline.types import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    Instant,
    ProducerId,
    TopicPartition,
)

Outcomes = Mapping[TopicPartition, ErrorCode]


def initialize(
    shard: Shard,
    request: InitProducerIdRequest,
    fresh: ProducerId | None,
    version: int,
    now: Instant,
    answer: Callable[[InitProducerIdResponse], None],
) -> None:
    """Handle InitProducerId with an id: fence who had it before, and give the next epoch.

    `version` is the one of transactions that the cluster has. Raises `ProtocolError` and
    `NeedsProducerId`.
    """
    transactional_id = request.transactional_id or ""
    if not 0 < request.transaction_timeout_ms <= shard.settings.timeout_max_ms:
        raise ProtocolError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    entry = shard.entries.get(transactional_id)
    if entry is None:
        if fresh is None:
            raise NeedsProducerId
        begun = Transaction(
            producer_id=fresh, timeout_ms=request.transaction_timeout_ms, updated_ms=now.wall_ms
        )
        entry = shard.entries[transactional_id] = Entry(transactional_id, begun)
    _check_producer(entry, request)
    if entry.current.state in PREPARED:
        raise ProtocolError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if entry.current.state is TransactionState.ONGOING:

        def aborting(error: ErrorCode) -> None:
            # The epoch that fences is given to no producer: the client asks again.
            code = ErrorCode.CONCURRENT_TRANSACTIONS if error is ErrorCode.NONE else error
            answer(refused(code))

        is_another = request.producer_id == NO_PRODUCER_ID
        fence(shard, entry, version, fresh, now, aborting, by_another=is_another)
        return
    target = _next_identity(entry.current, request, fresh, now)

    def told(error: ErrorCode) -> None:
        if error is not ErrorCode.NONE:
            answer(refused(error))
            return
        answer(
            InitProducerIdResponse(
                producer_id=target.producer_id, producer_epoch=target.producer_epoch
            )
        )

    shard.change([Change(entry, target)], now, answer=told)


def refused(code: ErrorCode) -> InitProducerIdResponse:
    """The answer without an identity."""
    return InitProducerIdResponse(
        error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
    )


def _check_producer(entry: Entry, request: InitProducerIdRequest) -> None:
    """Refuse a producer that goes on although another one has the id by now (KIP-360)."""
    if entry.is_pending:
        raise ProtocolError(ErrorCode.CONCURRENT_TRANSACTIONS)
    current = entry.current
    if request.producer_id == NO_PRODUCER_ID or current.producer_epoch == NO_PRODUCER_EPOCH:
        return
    asks_again = (
        request.producer_id == current.previous_producer_id
        and request.producer_epoch >= EPOCH_MAX - 1
    )
    if request.producer_id != current.producer_id and not asks_again:
        raise ProtocolError(ErrorCode.PRODUCER_FENCED)


def _next_identity(
    current: Transaction, request: InitProducerIdRequest, fresh: ProducerId | None, now: Instant
) -> Transaction:
    goes_on = request.producer_id != NO_PRODUCER_ID
    timeout_ms = request.transaction_timeout_ms
    if current.is_exhausted and (not goes_on or request.producer_epoch == current.producer_epoch):
        if fresh is None:
            raise NeedsProducerId
        return current.rotated(fresh, timeout_ms, now.wall_ms, goes_on=goes_on)
    expected = request.producer_epoch if goes_on else None
    if current.is_exhausted and expected != current.last_producer_epoch:
        raise ProtocolError(ErrorCode.PRODUCER_FENCED)
    return current.raised(timeout_ms, expected, now.wall_ms)


class IsBusy(ProtocolError):
    """Partitions cannot join yet: the end of the producer's last transaction is under way, or
    another change of the id is."""

    def __init__(self, entry: Entry) -> None:
        super().__init__(ErrorCode.CONCURRENT_TRANSACTIONS)
        self.entry = entry


class Joins(Protocol):
    """Whose transaction partitions are to join: part of a request, or a question of this broker."""

    @property
    def transactional_id(self) -> str: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def verify_only(self) -> bool:
        """Only ask whether they have joined."""
        ...


def add_partitions(
    shard: Shard,
    asked: Joins,
    partitions: frozenset[TopicPartition],
    version: int,
    now: Instant,
    answer: Callable[[Outcomes], None],
) -> None:
    """Let partitions join the transaction of a producer, or verify that they have joined.

    Answered when the change is durable. Raises `ProtocolError`; `IsBusy` if asking again will do.
    """

    def answer_all(error: ErrorCode) -> None:
        answer(dict.fromkeys(partitions, error))

    entry = shard.entries.get(asked.transactional_id)
    if entry is None or entry.current.producer_id != asked.producer_id:
        raise ProtocolError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    current = entry.current
    if current.producer_epoch != asked.producer_epoch:
        raise ProtocolError(ErrorCode.PRODUCER_FENCED)
    if asked.verify_only:
        # A pending change is no matter: the partition looks once more when it appends.
        if current.state in PREPARED:
            raise ProtocolError(ErrorCode.CONCURRENT_TRANSACTIONS)
        answer(
            {
                each: ErrorCode.NONE
                if each in current.partitions
                else ErrorCode.TRANSACTION_ABORTABLE
                for each in partitions
            }
        )
        return
    if entry.is_busy:
        raise IsBusy(entry)
    if current.state is TransactionState.ONGOING and partitions <= current.partitions:
        if version >= VERSION_2:
            answer_all(ErrorCode.NONE)
        else:  # It may be about the next transaction, which has the same epoch.
            confirm(shard, entry, now, answer_all)
        return
    target = current.joined(partitions, version, now.wall_ms)
    shard.change([Change(entry, target)], now, answer=answer_all)
