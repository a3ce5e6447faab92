"""Listing, describing and ending transactions (KIP-664).

Two parts of a cluster know of a transaction: its coordinator, by its transactional id, and the
leader of each partition, by the producer's id. A transaction that only leaders know, or that its
coordinator knows without the partition, hangs: no coordinator will write its end marker, and
readers of committed records wait in front of it. This file knows how to ask both, and how to
compare them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Final

from strandline.client.arguments import several
from strandline.client.by_broker import (
    Outcomes,
    ask_all_leaders,
    ask_each_broker,
    ask_leaders,
)
from strandline.client.cluster import ClusterClient
from strandline.client.connection import Connection
from strandline.client.offsets import outcome
from strandline.client.refusal import check, refusal
from strandline.errors import ErrorCode, ProtocolError
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
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

_COORDINATORS_LOG: Final = "__transaction_state"
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


@dataclass(frozen=True, slots=True)
class HangingTransactions:
    """What was found, and what could not be looked at."""

    found: tuple[ActiveProducer, ...]
    """Transactions that no coordinator will end."""
    undecided: tuple[ActiveProducer, ...]
    """Open for as long. Coordinators that could not be asked may know of them (`doubts`): to abort
    one of these may break a transaction that is to be committed."""
    looked_at: tuple[TopicPartition, ...]
    """The partitions whose leaders told their producers."""
    unknown: Mapping[TopicPartition, ProtocolError]
    """The other partitions, and why nothing is known of them."""
    doubts: tuple[ProtocolError, ...]
    """Why not all coordinators could be asked. Empty also if none had to be."""


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

        `older_than_ms` is how long a transaction must have been open, in milliseconds; `pattern` a
        regular expression that the whole id must match. The brokers match it by RE2, which knows
        neither look-around nor back-references. It is an extra of Strandline's brokers (`regex`):
        one without it answers any pattern that is not empty with INVALID_REGULAR_EXPRESSION, as if
        the pattern were wrong, and then there is no list, whatever the other brokers answer.

        Raises `ProtocolError`: INVALID_REQUEST for a state that no broker knows,
        INVALID_REGULAR_EXPRESSION, and UNSUPPORTED_VERSION if a broker has no place in its requests
        for a pattern (Kafka before 4.1) or an age (before 3.8).
        """
        request = ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=older_than_ms,
            transactional_id_pattern=pattern,
        )
        answers = self._cluster.ask_all_brokers(partial(_list, request))
        return sorted(_listings(answers), key=lambda each: each.transactional_id)

    def describe(self, transactional_ids: Iterable[str]) -> list[TransactionDescription]:
        """What the coordinators know of these ids; ids that none knows are absent."""
        ids = sorted(set(several(transactional_ids, "Transactional ids")))
        if not ids:
            return []
        return list(_descriptions(self._cluster.ask_all_brokers(partial(_describe, ids))))

    def describe_listed(
        self, listings: Iterable[TransactionListing]
    ) -> list[TransactionDescription]:
        """The same of transactions that were listed. A broker is asked for what others coordinate,
        which it would refuse and remember, only if their coordinators do not know them any more."""
        ids: dict[BrokerId, list[str]] = {}
        for each in listings:
            ids.setdefault(each.coordinator, []).append(each.transactional_id)
        found: list[TransactionDescription] = []
        for broker, wanted in sorted(ids.items()):
            found += _descriptions(self._cluster.ask_broker(broker, partial(_describe, wanted)))
        moved = {name for wanted in ids.values() for name in wanted}
        moved -= {each.transactional_id for each in found}
        return sorted([*found, *self.describe(moved)], key=lambda each: each.transactional_id)

    def producers(self, partitions: Iterable[TopicPartition]) -> list[ActiveProducer]:
        """The producers that the leaders of these partitions know. Raises `ProtocolError`."""
        wanted = sorted(set(partitions))
        found = ask_all_leaders(self._cluster, wanted, _producers_of)
        return [producer for each in wanted for producer in found[each]]

    def hanging(
        self, partitions: Iterable[TopicPartition], older_than_ms: int
    ) -> HangingTransactions:
        """Transactions that no coordinator will end, among those open for longer than that.

        `older_than_ms`, in milliseconds, should be above `transaction.max.timeout.ms` of the
        brokers: younger ones may still be ended by their coordinator. A partition that has no
        leader is not waited for. A leader or a coordinator that does not answer is asked again for
        as long as an operation may take (`operation_timeout_ms`); what it alone knows is then
        missing, and said to be. Raises `ProtocolError` if no broker tells who is in the cluster.
        """
        before_ms = self._cluster.clock.wall_ms() - older_than_ms
        found, unknown = ask_leaders(self._cluster, sorted(set(partitions)), _producers_of)
        candidates = [
            each
            for producers in found.values()
            for each in producers
            if each.transaction_start is not None and each.last_timestamp_ms <= before_ms
        ]
        coordinated, doubts = self._coordinated({each.producer_id for each in candidates})
        left = tuple(
            each for each in candidates if (each.producer_id, each.partition) not in coordinated
        )
        hang, undecided = ((), left) if doubts else (left, ())
        return HangingTransactions(hang, undecided, tuple(found), unknown, doubts)

    def _coordinated(
        self, producer_ids: Set[ProducerId]
    ) -> tuple[set[tuple[ProducerId, TopicPartition]], tuple[ProtocolError, ...]]:
        """What coordinators know of the transactions of these producers: who writes where. And why
        there may be more: coordinators that could not be asked."""
        if not producer_ids:
            return set(), ()
        doubts = self._leaderless_coordinators()
        # Named, so that one that goes away meanwhile is missed: a broker that has answered by then
        # may take over what it coordinated.
        brokers = self._cluster.view.brokers
        request = ListTransactionsRequest(producer_id_filters=sorted(producer_ids))
        lists, silent = ask_each_broker(self._cluster, partial(_list, request), brokers)
        ids = sorted({each.transactional_id for each in _listings(lists)})
        doubts += silent.values()
        states: dict[BrokerId, list[TransactionState]] = {}
        if ids:
            states, silent = ask_each_broker(self._cluster, partial(_describe, ids), lists)
            doubts += silent.values()
        known = {
            (each.producer_id, partition)
            for each in _descriptions(states)
            for partition in each.partitions
        }
        return known, tuple(doubts)

    def _leaderless_coordinators(self) -> list[ProtocolError]:
        """For each partition of the coordinators' log that no broker leads: as long as that is so,
        no broker knows of its transactions. Nothing if the client may not see the log."""
        log = self._cluster.refresh([_COORDINATORS_LOG]).topics.get(_COORDINATORS_LOG)
        found: list[ProtocolError] = []
        for number in () if log is None else log.partitions:
            try:
                self._cluster.partition(TopicPartition(_COORDINATORS_LOG, number))
            except ProtocolError as error:
                found.append(error)
        return found

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


