"""Listing, describing and ending transactions (KIP-664).

Two parts of a cluster know of a transaction: its coordinator, by its transactional id, and the
leader of each partition, by the producer's id. A transaction that only leaders know, or that its
coordinator knows without the partition, hangs: no coordinator will write its end marker, and
readers of committed records wait in front of it. This file knows how to ask both, and how to
compare them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from strandline.client.cluster import ClusterClient
from strandline.client.connection import Connection
from strandline.client.refusal import check, refusal
from strandline.errors import ErrorCode, ProtocolError
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from strandline.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from strandline.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from strandline.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from strandline.types import BrokerId, Offset, ProducerId, TopicPartition

T = TypeVar("T")

_OPEN: Final = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort"})
"""A coordinator tells the times of ended transactions as well."""
_NOT_HERE: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, ErrorCode.NONE}
)


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id. `state` is Kafka's name: Ongoing, CompleteCommit, ..."""

    transactional_id: str
    producer_id: ProducerId
    state: str
    coordinator: BrokerId


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """What its coordinator knows of a transactional id. Times in milliseconds.

    `started_ms` is the wall-clock time, None without an open transaction.
    """

    transactional_id: str
    state: str
    producer_id: ProducerId
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None
    partitions: tuple[TopicPartition, ...]
    coordinator: BrokerId


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """What a partition's leader knows of a producer.

    `transaction_start` is the first offset of its open transaction, None without one;
    `last_timestamp_ms` the wall-clock time of its last batch, -1 if unknown.
    """

    partition: TopicPartition
    producer_id: ProducerId
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start: Offset | None


