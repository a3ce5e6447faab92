"""What follows the last epoch of a producer below version 2 of transactions: broker and sockets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.harness import LocalBroker, Wire
from tests.broker.highest_epoch import STEPS, Producer, prepare, use_up

_SETTINGS = (
    "transaction.state.log.num.partitions=1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=100",
)


@pytest.fixture(scope="module")
def producers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Producer]]:
    directory: Path = tmp_path_factory.mktemp("data")
    with LocalBroker(directory, *_SETTINGS) as broker, Wire(broker.port) as wire:
        ids = prepare(wire)
    use_up(directory)
    with LocalBroker(directory, *_SETTINGS) as broker, Wire(broker.port) as wire:
        yield {name: Producer(wire, name, at) for name, at in ids.items()}


@pytest.mark.parametrize("name", STEPS)
def test_a_hostile_producer_with_the_highest_epoch_is_answered(
    producers: dict[str, Producer], name: str
) -> None:
    asked, expected = STEPS[name]
    assert asked(producers[name]) == expected
