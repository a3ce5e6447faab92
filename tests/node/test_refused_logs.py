"""A log with messages of an old format: its partition is offline and says why, all else goes on."""

from __future__ import annotations

import pytest

from strandline.errors import ErrorCode
from strandline.protocol.messages.inspect import InspectRequest
from strandline.types import TopicPartition
from tests.node.messages import batch, fetch, fetched, produce, produced
from tests.node.test_why_over import told
from tests.node.world import World
from tests.storage.test_old_format import messages

LOG = "/data/orders-0/00000000000000000000.log"
ORDERS = TopicPartition("orders", 0)
REFUSAL = f"{LOG} has a message of format 1"


def write(world: World, topic: str) -> ErrorCode:
    answer = world.connect().ask(produce(batch(b"x"), topic, acks=1), 9)
    return ErrorCode(produced(answer).error_code)


@pytest.fixture
def world() -> World:
    """A stop, a file in an old format, a start."""
    world = World()
    for topic in ("orders", "payments"):
        world.create_topic(topic, 1)
        assert write(world, topic) is ErrorCode.NONE
    assert world.stop()
    file = world.files.open(LOG)
    file.truncate(0)
    file.append(messages(3))
    world.start()
    return world


def check_refused(world: World) -> None:
    client = world.connect()
    found = fetched(client.ask(fetch(("orders", 0, 0), ("payments", 0, 0)), 12))
    assert found["orders", 0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert found["payments", 0].error_code == ErrorCode.NONE
    assert (write(world, "orders"), write(world, "payments")) == (
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NONE,
    )
    assert world.files.read_bytes(LOG) == messages(3)
    assert world.directory.offline_reason is None
    world.check()


def test_other_partitions_are_served_start_after_start(world: World) -> None:
    check_refused(world)
    world.restart()
    check_refused(world)
    world.kill_and_restart()
    check_refused(world)
    world.advance(3_600_000)  # retention, compaction, flushes and checkpoints have been there
    check_refused(world)


def test_why_and_status_name_the_format(world: World) -> None:
    (found,) = told(world, "bad-disk", topic="orders")
    assert REFUSAL in found["cause"]
    answer = world.connect().ask(InspectRequest(subject="status", arguments=b"{}"), 0)
    assert REFUSAL in answer.document.decode()
    assert world.node.replicas.offline == {ORDERS}


def test_its_topic_can_be_deleted_and_made_again(world: World) -> None:
    world.delete_topic("orders")
    world.create_topic("orders", 1)
    assert write(world, "orders") is ErrorCode.NONE
    world.advance(3_600_000)
    assert not any(name.endswith("-delete") for name in world.files.list_directory("/data"))
    world.restart()
    assert write(world, "orders") is ErrorCode.NONE
    world.check()