def _list(request: ListTransactionsRequest, connection: Connection) -> ListTransactionsResponse:
    response = connection.call(ApiKey.LIST_TRANSACTIONS, ListTransactionsResponse, request)
    message = None
    if response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION:
        message = (
            f"The broker at {connection.address} cannot use the pattern "
            f"'{request.transactional_id_pattern}': either it is no regular expression of RE2, or "
            "the broker has no RE2 (one of Strandline needs strandline[regex])"
        )
    check(response.error_code, message, "the list of transactions")
    if response.unknown_state_filters:
        unknown = ", ".join(response.unknown_state_filters)
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"The brokers know no state {unknown}.")
    return response


def _listings(answers: Mapping[BrokerId, ListTransactionsResponse]) -> Iterator[TransactionListing]:
    for broker, response in answers.items():
        for each in response.transaction_states:
            yield TransactionListing(
                each.transactional_id, ProducerId(each.producer_id), each.transaction_state, broker
            )


def _describe(ids: Sequence[str], connection: Connection) -> list[TransactionState]:
    response = connection.call(
        ApiKey.DESCRIBE_TRANSACTIONS,
        DescribeTransactionsResponse,
        DescribeTransactionsRequest(transactional_ids=list(ids)),
    )
    for each in response.transaction_states:
        if each.error_code not in _NOT_HERE:
            raise refusal(each.error_code, None, f"the transactional id '{each.transactional_id}'")
    return response.transaction_states


def _descriptions(
    answers: Mapping[BrokerId, Sequence[TransactionState]],
) -> Iterator[TransactionDescription]:
    for broker, states in answers.items():
        for each in states:
            if each.error_code == ErrorCode.NONE:
                yield _described(each, broker)


def _producers_of(
    leader: Connection, partitions: Sequence[TopicPartition]
) -> Outcomes[TopicPartition, list[ActiveProducer]]:
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
    refused: dict[TopicPartition, ProtocolError] = {}
    for answers in response.topics:
        for answer in answers.partitions:
            at = TopicPartition(answers.name, answer.partition_index)
            error = outcome(answer.error_code, answer.error_message, f"partition {at}")
            if error is not None:
                refused[at] = error
            else:
                found[at] = [_active(at, each) for each in answer.active_producers]
    return found, refused


def _active(at: TopicPartition, state: ProducerState) -> ActiveProducer:
    start = state.current_txn_start_offset
    return ActiveProducer(
        at,
        ProducerId(state.producer_id),
        state.producer_epoch,
        state.last_sequence,
        state.last_timestamp,
        state.coordinator_epoch,
        None if start < 0 else Offset(start),
    )
