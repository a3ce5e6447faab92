"""Partitions that are to join the next transaction wait for the end of the last one (note 0053)."""

from __future__ import annotations

import pytest

from strandline.errors import ErrorCode, InvariantViolated
from strandline.node.transaction_verification import Question
from strandline.transactions.settings import TransactionSettings
from strandline.transactions.shard import Shard
from strandline.transactions.transaction import TransactionState
from strandline.types import LeaderEpoch, ProducerEpoch, ProducerId, TopicPartition
from tests.transactions.coordinated import ID, TOPIC, Coordinated


def decided(settings: TransactionSettings | None = None) -> Coordinated:
    """A transaction of version 1 whose commit is decided, without its markers."""
    world = Coordinated(settings)
    world.initialize()
    assert world.add_as_client(0, 0) == ErrorCode.NONE
    assert world.end(0, version=4).error_code == ErrorCode.NONE
    return world


def wait_to_join(world: Coordinated, partition: int) -> int:
    """The token of a client's request that waits."""
    before = world.coordinator.unanswered
    assert world.ask(world.joining(0, partition), version=3) is None
    [token] = world.coordinator.unanswered - before
    assert isinstance(token, int)
    world.coordinator.check()
    return token


def test_a_client_joins_as_soon_as_its_last_transaction_has_ended() -> None:
    world = decided()
    token = wait_to_join(world, 1)

    world.write_markers()

    assert world.joined(world.answers[token]) == ErrorCode.NONE
    assert world.state.state is TransactionState.ONGOING
    assert world.state.partitions == {TopicPartition(TOPIC, 1)}
    world.coordinator.check()


def test_several_that_wait_join_one_after_another() -> None:
    world = decided()
    tokens = [wait_to_join(world, partition) for partition in (1, 2, 3)]
    world.held = []

    world.write_markers()
    for left in (3, 2, 1):
        world.release()
        assert len(world.coordinator.unanswered) == left
        world.coordinator.check()
    world.release()

    assert [world.joined(world.answers[token]) for token in tokens] == [ErrorCode.NONE] * 3
    assert {each.partition for each in world.state.partitions} == {1, 2, 3}


def test_a_change_of_which_nothing_is_known_yet_is_waited_for_as_well() -> None:
    world = Coordinated()
    world.initialize()
    world.held = []
    first = wait_to_join(world, 1)
    second = wait_to_join(world, 2)

    world.release()
    assert world.joined(world.answers[first]) == ErrorCode.NONE
    world.release()
    assert world.joined(world.answers[second]) == ErrorCode.NONE


def test_a_request_that_waits_is_fenced_if_a_new_producer_has_come() -> None:
    world = Coordinated()
    world.initialize()
    world.held = []
    assert world.ask(world.initialization()) is None
    token = wait_to_join(world, 1)

    world.release()
    assert world.joined(world.answers[token]) == ErrorCode.PRODUCER_FENCED


def test_the_wait_is_bounded() -> None:
    world = decided()
    token = wait_to_join(world, 1)

    world.pass_time(world.settings.join_wait_max_ms - 1)
    assert token in world.coordinator.unanswered
    world.pass_time(1)
    assert world.joined(world.answers[token]) == ErrorCode.CONCURRENT_TRANSACTIONS
    world.write_markers()
    assert world.state.state is TransactionState.COMPLETE_COMMIT


def test_another_coordinator_is_named_at_once() -> None:
    world = decided()
    token = wait_to_join(world, 1)

    world._do(world.coordinator.unload_partition(0, LeaderEpoch(world.epoch + 1)))

    assert world.joined(world.answers[token]) == ErrorCode.NOT_COORDINATOR
    assert world.coordinator.next_deadline() is None


def test_without_patience_it_is_refused_as_by_kafka() -> None:
    world = decided(TransactionSettings(join_wait_max_ms=0))

    assert world.add_as_client(0, 1) == ErrorCode.CONCURRENT_TRANSACTIONS


@pytest.mark.parametrize("adds", [True, False])
def test_of_the_leaders_only_one_on_this_broker_may_wait_and_only_to_join(adds: bool) -> None:
    world = Coordinated()
    world.initialize()
    world.add(0, 0)
    world.end(0)
    at = TopicPartition(TOPIC, 1)
    question = Question(
        transactional_id=ID,
        producer_id=ProducerId(4000),
        producer_epoch=ProducerEpoch(1),
        partitions=frozenset({at}),
        adds=adds,
        knows_abortable=True,
    )

    assert world.ask_by_request(question, 1) == {at: ErrorCode.CONCURRENT_TRANSACTIONS}
    told = world.ask_directly(question, 1)
    if not adds:
        assert told == {at: ErrorCode.CONCURRENT_TRANSACTIONS}
        return
    assert told is None
    [token] = world.coordinator.unanswered
    world.write_markers()
    assert isinstance(token, int)
    assert world.answers[token] == {at: ErrorCode.NONE}


def test_one_that_waits_for_nothing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    world = decided()
    wait_to_join(world, 1)
    monkeypatch.setattr(Shard, "_let_go_on", lambda *_: None)

    with pytest.raises(InvariantViolated, match="not busy"):
        world.write_markers()
