"""What a transactional producer asks of coordinators, and what their answers mean for it."""

from __future__ import annotations

import random
from typing import Any

import pytest

from strandline.client.channel import RequestFailed
from strandline.client.coordinator_client import Ask
from strandline.client.group_requests import Committed, Membership
from strandline.client.router import Router
from strandline.client.settings import Address, ClientSettings
from strandline.client.transaction_manager import TransactionManager
from strandline.client.transaction_settings import TransactionSettings
from strandline.client.transaction_state import State
from strandline.errors import ErrorCode, ProducerFailed, ProtocolError, TransactionFailed
from strandline.protocol.apis import ApiKey, api_of
from strandline.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from strandline.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from strandline.protocol.messages.end_txn import EndTxnResponse
from strandline.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from strandline.protocol.messages.init_producer_id import InitProducerIdResponse
from strandline.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from strandline.types import Offset, TopicPartition

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
MEMBER = Membership("g", None, "m-1", 3)
OFFSETS = {A1: Committed(Offset(7))}
LOST = RequestFailed("the connection ended", was_sent=True)


class Batches:
    """As much of the producer's batches as the manager looks at."""

    def __init__(self) -> None:
        self.has_work = False
        self.numbered_anew = 0

    def number_anew(self) -> None:
        self.numbered_anew += 1


class Stage:
    """A manager between its program and its coordinators."""

    def __init__(self, version: int) -> None:
        self.now_ms = 1_000
        self.version = version
        router = Router(ClientSettings(), random.Random(1), [Address("b", 1)])
        router.learn_features(0, {"transaction.version": version})
        settings = TransactionSettings(transactional_id="t")
        self.manager = TransactionManager(settings, router, random.Random(2))
        self.batches = Batches()
        self.manager.batches = self.batches

    def asks(self) -> list[Ask]:
        """What is sent now, or at the next time at which something is."""
        asks = self.manager.step(self.now_ms)
        if not asks and self.manager.wake_ms is not None:
            self.now_ms = max(self.now_ms, self.manager.wake_ms)
            asks = self.manager.step(self.now_ms)
        return asks

    def ask(self, key: ApiKey) -> Ask:
        """The one request that is sent; coordinators are found on the way."""
        asks = self.asks()
        while asks and asks[0].key is ApiKey.FIND_COORDINATOR:
            found = Coordinator(node_id=4, host="b", port=1)
            self.answer(asks[0], FindCoordinatorResponse(coordinators=[found]))
            asks = self.asks()
        assert [each.key for each in asks] == [key]
        return asks[0]

    def message(self, ask: Ask) -> Any:
        newest = api_of(ask.key).versions.highest
        return ask.request(newest if ask.highest is None else ask.highest)

    def answer(self, ask: Ask, outcome: object) -> None:
        self.message(ask)  # a driver makes it, too
        self.manager.answered(ask, outcome, self.now_ms)

    # -- Answers -----------------------------------------------------------------------------

    def initialized(self, epoch: int = 0, code: ErrorCode = ErrorCode.NONE) -> Any:
        ask = self.ask(ApiKey.INIT_PRODUCER_ID)
        message = self.message(ask)
        answer = InitProducerIdResponse(error_code=code, producer_id=9, producer_epoch=epoch)
        self.answer(ask, answer)
        return message

    def added(self, code: ErrorCode = ErrorCode.NONE) -> list[int]:
        ask = self.ask(ApiKey.ADD_PARTITIONS_TO_TXN)
        [topic] = self.message(ask).v3_and_below_topics
        results = [
            AddPartitionsToTxnPartitionResult(partition_index=each, partition_error_code=code)
            for each in topic.partitions
        ]
        told = AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=results)
        self.answer(ask, AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[told]))
        found: list[int] = topic.partitions
        return found

    def offsets_committed(self, code: ErrorCode = ErrorCode.NONE) -> Any:
        ask = self.ask(ApiKey.TXN_OFFSET_COMMIT)
        part = TxnOffsetCommitResponsePartition(partition_index=1, error_code=code)
        topic = TxnOffsetCommitResponseTopic(name="a", partitions=[part])
        self.answer(ask, TxnOffsetCommitResponse(topics=[topic]))
        return self.message(ask)

    def ended(self, epoch: int, code: ErrorCode = ErrorCode.NONE) -> Any:
        ask = self.ask(ApiKey.END_TXN)
        message = self.message(ask)
        answer = EndTxnResponse(error_code=code)
        if self.version >= 2:
            answer = EndTxnResponse(error_code=code, producer_id=9, producer_epoch=epoch)
        self.answer(ask, answer)
        return message

    @property
    def state(self) -> State:
        return self.manager.state

    def begun(self) -> TransactionManager:
        """In a transaction, with epoch 0."""
        self.manager.initialize()
        self.initialized()
        self.manager.begin()
        return self.manager


