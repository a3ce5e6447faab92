"""A transaction coordinator whose log, producer ids and partitions are lists in the test."""

from __future__ import annotations

from itertools import count
from typing import Any

from strandline.errors import ErrorCode
from strandline.protocol.coordinator_log import CoordinatorRecord
from strandline.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from strandline.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from strandline.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from strandline.transactions.coordinator import TransactionCoordinator
from strandline.transactions.effects import (
    AppendRecords,
    Call,
    CancelMarkers,
    Effect,
    Reply,
    SendMarkers,
    TakeProducerId,
)
from strandline.transactions.producing import Joins
from strandline.transactions.settings import TransactionSettings
from strandline.transactions.transaction import Transaction
from strandline.types import Instant, LeaderEpoch, ProducerId, TopicPartition

ID = "transfers"
TOPIC = "accounts"


class Coordinated:
    """One coordinator with one partition. Appends become durable at once unless they are held."""

    def __init__(self, settings: TransactionSettings | None = None, *, version: int = 2) -> None:
        self.settings = settings or TransactionSettings()
        self.version = version
        self.now_ms = 1_000_000
        self.log: list[CoordinatorRecord] = []
        self.held: list[AppendRecords] | None = None
        self.refusals: list[ErrorCode] = []
        """How the next appends end instead of becoming durable."""
        self.sent: list[SendMarkers] = []
        self.cancelled: list[int] = []
        self.answers: dict[int, Any] = {}
        self._ids = count(4000)
        self._tokens = count(1)
        self._epochs = count(0)
        self.lead()

    @property
    def now(self) -> Instant:
        return Instant(self.now_ms, self.now_ms)

    def lead(self) -> None:
        """A coordinator that knows nothing but the log takes over."""
        self.coordinator = TransactionCoordinator(
            self.settings, partition_count=lambda: 1, version=lambda: self.version
        )
        self.epoch = LeaderEpoch(next(self._epochs))
        self.sent.clear()
        self._do(self.coordinator.start_loading(0, self.epoch, self.now))
        self.coordinator.replay(0, self.epoch, self.log)
        self._do(self.coordinator.finish_loading(0, self.epoch))

    def ask(self, body: object, version: int = 5) -> Any:
        """The answer to a request; None while there is none."""
        token = next(self._tokens)
        self._do(self.coordinator.handle(Call(token, version, body), self.now))
        return self.answers.get(token)

    @staticmethod
    def initialization(
        producer_id: int = -1, epoch: int = -1, timeout_ms: int = 60_000
    ) -> InitProducerIdRequest:
        return InitProducerIdRequest(
            transactional_id=ID,
            transaction_timeout_ms=timeout_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
        )

    def initialize(
        self, producer_id: int = -1, epoch: int = -1, timeout_ms: int = 60_000
    ) -> InitProducerIdResponse:
        response = self.ask(self.initialization(producer_id, epoch, timeout_ms))
        assert isinstance(response, InitProducerIdResponse)
        return response

    def ask_by_request(self, asked: Joins, partition: int) -> dict[TopicPartition, int] | None:
        """What another broker is told of a partition."""
        topic = AddPartitionsToTxnTopic(name=TOPIC, partitions=[partition])
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=asked.transactional_id,
            producer_id=asked.producer_id,
            producer_epoch=asked.producer_epoch,
            verify_only=asked.verify_only,
            topics=[topic],
        )
        response = self.ask(AddPartitionsToTxnRequest(transactions=[transaction]))
        if response is None:
            return None
        [result] = response.results_by_transaction
        return {
            TopicPartition(each.name, item.partition_index): item.partition_error_code
            for each in result.topic_results
            for item in each.results_by_partition
        }

    def ask_directly(self, asked: Joins, partition: int) -> dict[TopicPartition, int] | None:
        """What a leader on this broker is told of a partition."""
        token = next(self._tokens)
        at = frozenset({TopicPartition(TOPIC, partition)})
        self._do(self.coordinator.join(token, asked, at, self.now))
        return self.answers.get(token)

    def add(self, epoch: int, *partitions: int, verify: bool = False, producer: int = 4000) -> int:
        """The error of the first of these partitions."""
        response = self.ask(
            AddPartitionsToTxnRequest(
                transactions=[
                    AddPartitionsToTxnTransaction(
                        transactional_id=ID,
                        producer_id=producer,
                        producer_epoch=epoch,
                        verify_only=verify,
                        topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=list(partitions))],
                    )
                ]
            )
        )
        [transaction] = response.results_by_transaction
        error: int = transaction.topic_results[0].results_by_partition[0].partition_error_code
        return error

    @staticmethod
    def joining(epoch: int, *partitions: int) -> AddPartitionsToTxnRequest:
        """As a client with version 1 asks, in version 3 of the request."""
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=ID,
            v3_and_below_producer_id=ProducerId(4000),
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=list(partitions))],
        )

    @staticmethod
    def joined(response: Any) -> int:
        """The error of the first partition in such a client's answer."""
        [topic] = response.results_by_topic_v3_and_below
        error: int = topic.results_by_partition[0].partition_error_code
        return error

    def add_as_client(self, epoch: int, *partitions: int) -> int:
        """As `add`, asked by a client with version 1."""
        return self.joined(self.ask(self.joining(epoch, *partitions), version=3))

    def end(
        self, epoch: int, *, commit: bool = True, version: int = 5, producer: int = 4000
    ) -> EndTxnResponse:
        response = self.ask(
            EndTxnRequest(
                transactional_id=ID, producer_id=producer, producer_epoch=epoch, committed=commit
            ),
            version,
        )
        assert isinstance(response, EndTxnResponse)
        return response

    def write_markers(self) -> SendMarkers:
        """All partitions have the markers that were sent last."""
        sent = self.sent.pop()
        self._do(self.coordinator.markers_written(sent.send_id, self.now))
        return sent

    def pass_time(self, ms: int) -> None:
        """Let time pass, with every tick that is due."""
        end_ms = self.now_ms + ms
        for _ in range(10_000):
            due_ms = self.coordinator.next_deadline()
            if due_ms is None or due_ms > end_ms:
                break
            self.now_ms = max(due_ms, self.now_ms)
            self._do(self.coordinator.tick(self.now))
        self.now_ms = end_ms

    def release(self, error: ErrorCode | None = None) -> None:
        """The oldest held append ends."""
        assert self.held
        append = self.held.pop(0)
        if error is None:
            self.log += append.records
        self._do(self.coordinator.appended(append.append_id, error, self.now))

    @property
    def state(self) -> Transaction:
        """What the coordinator holds for the id."""
        return self.coordinator._owned[0].shard.entries[ID].current

    def _do(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Reply(token, response):
                    assert isinstance(token, int)
                    self.answers[token] = response
                case AppendRecords():
                    self._append(effect)
                case TakeProducerId(request_id):
                    fresh = ProducerId(next(self._ids))
                    self._do(self.coordinator.producer_id_taken(request_id, fresh, self.now))
                case SendMarkers():
                    self.sent.append(effect)
                case CancelMarkers(partition):
                    self.cancelled.append(partition)
        self.coordinator.check()

    def _append(self, append: AppendRecords) -> None:
        if self.held is not None:
            self.held.append(append)
            return
        error = self.refusals.pop(0) if self.refusals else None
        if error is None:
            self.log += append.records
        self._do(self.coordinator.appended(append.append_id, error, self.now))
