"""The transaction coordinator as a state machine: epochs, fencing, ends, loading, time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from strandline.errors import ErrorCode
from strandline.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from strandline.protocol.messages.describe_transactions import DescribeTransactionsRequest
from strandline.protocol.messages.end_txn import EndTxnRequest
from strandline.protocol.messages.init_producer_id import InitProducerIdRequest
from strandline.protocol.messages.list_transactions import ListTransactionsRequest
from strandline.transactions.effects import SendMarkers
from strandline.transactions.records import decode_record
from strandline.transactions.settings import TransactionSettings
from strandline.transactions.transaction import TransactionState
from strandline.types import LeaderEpoch, ProducerEpoch, ProducerId, TopicPartition
from tests.current import current
from tests.transactions.coordinated import ID, TOPIC, Coordinated

LAST_GIVEN_EPOCH = 2**15 - 2


def opened(version: int = 2) -> Coordinated:
    """Producer 4000 with epoch 0 has an open transaction on partition 0."""
    world = Coordinated(version=version)
    world.initialize()
    assert world.add(0, 0) == ErrorCode.NONE
    return world


def test_a_new_id_gets_a_fresh_producer_and_each_further_producer_the_next_epoch() -> None:
    world = Coordinated()
    first, second = world.initialize(), world.initialize()

    assert (first.producer_id, first.producer_epoch) == (4000, 0)
    assert (second.producer_id, second.producer_epoch) == (4000, 1)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_beyond_the_limit_is_refused(timeout_ms: int) -> None:
    refused = Coordinated().initialize(timeout_ms=timeout_ms)

    assert refused.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert refused.producer_id == -1


def test_an_empty_id_is_no_id() -> None:
    refused = Coordinated().ask(
        InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1)
    )

    assert refused.error_code == ErrorCode.INVALID_REQUEST


def test_version_2_raises_the_epoch_with_the_end_and_tells_it() -> None:
    world = opened()
    ended = world.end(0)

    assert (ended.error_code, ended.producer_id, ended.producer_epoch) == (0, 4000, 1)
    assert world.write_markers() == SendMarkers(
        1,
        0,
        ProducerId(4000),
        ProducerEpoch(1),
        True,
        world.epoch,
        2,
        frozenset({TopicPartition(TOPIC, 0)}),
    )
    assert world.state.state is TransactionState.COMPLETE_COMMIT
    assert world.state.partitions == frozenset()


def test_version_1_keeps_the_epoch() -> None:
    world = opened(version=0)
    assert world.end(0, version=4).error_code == ErrorCode.NONE

    sent = world.write_markers()
    assert (sent.producer_epoch, sent.transaction_version) == (0, 0)
    assert world.add(0, 1) == ErrorCode.NONE


def test_a_repeated_end_is_answered_alike_and_another_one_is_refused() -> None:
    world = opened()
    world.end(0)

    assert world.end(0).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.end(0, commit=False).error_code == ErrorCode.INVALID_TXN_STATE
    world.write_markers()
    repeated = world.end(0)
    assert (repeated.error_code, repeated.producer_epoch) == (ErrorCode.NONE, 1)
    assert world.end(0, commit=False).error_code == ErrorCode.INVALID_TXN_STATE


def test_version_1_tells_a_repeated_end_by_the_state() -> None:
    world = opened(version=0)
    world.end(0, version=4, commit=False)

    assert world.end(0, version=4, commit=False).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.end(0, version=4).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    world.write_markers()
    assert world.end(0, version=4).error_code == ErrorCode.INVALID_TXN_STATE
    assert world.end(0, version=4, commit=False).error_code == ErrorCode.NONE
    assert world.end(1, version=4, commit=False).error_code == ErrorCode.PRODUCER_FENCED


FORMER = [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def former(version: int = 2) -> Coordinated:
    """A coordinator that does not know yet that another broker leads. Its producer has epoch 0."""
    world = opened(version)
    if version:
        world.end(0)
    else:
        world.end(0, version=4)
    world.write_markers()
    world.refusals = list(FORMER)
    return world


@pytest.mark.parametrize(
    "asked",
    [
        lambda world: world.end(1).error_code,  # a transaction that has begun elsewhere
        lambda world: world.end(2).error_code,
        lambda world: world.end(2, commit=False).error_code,
        lambda world: world.end(0, producer=5000).error_code,
        lambda world: world.end(2, version=4).error_code,
        lambda world: world.add(2, 0),
        lambda world: world.add(0, 0, producer=5000),
        lambda world: world.initialize(4000, 2).error_code,
        lambda world: world.initialize(5000, 0).error_code,
    ],
)
def test_a_former_coordinator_fences_no_producer_that_may_know_more(
    asked: Callable[[Coordinated], int],
) -> None:
    """Seed 102010446: a commit was refused for ever by a broker that knew nothing of it."""
    world = former()
    records = len(world.log)

    assert asked(world) == ErrorCode.NOT_COORDINATOR
    assert len(world.log) == records
    told = asked(world)
    assert told in (
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.PRODUCER_FENCED,
    )
    assert world.log[-1] == world.log[records - 1], "what is known is written once more"


def test_a_former_coordinator_says_of_no_transaction_that_it_is_committed() -> None:
    """With version 1 all transactions of a producer have one epoch."""
    world = former(0)
    assert world.end(0, version=4).error_code == ErrorCode.NOT_COORDINATOR
    assert world.end(0, version=4).error_code == ErrorCode.NONE

    world.add_as_client(0, 0)
    world.refusals = list(FORMER)
    assert world.add_as_client(0, 0) == ErrorCode.NOT_COORDINATOR
    assert world.add_as_client(0, 0) == ErrorCode.NONE


def test_a_producer_that_is_fenced_for_certain_hears_of_it_at_once() -> None:
    world = former()
    world.refusals.clear()
    world.end(1, commit=False)
    world.write_markers()
    records = len(world.log)

    assert world.end(0).error_code == ErrorCode.PRODUCER_FENCED
    assert world.add(0, 0) == ErrorCode.PRODUCER_FENCED
    assert world.initialize(4000, 0).error_code == ErrorCode.PRODUCER_FENCED
    assert len(world.log) == records


@pytest.mark.parametrize("is_pending", [True, False])
def test_a_producer_that_may_know_more_asks_again_while_a_change_is_under_way(
    is_pending: bool,
) -> None:
    world = opened()
    if is_pending:
        world.held = []
    world.ask(EndTxnRequest(transactional_id=ID, producer_id=4000, producer_epoch=0))

    assert world.end(2).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.add(2, 0) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.initialize(4000, 2).error_code == ErrorCode.CONCURRENT_TRANSACTIONS


def test_version_2_aborts_what_has_not_begun_and_commits_no_such_thing() -> None:
    world = Coordinated()
    world.initialize()

    assert world.end(0).error_code == ErrorCode.INVALID_TXN_STATE
    ended = world.end(0, commit=False)
    assert (ended.error_code, ended.producer_epoch) == (ErrorCode.NONE, 1)
    assert world.write_markers().partitions == frozenset()
    assert world.end(1, commit=False).producer_epoch == 2


@pytest.mark.parametrize("committed", [True, False])
def test_an_abort_of_the_next_transaction_waits_for_the_markers_of_the_last(
    committed: bool,
) -> None:
    """The producer has been told its next epoch; what it began came to nothing (seed 41000337)."""
    world = opened()
    world.end(0, commit=committed)

    assert world.end(1, commit=False).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    world.write_markers()
    assert world.end(1, commit=False).producer_epoch == 2


@pytest.mark.parametrize(("version", "fencing_epoch"), [(0, 1), (2, 2)])
def test_a_new_producer_aborts_the_open_transaction_and_fences_the_old_one(
    version: int, fencing_epoch: int
) -> None:
    """With version 2 epoch 1 is that of the next transaction of the old producer: see note 0051."""
    world = opened(version)

    assert world.initialize().error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.add(0, 1) == ErrorCode.PRODUCER_FENCED
    assert world.end(0, version=5 if version else 4).error_code == ErrorCode.PRODUCER_FENCED
    sent = world.write_markers()
    assert (sent.commits, sent.producer_epoch) == (False, fencing_epoch)
    assert world.initialize().producer_epoch == fencing_epoch + 1


def test_the_producer_itself_may_go_on_and_ask_twice() -> None:
    world = Coordinated()
    world.initialize()

    assert world.initialize(4000, 0).producer_epoch == 1
    assert world.initialize(4000, 0).producer_epoch == 1
    assert world.initialize().producer_epoch == 2
    assert world.initialize(4000, 0).error_code == ErrorCode.PRODUCER_FENCED
    assert world.initialize(77, 2).error_code == ErrorCode.PRODUCER_FENCED


def exhausted(version: int) -> Coordinated:
    """A producer with the last epoch that is ever given."""
    world = Coordinated(version=version)
    world.initialize()
    for epoch in range(LAST_GIVEN_EPOCH):
        assert world.initialize(4000, epoch).producer_epoch == epoch + 1
    return world


def test_used_up_epochs_bring_a_new_producer_id() -> None:
    world = exhausted(2)

    assert world.add(LAST_GIVEN_EPOCH, 0) == ErrorCode.NONE
    ended = world.end(LAST_GIVEN_EPOCH)
    assert (ended.producer_id, ended.producer_epoch) == (4001, 0)
    assert world.write_markers().producer_epoch == LAST_GIVEN_EPOCH + 1
    repeated = world.end(LAST_GIVEN_EPOCH)
    assert (repeated.error_code, repeated.producer_id) == (ErrorCode.NONE, 4001)
    assert world.add(0, 0, producer=4001) == ErrorCode.NONE


def test_a_producer_without_epochs_asks_for_the_next_id_twice() -> None:
    world = exhausted(0)

    for _ in range(2):
        given = world.initialize(4000, LAST_GIVEN_EPOCH)
        assert (given.producer_id, given.producer_epoch) == (4001, 0)
    assert world.initialize(4000, 5).error_code == ErrorCode.PRODUCER_FENCED


def test_a_fenced_producer_never_gets_the_highest_epoch() -> None:
    world = exhausted(2)
    world.add(LAST_GIVEN_EPOCH, 0)
    world.pass_time(71_000)

    assert world.write_markers().producer_epoch == LAST_GIVEN_EPOCH + 1
    late = world.end(LAST_GIVEN_EPOCH, commit=False)
    assert (late.error_code, late.producer_id, late.producer_epoch) == (ErrorCode.NONE, 4001, 0)


def test_partitions_join_once_and_can_be_verified() -> None:
    world = opened()
    written = len(world.log)

    assert world.add(0, 0) == ErrorCode.NONE
    assert len(world.log) == written
    assert world.add(0, 0, verify=True) == ErrorCode.NONE
    assert world.add(0, 5, verify=True) == ErrorCode.TRANSACTION_ABORTABLE
    assert world.add(1, 0, verify=True) == ErrorCode.PRODUCER_FENCED
    assert world.add(0, 0, verify=True, producer=5) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    world.end(0)
    assert world.add(1, 0) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.add(1, 0, verify=True) == ErrorCode.CONCURRENT_TRANSACTIONS


def test_nothing_is_answered_before_it_is_durable() -> None:
    world = opened()
    world.held = []

    assert world.ask(_end_request()) is None
    assert not world.sent
    assert world.add(0, 0, verify=True) == ErrorCode.NONE
    assert world.end(0).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    world.release()
    assert world.sent
    assert not world.coordinator.unanswered


def test_a_refused_append_changes_nothing() -> None:
    world = opened()
    world.refusals = [ErrorCode.NOT_ENOUGH_REPLICAS]

    assert world.end(0).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.state.state is TransactionState.ONGOING
    assert world.end(0).producer_epoch == 1


def test_an_append_that_takes_long_is_answered_and_may_yet_count() -> None:
    world = opened()
    world.held = []
    world.ask(_end_request())
    world.pass_time(world.settings.append_timeout_ms)

    newest = world.answers[max(world.answers)]
    assert newest.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.end(0).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    world.release()
    assert world.sent[0].commits


def test_the_end_is_written_until_it_is() -> None:
    world = opened()
    world.end(0)
    world.refusals = [ErrorCode.NOT_ENOUGH_REPLICAS] * 3
    world.write_markers()

    assert current(world.state.state) is TransactionState.PREPARE_COMMIT
    world.pass_time(3 * world.settings.retry_ms)
    assert world.state.state is TransactionState.COMPLETE_COMMIT


@pytest.mark.parametrize("commit", [True, False])
def test_the_next_coordinator_finishes_what_is_decided(commit: bool) -> None:
    world = opened()
    world.end(0, commit=commit)
    first_epoch = world.epoch
    world.lead()

    sent = world.write_markers()
    assert (sent.commits, sent.producer_epoch, sent.transaction_version) == (commit, 1, 2)
    assert sent.coordinator_epoch > first_epoch
    assert world.end(0, commit=commit).producer_epoch == 1


def test_a_loading_partition_is_not_served() -> None:
    world = opened()
    world.coordinator.start_loading(0, world.epoch + 1, world.now)  # type: ignore[arg-type]

    assert world.add(0, 1) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert world.end(0).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert world.ask(ListTransactionsRequest()).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_nothing_is_decided_about_what_is_only_half_loaded() -> None:
    """What looks overdue may be committed in the next record."""
    world = opened()
    world.end(0)
    world.write_markers()
    written = list(world.log)
    [begun] = [
        number
        for number, record in enumerate(written)
        if (found := decode_record(record)) is not None
        and found[1] is not None
        and found[1].state is TransactionState.ONGOING
    ]
    epoch = LeaderEpoch(world.epoch + 1)
    world.coordinator.start_loading(0, epoch, world.now)
    world.coordinator.replay(0, epoch, written[: begun + 1])
    world.pass_time(120_000)
    world.coordinator.check()
    world.coordinator.replay(0, epoch, written[begun + 1 :])
    world.coordinator.finish_loading(0, epoch)

    assert world.log == written
    assert world.end(0).error_code == ErrorCode.NONE


def test_who_waits_is_told_when_the_coordinator_moves() -> None:
    world = opened()
    world.held = []
    world.ask(_end_request())
    world._do(world.coordinator.unload_partition(0, world.epoch + 1))  # type: ignore[arg-type]

    newest = world.answers[max(world.answers)]
    assert newest.error_code == ErrorCode.NOT_COORDINATOR
    assert world.cancelled == [0]
    assert world.add(0, 1) == ErrorCode.NOT_COORDINATOR
    assert not world.coordinator.unanswered


def test_a_transaction_past_its_timeout_is_aborted_and_its_producer_fenced() -> None:
    world = opened()
    world.pass_time(59_000)
    assert world.state.state is TransactionState.ONGOING
    world.pass_time(12_000)

    assert not world.write_markers().commits
    assert world.add(0, 1) == ErrorCode.PRODUCER_FENCED
    assert world.end(0).error_code == ErrorCode.PRODUCER_FENCED
    assert world.end(0, version=4).error_code == ErrorCode.PRODUCER_FENCED


def test_ids_are_forgotten_when_they_are_idle_for_long() -> None:
    world = Coordinated(TransactionSettings(id_expiration_ms=1000, expiry_interval_ms=500))
    world.initialize()
    world.pass_time(2000)

    assert world.log[-1].value is None
    [state] = world.ask(DescribeTransactionsRequest(transactional_ids=[ID])).transaction_states
    assert state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert world.initialize().producer_id == 4001


def test_an_open_transaction_is_described_and_listed() -> None:
    world = opened()
    world.now_ms += 50
    [state] = world.ask(DescribeTransactionsRequest(transactional_ids=[ID])).transaction_states

    assert (state.transaction_state, state.transaction_start_time_ms) == ("Ongoing", 1_000_000)
    assert [(each.topic, each.partitions) for each in state.topics] == [(TOPIC, [0])]


@pytest.mark.parametrize(
    ("filters", "passes"),
    [
        ({}, True),
        ({"state_filters": ["Ongoing", "Bogus"]}, True),
        ({"state_filters": ["Bogus"]}, False),
        ({"state_filters": ["CompleteAbort"]}, False),
        ({"producer_id_filters": [4000]}, True),
        ({"producer_id_filters": [1]}, False),
        ({"duration_filter": 49}, True),
        ({"duration_filter": 50}, False),
    ],
)
def test_lists_are_filtered(filters: dict[str, object], passes: bool) -> None:
    world = opened()
    world.now_ms += 50
    response = world.ask(ListTransactionsRequest(**filters))  # type: ignore[arg-type]

    assert bool(response.transaction_states) is passes
    assert response.unknown_state_filters == [
        name
        for name in filters.get("state_filters", ())  # type: ignore[attr-defined]
        if name == "Bogus"
    ]


def _end_request() -> object:
    return EndTxnRequest(transactional_id=ID, producer_id=4000, producer_epoch=0, committed=True)


def test_transactions_that_take_too_long_are_ended_in_slices() -> None:
    """Others are served in between: each slice is a turn of its own."""
    world = Coordinated(TransactionSettings(aborted_per_turn=2))
    for number in range(5):
        name = f"id-{number}"
        made = world.ask(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1000))
        topics = [AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])]
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=name, producer_id=made.producer_id, producer_epoch=0, topics=topics
        )
        world.ask(AddPartitionsToTxnRequest(transactions=[transaction]))
    due_ms = world.settings.abort_interval_ms
    world.pass_time(due_ms)
    assert len(world.sent) == 2
    world.pass_time(1)
    assert len(world.sent) == 4
    world.pass_time(1)
    assert len(world.sent) == 5
    deadline_ms = world.coordinator.next_deadline()
    assert deadline_ms is not None
    assert deadline_ms >= world.now_ms + due_ms


def test_idle_ids_are_forgotten_in_slices() -> None:
    """Others are served in between: 100,000 ids took three seconds."""
    world = Coordinated(TransactionSettings(id_expiration_ms=1000, expired_per_turn=2))
    for number in range(5):
        name = f"id-{number}"
        world.ask(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1000))
    known = len(world.log)
    world.pass_time(world.settings.expiry_interval_ms)
    forgotten = []
    for _ in range(4):
        forgotten.append(len(world.log) - known)
        world.pass_time(1)
    assert forgotten == [2, 4, 5, 5]
    deadline_ms = world.coordinator.next_deadline()
    assert deadline_ms is not None
    assert deadline_ms >= world.now_ms + world.settings.abort_interval_ms - 10