@pytest.fixture(params=[1, 2])
def stage(request: pytest.FixtureRequest) -> Stage:
    return Stage(request.param)


def written(stage: Stage) -> None:
    """A batch is on its way to partition 0."""
    if not stage.manager.admits(A0, is_numbered=False):
        assert stage.added() == [0]
    assert stage.manager.admits(A0, is_numbered=False)


# -- The way that works ----------------------------------------------------------------------


def test_version_2_joins_by_writing_and_gets_an_epoch_with_each_end() -> None:
    stage = Stage(2)
    manager = stage.begun()
    assert manager.admits(A0, is_numbered=False)
    manager.send_offsets(OFFSETS, MEMBER)
    committed = stage.offsets_committed()
    assert (committed.generation_id, committed.member_id, committed.producer_epoch) == (3, "m-1", 0)
    assert not manager.is_busy
    manager.commit()
    assert stage.ended(1).committed
    assert (manager.state, manager.identity.current) == (State.READY, (9, 1))
    assert stage.batches.numbered_anew == 2


def test_version_1_joins_by_asking_and_keeps_its_epoch() -> None:
    stage = Stage(1)
    manager = stage.begun()
    assert not manager.admits(A0, is_numbered=False)
    assert not manager.admits(A1, is_numbered=False)
    assert stage.added() == [0, 1]
    assert manager.admits(A1, is_numbered=False)
    manager.send_offsets(OFFSETS, MEMBER)
    stage.answer(stage.ask(ApiKey.ADD_OFFSETS_TO_TXN), AddOffsetsToTxnResponse())
    assert stage.ask(ApiKey.TXN_OFFSET_COMMIT).highest == 4
    stage = Stage(1)
    stage.begun()
    written(stage)
    stage.manager.commit()
    assert stage.ask(ApiKey.END_TXN).highest == 4
    assert stage.manager.highest_produce == 11
    assert stage.manager.identity.current == (9, 0)


def test_nothing_is_ended_that_no_broker_has_heard_of() -> None:
    stage = Stage(1)
    manager = stage.begun()
    manager.commit()
    assert stage.asks() == []
    assert stage.state is State.READY


def test_an_end_waits_for_batches_and_offsets(stage: Stage) -> None:
    manager = stage.begun()
    written(stage)
    stage.batches.has_work = True
    manager.commit()
    assert stage.asks() == []
    stage.batches.has_work = False
    assert stage.ended(1).committed
    manager.begin()


def test_a_program_whose_patience_ended_goes_on_with_the_same_commit(stage: Stage) -> None:
    manager = stage.begun()
    written(stage)
    manager.commit()
    stage.answer(stage.ask(ApiKey.END_TXN), LOST)
    manager.commit()
    with pytest.raises(ProtocolError, match="'abort' is not possible now"):
        manager.abort()
    # Where it is asked again is looked up again.
    assert stage.ended(1).committed


def test_calls_in_a_wrong_order_are_refused(stage: Stage) -> None:
    with pytest.raises(ProtocolError, match="has not begun: 'begin'") as refused:
        stage.manager.begin()
    assert refused.value.code is ErrorCode.INVALID_TXN_STATE
    manager = stage.begun()
    with pytest.raises(ProtocolError, match="is in a transaction: 'begin'"):
        manager.begin()
    manager.send_offsets(OFFSETS, MEMBER)
    with pytest.raises(ProtocolError, match="Other offsets"):
        manager.send_offsets(OFFSETS, MEMBER)
    manager.abort()
    with pytest.raises(ProtocolError, match="aborts a transaction: 'send'"):
        manager.check_open()


# -- Errors ----------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED])
def test_a_fenced_producer_is_over(stage: Stage, code: ErrorCode) -> None:
    manager = stage.begun()
    written(stage)
    manager.commit()
    stage.ended(1, code)
    with pytest.raises(ProducerFailed, match=r"may not write any more.*Close it\.") as failed:
        manager.raise_error()
    assert failed.value.code is ErrorCode.PRODUCER_FENCED
    with pytest.raises(ProducerFailed):
        manager.abort()
    assert isinstance(manager.gives_up(is_numbered=True), ProducerFailed)
    assert stage.asks() == []


def test_what_a_batch_lacks_makes_the_transaction_abort(stage: Stage) -> None:
    manager = stage.begun()
    written(stage)
    manager.batch_failed(
        ProtocolError(ErrorCode.REQUEST_TIMED_OUT, "It took too long."), is_number_lost=True
    )
    with pytest.raises(TransactionFailed, match=r"It took too long\. Abort the transaction"):
        manager.commit()
    # What was never sent fails; what may be written is sent until that is known.
    assert manager.gives_up(is_numbered=False) is not None
    assert manager.gives_up(is_numbered=True) is None
    assert manager.admits(A0, is_numbered=True)
    assert not manager.admits(A0, is_numbered=False)
    manager.abort()
    assert not stage.ended(1).committed
    if stage.version == 1:  # the next number is not known: another epoch is needed
        asked = stage.initialized(epoch=1)
        assert (asked.producer_id, asked.producer_epoch) == (9, 0)
    assert (manager.state, manager.identity.current) == (State.READY, (9, 1))
    manager.begin()