class TransactionAdmin:
    """See the module."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    def list_all(
        self,
        *,
        states: Sequence[str] = (),
        producer_ids: Sequence[ProducerId] = (),
        older_than_ms: int = -1,
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        """The transactional ids of all coordinators, in their order; empty filters let all pass.

        `older_than_ms` is how long a transaction must have been open; `pattern` a regular
        expression that the whole id must match. Raises `ProtocolError`, also for a state that no
        broker knows.
        """
        request = ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=older_than_ms,
            transactional_id_pattern=pattern,
        )

        def ask(connection: Connection) -> ListTransactionsResponse:
            response = connection.call(ApiKey.LIST_TRANSACTIONS, ListTransactionsResponse, request)
            check(response.error_code, None, "the list of transactions")
            if response.unknown_state_filters:
                unknown = ", ".join(response.unknown_state_filters)
                raise ProtocolError(
                    ErrorCode.INVALID_REQUEST, f"The brokers know no state {unknown}."
                )
            return response

        found = [
            TransactionListing(
                each.transactional_id,
                ProducerId(each.producer_id),
                each.transaction_state,
                broker,
            )
            for broker, response in self._cluster.ask_all_brokers(ask).items()
            for each in response.transaction_states
        ]
        return sorted(found, key=lambda each: each.transactional_id)

    def describe(self, transactional_ids: Iterable[str]) -> list[TransactionDescription]:
        """What the coordinators know of these ids; ids that none knows are absent."""
        ids = sorted(set(transactional_ids))
        if not ids:
            return []
        request = DescribeTransactionsRequest(transactional_ids=ids)

        def ask(connection: Connection) -> list[TransactionState]:
            response = connection.call(
                ApiKey.DESCRIBE_TRANSACTIONS, DescribeTransactionsResponse, request
            )
            for each in response.transaction_states:
                if each.error_code not in _NOT_HERE:
                    raise refusal(
                        each.error_code, None, f"the transactional id '{each.transactional_id}'"
                    )
            return response.transaction_states

        return [
            _described(each, broker)
            for broker, states in self._cluster.ask_all_brokers(ask).items()
            for each in states
            if each.error_code == ErrorCode.NONE
        ]

    def producers(self, partitions: Iterable[TopicPartition]) -> list[ActiveProducer]:
        """The producers that the leaders of these partitions know. Raises `ProtocolError`."""
        wanted = sorted(set(partitions))
        found: dict[TopicPartition, list[ActiveProducer]] = {}

        def attempt() -> None:
            missing = [each for each in wanted if each not in found]
            for leader, asked in self._cluster.by_leader(missing).items():
                found.update(_producers_of(self._cluster.connection_to(leader), asked))

        self._cluster.retry_on_topics(attempt, {each.topic for each in wanted})
        return [producer for each in wanted for producer in found[each]]

    def hanging(
        self, partitions: Iterable[TopicPartition], older_than_ms: int
    ) -> list[ActiveProducer]:
        """Transactions that no coordinator will end, among those open for longer than that.

        `older_than_ms` should be above `transaction.max.timeout.ms` of the brokers: younger ones
        may still be ended by their coordinator.
        """
        before_ms = self._cluster.clock.wall_ms() - older_than_ms
        candidates = [
            each
            for each in self.producers(partitions)
            if each.transaction_start is not None and each.last_timestamp_ms <= before_ms
        ]
        if not candidates:
            return []
        ids = sorted({each.producer_id for each in candidates})
        listed = self.list_all(producer_ids=ids)
        expected = {
            (each.producer_id, partition)
            for each in self.describe(each.transactional_id for each in listed)
            for partition in each.partitions
        }
        return [each for each in candidates if (each.producer_id, each.partition) not in expected]

    def abort(self, producer: ActiveProducer) -> None:
        """Write the marker that ends a producer's transaction in one partition, without asking its
        coordinator. For transactions that hang. Raises `ProtocolError`."""
        partition = producer.partition
        topic = WritableTxnMarkerTopic(
            name=partition.topic, partition_indexes=[partition.partition]
        )
        marker = WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transaction_result=False,
            topics=[topic],
            coordinator_epoch=max(0, producer.coordinator_epoch),
        )

        def attempt() -> None:
            leader = self._cluster.partition(partition).leader
            response = self._cluster.connection_to(leader).call(
                ApiKey.WRITE_TXN_MARKERS,
                WriteTxnMarkersResponse,
                WriteTxnMarkersRequest(markers=[marker]),
            )
            for written in response.markers:
                for topic_result in written.topics:
                    for result in topic_result.partitions:
                        check(result.error_code, None, f"partition {partition}")

        self._cluster.retry_on_topics(attempt, {partition.topic})


def _described(state: TransactionState, coordinator: BrokerId) -> TransactionDescription:
    return TransactionDescription(
        state.transactional_id,
        state.transaction_state,
        ProducerId(state.producer_id),
        state.producer_epoch,
        state.transaction_timeout_ms,
        state.transaction_start_time_ms if state.transaction_state in _OPEN else None,
        tuple(
            sorted(
                TopicPartition(topic.topic, number)
                for topic in state.topics
                for number in topic.partitions
            )
        ),
        coordinator,
    )


def _producers_of(
    leader: Connection, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, list[ActiveProducer]]:
    topics: dict[str, TopicRequest] = {}
    for each in partitions:
        topic = topics.setdefault(each.topic, TopicRequest(name=each.topic))
        topic.partition_indexes.append(each.partition)
    response = leader.call(
        ApiKey.DESCRIBE_PRODUCERS,
        DescribeProducersResponse,
        DescribeProducersRequest(topics=list(topics.values())),
    )
    found: dict[TopicPartition, list[ActiveProducer]] = {}
    for answers in response.topics:
        for answer in answers.partitions:
            at = TopicPartition(answers.name, answer.partition_index)
            check(answer.error_code, answer.error_message, f"partition {at}")
            found[at] = [
                ActiveProducer(
                    at,
                    ProducerId(each.producer_id),
                    each.producer_epoch,
                    each.last_sequence,
                    each.last_timestamp,
                    each.coordinator_epoch,
                    None
                    if each.current_txn_start_offset < 0
                    else Offset(each.current_txn_start_offset),
                )
                for each in answer.active_producers
            ]
    return found
