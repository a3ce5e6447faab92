"""Retention as a node runs it: settings that change, many segments, files that go later."""

from __future__ import annotations

from itertools import pairwise

import pytest

from strandline.errors import ErrorCode, StorageError
from strandline.node.retention_task import AGES_PER_TURN, DROPS_PER_TURN
from strandline.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from strandline.types import TopicPartition
from tests.node.messages import batch, fetch, produce
from tests.node.world import DATA, Client, World, failing

TOPIC, BROKER = 2, 4
CHECK_MS = 300_000


@pytest.fixture
def world() -> World:
    return World(f"log.initial.task.delay.ms={CHECK_MS}")


def fill(world: World, segments: int, topic: str = "old") -> Client:
    """Write so many segments of one record each, and leave an empty active one."""
    client = world.connect()
    log = world.replica(topic).log
    for _ in range(segments):
        client.ask(produce(batch(b"x"), topic), 9)
        log.roller.roll(world.now.wall_ms)
    return client


def configure(client: Client, kind: int, name: str, setting: str, value: str) -> None:
    """Change one setting while the node runs."""
    change = AlterableConfig(name=setting, config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=[change])
    (answer,) = client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert answer.error_code == 0, answer.error_message


def names(world: World, topic: str = "old", suffix: str = ".deleted") -> list[str]:
    """Files of the topic's first partition that end so."""
    return [
        each for each in world.files.list_directory(f"{DATA}/{topic}-0") if each.endswith(suffix)
    ]


def test_a_setting_of_the_topic_counts_from_the_next_round_on(world: World) -> None:
    world.create_topic("old")
    client = fill(world, 3)
    world.advance(CHECK_MS)
    assert world.replica("old").log.log_start_offset == 0
    configure(client, TOPIC, "old", "retention.ms", "1000")
    world.advance(CHECK_MS)
    assert world.replica("old").log.log_start_offset == 3
    (answer,) = client.ask(fetch(("old", 0, 1)), 11).responses[0].partitions
    assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("name", ["", "1"])
def test_a_setting_of_the_broker_counts_for_topics_without_their_own(
    world: World, name: str
) -> None:
    world.create_topic("old")
    world.create_topic("kept", retention_ms="-1")
    client = fill(world, 3)
    fill(world, 3, "kept")
    configure(client, BROKER, name, "log.retention.ms", "1000")
    world.advance(CHECK_MS)
    assert world.replica("old").log.log_start_offset == 3
    assert world.replica("kept").log.log_start_offset == 0


def test_many_segments_go_a_few_per_turn(world: World) -> None:
    """The node gives way between slices: no request waits until a thousand files are renamed."""
    segments = 2 * AGES_PER_TURN + DROPS_PER_TURN + 1
    world.create_topic("old", retention_ms="-1")
    client = fill(world, segments)
    log = world.replica("old").log
    configure(client, TOPIC, "old", "retention.ms", "1000")
    world.advance(CHECK_MS - 1)
    starts, counts = [int(log.log_start_offset)], [len(log.segments)]
    for _ in range(200):
        if len(log.segments) == 1:
            break
        assert client.ask(produce(batch(b"y"), "old"), 9)
        world.advance(1)
        starts.append(int(log.log_start_offset))
        counts.append(len(log.segments))
        if counts[-1] < counts[-2]:
            assert log.offsets.log_start_saved >= segments, (
                "starts are written down before files go"
            )
    assert len(log.segments) == 1
    assert max(b - a for a, b in pairwise(starts)) <= AGES_PER_TURN
    assert max(a - b for a, b in pairwise(counts)) <= DROPS_PER_TURN


def test_dropped_files_go_after_the_delay(world: World) -> None:
    world.create_topic("old", retention_ms="1000", file_delete_delay_ms="50000")
    fill(world, 3)
    world.advance(CHECK_MS)
    assert len(names(world)) >= 3 * 3
    world.advance(49_000)
    assert names(world)
    world.advance(20_000)
    assert not names(world)
    assert not world.replica("old").log.segments.removals


def test_files_that_cannot_be_removed_take_the_directory_offline(world: World) -> None:
    world.create_topic("old", retention_ms="1000", file_delete_delay_ms="0")
    fill(world, 1)
    world.files.on_call = failing({"remove"}, ".deleted")
    world.advance(CHECK_MS + 20_000)
    assert world.directory.offline_reason is not None
    assert world.halted


def test_a_deleted_partition_that_a_crash_left_over_goes_after_the_restart(world: World) -> None:
    world.create_topic("old")
    fill(world, 2)
    world.delete_topic("old")
    left = [each for each in world.files.list_directory(DATA) if each.endswith("-delete")]
    assert len(left) == 1
    world.kill_and_restart()
    assert left[0] in world.files.list_directory(DATA)
    world.advance(80_000)
    assert left[0] not in world.files.list_directory(DATA)
    assert not world.node.replicas.logs.removed


def test_one_log_that_fails_does_not_keep_the_others(world: World) -> None:
    for topic in ("bad", "old"):
        world.create_topic(topic, retention_ms="1000")
        fill(world, 2, topic)
    world.files.on_call = failing({"rename"}, "/bad-0/", StorageError)
    world.advance(CHECK_MS)
    assert len(world.replica("old").log.segments) == 1
    # What is half renamed is not trusted any more; the cluster is told that it is offline.
    assert TopicPartition("bad", 0) in world.node.replicas.offline