def test_a_batch_that_was_never_numbered_needs_no_other_epoch() -> None:
    stage = Stage(1)
    manager = stage.begun()
    written(stage)
    refused = ProtocolError(ErrorCode.MESSAGE_TOO_LARGE, "It is large.")
    manager.batch_failed(refused, is_number_lost=False)
    manager.abort()
    stage.ended(0)
    assert (manager.state, manager.identity.current) == (State.READY, (9, 0))


def test_a_leader_that_refuses_the_epoch_leaves_the_verdict_to_the_coordinator(
    stage: Stage,
) -> None:
    manager = stage.begun()
    written(stage)
    manager.batch_failed(ProtocolError(ErrorCode.INVALID_PRODUCER_EPOCH), is_number_lost=True)
    manager.abort()
    stage.ended(1, ErrorCode.PRODUCER_FENCED)
    assert stage.state is State.FAILED


@pytest.mark.parametrize(
    "code",
    [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID],
)
def test_offsets_of_a_member_that_is_out_abort_the_transaction(code: ErrorCode) -> None:
    stage = Stage(2)
    manager = stage.begun()
    manager.send_offsets(OFFSETS, MEMBER)
    stage.offsets_committed(code)
    with pytest.raises(TransactionFailed) as failed:
        manager.raise_error()
    assert failed.value.code is code
    manager.abort()
    assert not stage.ended(1).committed


def test_what_may_mend_itself_is_asked_again(stage: Stage) -> None:
    manager = stage.begun()
    written(stage)
    manager.send_offsets(OFFSETS, MEMBER)
    if stage.version == 1:
        stage.answer(stage.ask(ApiKey.ADD_OFFSETS_TO_TXN), LOST)
        stage.answer(stage.ask(ApiKey.ADD_OFFSETS_TO_TXN), AddOffsetsToTxnResponse())
    stage.offsets_committed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    stage.offsets_committed(ErrorCode.NOT_COORDINATOR)
    stage.offsets_committed()
    manager.commit()
    stage.ended(1, ErrorCode.CONCURRENT_TRANSACTIONS)
    stage.ended(1, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    stage.ended(1)
    assert stage.state is State.READY


def test_partitions_that_may_have_joined_are_cleared_up_before_the_end() -> None:
    """Whether there is anything to end is known only then: an end of nothing is refused."""
    stage = Stage(1)
    manager = stage.begun()
    assert not manager.admits(A0, is_numbered=False)
    stage.answer(stage.ask(ApiKey.ADD_PARTITIONS_TO_TXN), LOST)
    manager.abort()
    assert stage.added() == [0]
    assert not stage.ended(0).committed


def test_offsets_that_may_be_there_are_cleared_up_before_the_end(stage: Stage) -> None:
    manager = stage.begun()
    manager.send_offsets(OFFSETS, MEMBER)
    if stage.version == 1:
        stage.answer(stage.ask(ApiKey.ADD_OFFSETS_TO_TXN), AddOffsetsToTxnResponse())
    ask = stage.ask(ApiKey.TXN_OFFSET_COMMIT)
    manager.abort()
    assert stage.asks() == []
    stage.answer(ask, LOST)
    stage.offsets_committed()
    assert not stage.ended(1).committed


def test_a_forgotten_id_is_replaced_without_an_end() -> None:
    stage = Stage(1)
    manager = stage.begun()
    assert not manager.admits(A0, is_numbered=False)
    stage.added(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    assert stage.state is State.ABORTABLE
    manager.abort()
    stage.initialized(epoch=5)
    assert (manager.state, manager.identity.current) == (State.READY, (9, 5))


def test_topics_that_may_not_be_written_abort_the_transaction() -> None:
    stage = Stage(1)
    manager = stage.begun()
    assert not manager.admits(A0, is_numbered=False)
    stage.added(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(TransactionFailed):
        manager.commit()
    manager.abort()
    assert stage.asks() == []
    assert stage.state is State.READY


def test_an_id_that_may_not_be_used_ends_the_producer(stage: Stage) -> None:
    stage.manager.initialize()
    stage.initialized(code=ErrorCode.CONCURRENT_TRANSACTIONS)
    stage.initialized(code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    with pytest.raises(ProducerFailed, match="Close this producer"):
        stage.manager.begin()
