"""Producers that lose their transaction to another one, or to its timeout (version 2, KIP-890).

The coordinator aborts under the next epoch, and so does a producer that aborts by itself: of an
EndTxn that comes late it has to be told whose abort it was.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from strandline.errors import ErrorCode
from strandline.transactions.records import encode_record
from strandline.transactions.transaction import EPOCH_MAX, Transaction, TransactionState
from strandline.types import ProducerEpoch, ProducerId
from tests.transactions.coordinated import ID, Coordinated

LAST_GIVEN_EPOCH = EPOCH_MAX - 1


def opened(epoch: int = 0) -> Coordinated:
    """Producer 4000 with this epoch has an open transaction on partition 0."""
    world = Coordinated()
    known = Transaction(
        producer_id=ProducerId(4000), producer_epoch=ProducerEpoch(epoch), timeout_ms=60_000
    )
    world.log.append(encode_record(ID, known))
    world.lead()
    assert world.add(epoch, 0) == ErrorCode.NONE
    return world


def taken_over(epoch: int = 0) -> Coordinated:
    """A new producer has asked for an id, and is to ask again: what was open is aborted."""
    world = opened(epoch)
    assert world.initialize().error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    world.write_markers()
    return world


@pytest.mark.parametrize(
    "asked",
    [
        lambda world: world.end(0, commit=False).error_code,
        lambda world: world.end(0).error_code,
        lambda world: world.initialize(4000, 0).error_code,
        lambda world: world.add(0, 0),
        lambda world: world.add(1, 0),
    ],
    ids=["abort", "commit", "go on", "write", "write with the next epoch"],
)
def test_the_producer_before_learns_no_epoch_from_the_one_that_fences_it(
    asked: Callable[[Coordinated], int],
) -> None:
    world = taken_over()

    assert asked(world) == ErrorCode.PRODUCER_FENCED
    assert (world.state.producer_id, world.state.producer_epoch) == (4000, 2)
    assert world.initialize().producer_epoch == 3


def test_an_abort_of_the_producer_before_is_fenced_while_the_markers_are_written() -> None:
    world = opened()
    world.initialize()

    assert world.end(0, commit=False).error_code == ErrorCode.PRODUCER_FENCED
    assert world.write_markers().producer_epoch == 2


def test_a_new_coordinator_fences_the_producer_before_too() -> None:
    world = opened()
    world.initialize()
    world.lead()

    assert world.write_markers().producer_epoch == 2
    assert world.end(0, commit=False).error_code == ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize(
    ("epoch", "asked_again"),
    [(0, 1), (LAST_GIVEN_EPOCH - 2, 1), (LAST_GIVEN_EPOCH - 1, 3), (LAST_GIVEN_EPOCH, 2)],
)
def test_a_new_producer_begins_although_the_one_before_aborts_and_goes_on(
    epoch: int, asked_again: int
) -> None:
    """The last two epochs leave no room for a second raise: the zombie is fenced a bit later."""
    world = opened(epoch)
    zombie = 4000, epoch
    asked = 0
    while (begun := world.initialize()).error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
        asked += 1
        assert asked <= asked_again
        world.write_markers()
        ended = world.end(zombie[1], commit=False, producer=zombie[0])
        if ended.error_code == ErrorCode.NONE:
            zombie = ended.producer_id, ended.producer_epoch
            assert world.add(zombie[1], 0, producer=zombie[0]) == ErrorCode.NONE

    assert (begun.error_code, asked) == (ErrorCode.NONE, asked_again)
    refused = world.end(zombie[1], commit=False, producer=zombie[0])
    assert refused.error_code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING)


@pytest.mark.parametrize("epoch", [LAST_GIVEN_EPOCH - 2, LAST_GIVEN_EPOCH - 1, LAST_GIVEN_EPOCH])
def test_no_producer_can_use_the_highest_epoch(epoch: int) -> None:
    """From it no transaction could be committed any more."""
    world = taken_over(epoch)

    assert world.state.producer_epoch < EPOCH_MAX
    assert world.add(EPOCH_MAX, 0) != ErrorCode.NONE
    assert world.end(EPOCH_MAX, commit=False).error_code != ErrorCode.NONE


def under_the_highest(version: int) -> Coordinated:
    """A producer has made up the epoch by which the last one was fenced below version 2."""
    world = Coordinated(version=1)
    fenced = Transaction(
        producer_id=ProducerId(4000),
        producer_epoch=ProducerEpoch(EPOCH_MAX),
        timeout_ms=60_000,
        state=TransactionState.COMPLETE_ABORT,
    )
    world.log.append(encode_record(ID, fenced))
    world.lead()
    assert world.add_as_client(EPOCH_MAX, 0) == ErrorCode.NONE
    world.version = version
    return world


@pytest.mark.parametrize(
    "end",
    [
        lambda world: world.end(EPOCH_MAX, commit=False),
        lambda world: world.initialize(),
        lambda world: world.initialize(4000, EPOCH_MAX),
        lambda world: world.pass_time(71_000),
    ],
    ids=["abort", "begin anew", "go on", "take too long"],
)
@pytest.mark.parametrize("version", [1, 2])
def test_a_transaction_under_the_highest_epoch_is_aborted_under_it(
    version: int, end: Callable[[Coordinated], object]
) -> None:
    """As in Kafka 4.3 (KAFKA-20090): else it would stay open, and with it every later one."""
    world = under_the_highest(version)

    end(world)
    assert world.write_markers().producer_epoch == EPOCH_MAX
    begun = world.initialize()
    assert (begun.error_code, begun.producer_epoch < LAST_GIVEN_EPOCH) == (ErrorCode.NONE, True)


@pytest.mark.parametrize("version", [1, 2])
def test_a_commit_under_the_highest_epoch_raises_none_above_it(version: int) -> None:
    world = under_the_highest(version)

    assert world.end(EPOCH_MAX).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert world.state.state is TransactionState.ONGOING
    assert world.end(EPOCH_MAX, version=4).error_code == ErrorCode.NONE
    assert world.write_markers().commits


def test_a_producer_that_goes_on_by_itself_gets_the_epoch_of_the_abort() -> None:
    """Its second request would be refused if the epoch were raised once more (KIP-360)."""
    world = opened()

    assert world.initialize(4000, 0).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.write_markers().producer_epoch == 1
    assert world.initialize(4000, 0).producer_epoch == 1


@pytest.mark.parametrize("is_written", [True, False])
@pytest.mark.parametrize("epoch", [0, LAST_GIVEN_EPOCH])
def test_a_commit_after_the_timeout_is_fenced(epoch: int, is_written: bool) -> None:
    """KAFKA-20785: INVALID_TXN_STATE would end a thread of Kafka Streams."""
    world = opened(epoch)
    world.pass_time(71_000)
    if is_written:
        world.write_markers()

    assert world.end(epoch).error_code == ErrorCode.PRODUCER_FENCED


def test_an_abort_after_the_timeout_is_answered_and_the_producer_goes_on() -> None:
    world = opened()
    world.pass_time(71_000)

    assert world.end(0, commit=False).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    world.write_markers()
    ended = world.end(0, commit=False)
    assert (ended.error_code, ended.producer_epoch) == (ErrorCode.NONE, 1)
    assert world.add(1, 0) == ErrorCode.NONE


def test_a_commit_without_a_transaction_behind_an_abort_is_an_error_of_the_producer() -> None:
    world = opened()
    world.end(0, commit=False)
    world.write_markers()

    assert world.end(1).error_code == ErrorCode.INVALID_TXN_STATE
