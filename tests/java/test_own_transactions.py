"""Transactions of the shipped producer on a real Kafka, in both versions of their protocol."""

from __future__ import annotations

import pytest

from tests.client.transaction_checks import (
    check_a_timeout_ends_the_producer,
    check_a_zombie_is_fenced,
    check_commit_and_abort,
    check_offsets_are_part_of_it,
)
from tests.java.kafka_broker import Kafka
from tests.java.processes import ToolServer, Workshop

FEATURES = "org.apache.kafka.tools.FeatureCommand"


@pytest.fixture(scope="module")
def kafka(workshop: Workshop, tools: ToolServer) -> Kafka:
    started = Kafka(workshop, tools, workshop.directory / "kafka")
    started.start("transaction.abort.timed.out.transaction.cleanup.interval.ms=200")
    return started


def test_fencing(kafka: Kafka) -> None:
    check_a_zombie_is_fenced(kafka.address, "zombie")
    check_a_timeout_ends_the_producer(kafka.address, "late")


def test_both_versions(kafka: Kafka, tools: ToolServer) -> None:
    """The feature transaction.version says which one is used."""
    check_commit_and_abort(kafka.address, "newer", 2)
    check_offsets_are_part_of_it(kafka.address, "copied-newer", 2)
    tools.run(
        FEATURES,
        *("--bootstrap-server", kafka.address, "downgrade", "--feature", "transaction.version=1"),
    ).succeeded()
    check_commit_and_abort(kafka.address, "older", 1)
    check_offsets_are_part_of_it(kafka.address, "copied-older", 1)
    check_a_zombie_is_fenced(kafka.address, "zombie-older")
    check_a_timeout_ends_the_producer(kafka.address, "late-older")
