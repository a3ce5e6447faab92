"""What follows the last epoch of a producer in Kafka: the same as in `tests/broker`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.broker.harness import Wire
from tests.broker.highest_epoch import STEPS, Producer, prepare, use_up
from tests.java.kafka_broker import Kafka
from tests.java.processes import ToolServer, Workshop


@pytest.fixture(scope="module")
def producers(workshop: Workshop, tools: ToolServer) -> Iterator[dict[str, Producer]]:
    directory = workshop.directory / "kafka"
    kafka = Kafka(workshop, tools, directory)
    settings = "transaction.abort.timed.out.transaction.cleanup.interval.ms=100"
    port = int(kafka.address.split(":")[1])
    kafka.start(settings)
    with Wire(port) as wire:
        ids = prepare(wire)
    kafka.stop()
    use_up(directory)
    kafka.start(settings)
    with Wire(port) as wire:
        yield {name: Producer(wire, name, at) for name, at in ids.items()}


@pytest.mark.parametrize("name", STEPS)
def test_kafka_answers_a_hostile_producer_alike(producers: dict[str, Producer], name: str) -> None:
    asked, expected = STEPS[name]
    assert asked(producers[name]) == expected
