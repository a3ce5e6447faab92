"""`why` and disks: what is told of a full or failed one, and until when."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from strandline.cluster.store import StoreUnavailable
from strandline.errors import ErrorCode, StorageError
from strandline.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from strandline.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from strandline.protocol.messages.inspect import InspectRequest
from strandline.storage.files import DiskFull, OutOfHandles
from tests.node.cluster_world import ClusterWorld
from tests.node.messages import batch, produce, produced
from tests.node.test_failed_directories import spread
from tests.node.test_why_over import check_over, told
from tests.node.world import Client, World, failing

REFUSED_LATELY_MS = 10_000


def write(client: Client, topic: str = "orders", number: int = 0) -> int:
    answer = client.ask(produce(batch(b"x" * 100), topic, number, acks=1), 9)
    return int(produced(answer).error_code)


def fill(world: World) -> None:
    """Nothing more fits on the disk, as a producer is told."""
    world.files.capacity_bytes = world.files.used_bytes + 40
    assert write(world.connect()) == ErrorCode.KAFKA_STORAGE_ERROR
    (found,) = told(world, "bad-disk", topic="orders")
    assert found["cause"] == "There is no room on the broker's disk."


def test_a_full_disk_is_not_told_after_it_was_written_to_again(world: World) -> None:
    fill(world)
    world.files.capacity_bytes += 1_000
    assert write(world.connect()) == 0
    check_over(world, "bad-disk", ErrorCode.KAFKA_STORAGE_ERROR, topic="orders")


def test_a_full_disk_is_not_told_after_room_was_made_though_nothing_was_written(
    world: World,
) -> None:
    fill(world)
    world.advance(REFUSED_LATELY_MS)
    assert told(world, "bad-disk")
    world.files.capacity_bytes += 2_000_000
    check_over(world, "bad-disk", ErrorCode.KAFKA_STORAGE_ERROR, topic="orders")


def test_a_quota_is_told_while_it_refuses_though_the_disk_has_room(world: World) -> None:
    world.files.on_call = failing({"append"}, "/orders-0/", DiskFull)
    client = world.connect()
    for _ in range(3):
        assert write(client) == ErrorCode.KAFKA_STORAGE_ERROR
        assert told(world, "bad-disk", topic="orders")
        world.advance(REFUSED_LATELY_MS)
    world.files.on_call = None


def test_a_shortage_that_is_none_of_the_disk_is_told_until_the_log_is_written_to(
    world: World,
) -> None:
    world.files.on_call = failing({"append"}, "/orders-0/", OutOfHandles)
    assert write(world.connect()) == ErrorCode.KAFKA_STORAGE_ERROR
    world.files.on_call = None
    world.advance(REFUSED_LATELY_MS)
    assert told(world, "bad-disk", topic="orders")
    assert write(world.connect()) == 0
    check_over(world, "bad-disk", ErrorCode.KAFKA_STORAGE_ERROR, topic="orders")


def test_a_disk_that_cannot_be_examined_does_not_work(world: World) -> None:
    fill(world)
    world.files.capacity_bytes += 2_000_000
    world.advance(REFUSED_LATELY_MS)
    world.files.on_call = failing({"examine"}, "", StorageError)
    assert told(world, "bad-disk", topic="orders")
    world.files.on_call = None


def test_a_partition_that_waited_for_room_is_not_told_when_it_is_back(world: World) -> None:
    world.files.on_call = failing({"create"}, "/late-0/", DiskFull)
    world.create_topic("late")
    assert write(world.connect(), "late") == ErrorCode.KAFKA_STORAGE_ERROR
    assert told(world, "bad-disk", topic="late")
    world.files.on_call = None
    world.advance(10_000)
    check_over(world, "bad-disk", ErrorCode.KAFKA_STORAGE_ERROR, topic="late")


def test_a_deleted_topic_has_no_bad_disk(world: World) -> None:
    fill(world)
    world.files.capacity_bytes += 1_000_000
    world.delete_topic("orders")
    check_over(world, "bad-disk", ErrorCode.KAFKA_STORAGE_ERROR)


def test_metadata_that_were_written_since_are_not_told_as_unwritable(world: World) -> None:
    def create(name: str) -> int:
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        answer = world.connect().ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5)
        return int(answer.topics[0].error_code)

    world.store_error = StoreUnavailable("The disk of the metadata is full.")
    assert create("new") == ErrorCode.KAFKA_STORAGE_ERROR
    (found,) = told(world, "bad-disk")
    assert "The metadata store cannot be written" in found["cause"]
    world.store_error = None
    assert told(world, "bad-disk")
    assert create("other") == 0
    check_over(world, "bad-disk", ErrorCode.KAFKA_STORAGE_ERROR)


@pytest.fixture
def two_disks() -> Iterator[ClusterWorld]:
    world = ClusterWorld(1, disks=2)
    world.create_topic("t", (1,), (1,))
    world.run(1000)
    yield world
    world.check()


def test_a_move_to_a_directory_that_is_offline_is_told_though_the_log_is_written_to(
    two_disks: ClusterWorld,
) -> None:
    (broken, (lost,)), (_, (kept,)) = sorted(spread(two_disks, 1).items())
    two_disks[1].disk.break_dir(broken)
    client = two_disks[1].connect()
    assert write(client, "t", lost) == ErrorCode.KAFKA_STORAGE_ERROR
    named = AlterReplicaLogDirTopic(name="t", partitions=[kept])
    there = AlterReplicaLogDir(path=broken, topics=[named])
    client.ask(AlterReplicaLogDirsRequest(dirs=[there]), 2)
    assert write(client, "t", kept) == 0
    asked = b'{"topic": "t", "partition": %d}' % kept
    answer = client.ask(InspectRequest(subject="why", arguments=asked), 0)
    (found,) = json.loads(answer.document)["findings"]
    assert "ALTER_REPLICA_LOG_DIRS" in found["evidence"][0]
    assert not found["over"]
