"""The APIs of transactions that go to their coordinator: what is done before and after it.

What a request means is the coordinator's affair; this file knows how older versions say it, and
checks what the coordinator cannot: whether partitions exist.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from strandline.cluster.topic_names import CONSUMER_OFFSETS, INTERNAL_TOPICS
from strandline.errors import ErrorCode
from strandline.node.group_access import GroupAccess
from strandline.node.metadata import Metadata
from strandline.node.request import Request
from strandline.node.transaction_host import TransactionHost
from strandline.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from strandline.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from strandline.protocol.messages.describe_transactions import DescribeTransactionsRequest
from strandline.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from strandline.protocol.messages.list_transactions import ListTransactionsRequest
from strandline.types import Instant

_BATCHED_SINCE: Final = 4
_FENCED_SINCE: Final = 2
_LAST_OF_CLIENTS: Final = 3

Judge = Callable[[str, int], ErrorCode]
"""Why a partition may not join a transaction; NONE: it may."""


class TransactionsHandler:
    """Answers the five APIs that ask the coordinator."""

    def __init__(
        self, transactions: TransactionHost, groups: GroupAccess, metadata: Metadata
    ) -> None:
        self._transactions = transactions
        self._groups = groups
        self._metadata = metadata

    def add_partitions(self, request: Request[AddPartitionsToTxnRequest], now: Instant) -> None:
        """Let partitions join transactions; one that does not exist keeps the others out."""
        body = request.body
        if request.version < _BATCHED_SINCE:
            refused = self._refused(body.v3_and_below_topics, self._judge_for_clients)
            if refused:
                response = AddPartitionsToTxnResponse(results_by_topic_v3_and_below=refused)
                request.reply(response)
                return
            self._transactions.ask(body, request.version, _older(request), now)
            return
        early: list[AddPartitionsToTxnResult] = []
        asked: list[AddPartitionsToTxnTransaction] = []
        for transaction in body.transactions:
            refused = self._refused(transaction.topics, self._judge)
            if refused:
                early.append(
                    AddPartitionsToTxnResult(
                        transactional_id=transaction.transactional_id, topic_results=refused
                    )
                )
            else:
                asked.append(transaction)

        def done(response: AddPartitionsToTxnResponse, _at: Instant) -> None:
            response.results_by_transaction = early + response.results_by_transaction
            request.reply(response)

        body.transactions = asked
        self._transactions.ask(body, request.version, done, now)

    def add_offsets(self, request: Request[AddOffsetsToTxnRequest], now: Instant) -> None:
        """Let the partition that holds a group's offsets join a transaction."""
        body = request.body
        number = self._groups.host.partition_for(body.group_id)
        asked = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=body.transactional_id,
            v3_and_below_producer_id=body.producer_id,
            v3_and_below_producer_epoch=body.producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=CONSUMER_OFFSETS, partitions=[number])
            ],
        )

        def done(response: AddPartitionsToTxnResponse, _at: Instant) -> None:
            [topic] = response.results_by_topic_v3_and_below
            code = _for_version(topic.results_by_partition[0].partition_error_code, request)
            request.reply(AddOffsetsToTxnResponse(error_code=code))

        self._transactions.ask(asked, _LAST_OF_CLIENTS, done, now)

    def end(self, request: Request[EndTxnRequest], now: Instant) -> None:
        """Commit or abort."""

        def done(response: EndTxnResponse, _at: Instant) -> None:
            response.error_code = _for_version(response.error_code, request)
            request.reply(response)

        self._transactions.ask(request.body, request.version, done, now)

    def describe(self, request: Request[DescribeTransactionsRequest], now: Instant) -> None:
        """Describe transactional ids."""
        self._transactions.ask(request.body, request.version, _replying(request), now)

    def list_all(self, request: Request[ListTransactionsRequest], now: Instant) -> None:
        """List the transactional ids that are coordinated here."""
        self._transactions.ask(request.body, request.version, _replying(request), now)

    def _judge(self, topic: str, partition: int) -> ErrorCode:
        found = self._metadata.image.topics.get(topic)
        if found is None or partition not in found.partitions:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE

    def _judge_for_clients(self, topic: str, partition: int) -> ErrorCode:
        if topic in INTERNAL_TOPICS:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return self._judge(topic, partition)

    def _refused(
        self, topics: list[AddPartitionsToTxnTopic], judge: Judge
    ) -> list[AddPartitionsToTxnTopicResult]:
        """The outcome of a transaction that may not have all of its partitions; else nothing."""
        results = [
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=number, partition_error_code=judge(topic.name, number)
                    )
                    for number in topic.partitions
                ],
            )
            for topic in topics
        ]
        items = [item for topic in results for item in topic.results_by_partition]
        if all(item.partition_error_code == ErrorCode.NONE for item in items):
            return []
        for item in items:
            if item.partition_error_code == ErrorCode.NONE:
                item.partition_error_code = ErrorCode.OPERATION_NOT_ATTEMPTED
        return results


def _replying(request: Request[Any]) -> Callable[[Any, Instant], None]:
    return lambda response, _at: request.reply(response)


def _older(
    request: Request[AddPartitionsToTxnRequest],
) -> Callable[[AddPartitionsToTxnResponse, Instant], None]:
    def done(response: AddPartitionsToTxnResponse, _at: Instant) -> None:
        for topic in response.results_by_topic_v3_and_below:
            for item in topic.results_by_partition:
                item.partition_error_code = _for_version(item.partition_error_code, request)
        request.reply(response)

    return done


def _for_version(code: int, request: Request[Any]) -> int:
    """Old clients know a fenced producer by another error."""
    if code == ErrorCode.PRODUCER_FENCED and request.version < _FENCED_SINCE:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
