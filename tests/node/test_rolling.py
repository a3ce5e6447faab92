"""Segments that are closed because of their age: logs that are due together, logs that fail."""

from __future__ import annotations

from itertools import pairwise

import pytest

from strandline.node.rolling_task import SYNCS_PER_TURN
from strandline.protocol.messages.metadata import MetadataRequest
from strandline.types import TopicPartition
from tests.node.messages import batch, produce
from tests.node.world import World, failing

CHECK_MS = 10_000
PARTITIONS = 30


@pytest.fixture
def world() -> World:
    return World("log.initial.task.delay.ms=1000000")


def old_segments(world: World, topic: str = "old", **configs: str) -> None:
    """Write a record to each partition of a topic, for its settings to come due at the check."""
    world.create_topic(topic, PARTITIONS, **configs)
    client = world.connect()
    for partition in range(PARTITIONS):
        client.ask(produce(batch(b"x", timestamp=world.now.wall_ms), topic, partition), 9)


def test_c7_logs_that_are_due_together_are_rolled_one_per_turn(world: World) -> None:
    """A thousand rolls in one turn were a thousand syncs of directories without an answer."""
    old_segments(world, segment_ms="5000")
    client = world.connect()
    logs = [world.replica("old", number).log for number in range(PARTITIONS)]
    counts = [0]
    while counts[-1] < PARTITIONS:
        assert len(counts) < 20 * CHECK_MS, "not all of them were rolled"
        world.advance(1)
        client.ask(MetadataRequest(topics=[]), 9)
        counts.append(sum(len(log.segments) - 1 for log in logs))
    assert max(after - before for before, after in pairwise(counts)) == 1


def test_logs_whose_data_is_due_are_synced_a_few_per_turn(world: World) -> None:
    old_segments(world, flush_ms="5000")
    logs = [world.replica("old", number).log for number in range(PARTITIONS)]
    synced = [0]
    while synced[-1] < PARTITIONS:
        assert len(synced) < 20 * CHECK_MS, "not all of them were synced"
        world.advance(1)
        synced.append(sum(log.offsets.recovery_point > 0 for log in logs))
    assert max(after - before for before, after in pairwise(synced)) <= SYNCS_PER_TURN


def test_a_log_that_cannot_be_rolled_does_not_keep_the_others(world: World) -> None:
    for topic in ("bad", "old"):
        old_segments(world, topic, segment_ms="5000")
    world.files.on_call = failing({"create"}, "/bad-0/")
    world.advance(2 * CHECK_MS)
    assert len(world.replica("bad", 0).log.segments) == 1
    assert len(world.replica("old", PARTITIONS - 1).log.segments) == 2
    assert TopicPartition("bad", 0) not in world.node.replicas.offline
