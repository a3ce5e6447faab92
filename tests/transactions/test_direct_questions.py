"""What the leader of a partition asks its own broker's coordinator, beside the same in a request.

One coordinator is asked by AddPartitionsToTxn as another broker would, the other one directly, in
every state that an id may be in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from strandline.errors import ErrorCode
from strandline.transactions.settings import TransactionSettings
from strandline.types import LeaderEpoch, ProducerEpoch, ProducerId, TopicPartition
from tests.transactions.coordinated import ID, TOPIC, Coordinated

PRODUCER = ProducerId(4000)


class Question(NamedTuple):
    """As the leader of a partition asks."""

    producer_id: int
    producer_epoch: int
    verify_only: bool
    transactional_id: str = ID


def nothing(_: Coordinated) -> None:
    """The id is not known."""


def begun(world: Coordinated) -> None:
    world.initialize()


def joined(world: Coordinated) -> None:
    begun(world)
    assert world.add(0, 0) == ErrorCode.NONE


def joining(world: Coordinated) -> None:
    begun(world)
    world.held = []
    world.ask_directly(Question(PRODUCER, 0, False), 0)


def joining_more(world: Coordinated) -> None:
    joined(world)
    world.held = []
    world.ask_directly(Question(PRODUCER, 0, False), 1)


def ending(world: Coordinated) -> None:
    joined(world)
    world.end(0)


def ended(world: Coordinated) -> None:
    ending(world)
    world.write_markers()


def loading(world: Coordinated) -> None:
    joined(world)
    world.coordinator.start_loading(0, LeaderEpoch(9), world.now)


def lost(world: Coordinated) -> None:
    joined(world)
    world.coordinator.unload_partition(0, LeaderEpoch(9))


def unwritable(world: Coordinated) -> None:
    joined(world)
    world.refusals = [ErrorCode.NOT_LEADER_OR_FOLLOWER]


STATES = [nothing, begun, joined, joining, joining_more, ending, ended, loading, lost, unwritable]


@pytest.mark.parametrize("reach", STATES)
@pytest.mark.parametrize("partition", [0, 1])
@pytest.mark.parametrize("epoch", [-1, 0, 1])
@pytest.mark.parametrize("producer", [PRODUCER, 4001])
@pytest.mark.parametrize("verify", [False, True])
def test_the_answer_is_that_to_a_request(
    reach: Callable[[Coordinated], None], partition: int, epoch: int, producer: int, verify: bool
) -> None:
    # What comes by request does not wait for the end of the last transaction (note 0053).
    settings = TransactionSettings(join_wait_max_ms=0)
    by_request, directly, unasked = (Coordinated(settings) for _ in range(3))
    for world in (by_request, directly, unasked):
        reach(world)
    expected = by_request.ask_by_request(Question(producer, epoch, verify), partition)
    found = directly.ask_directly(Question(producer, epoch, verify), partition)
    assert found == expected
    assert directly.log == by_request.log
    assert expected is not None or by_request.held

    at = frozenset({TopicPartition(TOPIC, partition)})
    confirms = unasked.coordinator.confirms(ID, ProducerId(producer), ProducerEpoch(epoch), at)
    if confirms:
        assert expected == {TopicPartition(TOPIC, partition): ErrorCode.NONE}
        assert unasked.log == by_request.log, "it was asked, and had nothing to write"
    assert confirms == (
        reach in (joined, unwritable) and (partition, epoch, producer) == (0, 0, PRODUCER)
    )
