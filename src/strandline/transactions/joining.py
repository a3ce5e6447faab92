"""One request that adds partitions to transactions (AddPartitionsToTxn), and its one answer.

Clients name one transaction; brokers ask for several at once, of which each may lie in another
partition of the state. This file knows the shape of the request and when it is answered. What
becomes of a transaction is decided in `producing`.

A client begins its next transaction when its last one is decided, which may be before the markers
of that are written. Its request waits for them, see docs/design/0053-partitions-that-wait.md. What
a broker asks does not wait: its other questions come over the same connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from strandline.errors import ErrorCode, ProtocolError
from strandline.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from strandline.transactions.certainty import refuse
from strandline.transactions.producing import IsBusy, Joins, Outcomes, add_partitions
from strandline.transactions.shard import Shard
from strandline.transactions.transaction import VERSION_2
from strandline.types import Instant, TopicPartition

_BATCHED_SINCE: Final = 4
"""The version that brokers use, with which partitions join by writing."""


def join(
    served: Callable[[str | None], Shard],
    asked: Joins,
    partitions: frozenset[TopicPartition],
    version: int,
    now: Instant,
    told: Callable[[Outcomes], None],
    *,
    may_wait: bool,
) -> None:
    """Let partitions join one transaction, of that version, and have told what became of each.

    `may_wait`: until the last transaction of the producer has ended.
    """

    def refused(code: ErrorCode) -> None:
        told(dict.fromkeys(partitions, code))

    def again(at: Instant) -> None:
        join(served, asked, partitions, version, at, told, may_wait=False)

    try:
        shard = served(asked.transactional_id)
    except ProtocolError as refusal:
        refused(refusal.code)
        return
    try:
        add_partitions(shard, asked, partitions, version, now, told)
    except IsBusy as busy:
        if may_wait and shard.settings.join_wait_max_ms:
            shard.wait(busy.entry, now, again, refused)
        else:
            refused(busy.code)
    except ProtocolError as refusal:
        producer = asked.producer_id, asked.producer_epoch
        refuse(shard, asked.transactional_id, refusal.code, producer, now, refused)


class Joining:
    """Collects what becomes of the transactions of a request, and answers when all is known."""

    def __init__(
        self, request: AddPartitionsToTxnRequest, version: int, reply: Callable[[object], None]
    ) -> None:
        self._is_batched = version >= _BATCHED_SINCE
        self._transactions = request.transactions if self._is_batched else [_only(request)]
        self._reply = reply
        self._results = [AddPartitionsToTxnResult() for _ in self._transactions]
        self._left = len(self._results)

    def begin(self, served: Callable[[str | None], Shard], now: Instant) -> None:
        """Ask the shards. `served` finds that of a transactional id, or raises `ProtocolError`."""
        if not self._transactions:
            self._answer()
        for index, asked in enumerate(self._transactions):
            self._ask(index, asked, served, now)

    def _ask(
        self,
        index: int,
        asked: AddPartitionsToTxnTransaction,
        served: Callable[[str | None], Shard],
        now: Instant,
    ) -> None:
        partitions = frozenset(_partitions(asked))
        version = VERSION_2 if self._is_batched else 0
        told = partial(self._told, index, asked)
        join(served, asked, partitions, version, now, told, may_wait=not self._is_batched)

    def _told(self, index: int, asked: AddPartitionsToTxnTransaction, outcomes: Outcomes) -> None:
        self._results[index] = _result(asked, outcomes)
        self._left -= 1
        if not self._left:
            self._answer()

    def _answer(self) -> None:
        if self._is_batched:
            self._reply(AddPartitionsToTxnResponse(results_by_transaction=self._results))
        else:
            topics = self._results[0].topic_results
            self._reply(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics))


def _only(request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnTransaction:
    """The one transaction of a client's request."""
    return AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )


def _partitions(asked: AddPartitionsToTxnTransaction) -> Iterable[TopicPartition]:
    for topic in asked.topics:
        for partition in topic.partitions:
            yield TopicPartition(topic.name, partition)


def _result(asked: AddPartitionsToTxnTransaction, outcomes: Outcomes) -> AddPartitionsToTxnResult:
    return AddPartitionsToTxnResult(
        transactional_id=asked.transactional_id,
        topic_results=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=partition,
                        partition_error_code=outcomes[TopicPartition(topic.name, partition)],
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in asked.topics
        ],
    )
