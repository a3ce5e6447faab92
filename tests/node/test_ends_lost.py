"""A log that lost its end while its replica passed for a complete one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from strandline.node.log_directories import UNKNOWN_EPOCH
from strandline.storage.files import Files, OutOfHandles
from strandline.storage.memory_inodes import Contents
from strandline.types import BrokerId, TopicPartition
from tests.node.cluster_world import ClusterWorld
from tests.node.followers import B as SECOND
from tests.node.followers import C as THIRD
from tests.node.followers import Cluster
from tests.node.messages import batch, produce, produced

A, B, C = 1, 2, 3
AT = TopicPartition("t", 0)
RECORDS = 8
SEGMENT = "00000000000000000000.log"


@pytest.fixture
def world() -> Iterator[ClusterWorld]:
    world = ClusterWorld(3, "auto.leader.rebalance.enable=false", "min.insync.replicas=2")
    if world.controller.broker_id == C:
        world.restart(C)
        world.run_until(world.is_settled)
    world.create_topic("t", (A, B, C))
    yield world
    world.check()


def write(world: ClusterWorld, count: int) -> None:
    for _ in range(count):
        answer = world.leader_of("t").connect().ask(produce(batch(b"x"), "t", acks=-1), 9)
        assert produced(answer).error_code == 0


def files_of(files: Files, path: str) -> dict[str, bytes]:
    return {name: files.read_bytes(f"{path}/{name}") for name in files.list_directory(path)}


@pytest.mark.parametrize("how", ["tail", "batch", "rot", "older", "nothing"])
def test_a_broker_starts_as_after_a_crash(world: ClusterWorld, how: str) -> None:
    """B ends first: the last two in sync are those who count, and C is eligible."""
    write(world, RECORDS // 2)
    world.run_until(lambda: world.replica(C, "t").log.log_end_offset == RECORDS // 2)
    path = world.replica(C, "t").log.directory
    older = files_of(world[C].disk.files, path)
    assert world.stop(B)
    world.run_until(lambda: B not in world.partition("t").in_sync_replicas)
    write(world, RECORDS // 2)
    assert world.stop(C)
    assert C in world.partition("t").elr
    files = world[C].disk.files
    segment = files.open(f"{path}/{SEGMENT}")
    size = segment.size // RECORDS
    match how:
        case "tail":
            segment.truncate(segment.size - 5)
        case "batch":
            segment.truncate(segment.size - size)
        case "rot":
            segment.write_at(segment.size - size + 8, b"\xff" * 4)
        case "older":
            files.remove_tree(path)
            files.make_directory(path)
            for name, data in older.items():
                files.open(f"{path}/{name}", create=True).append(data)
    segment.close()
    world.start(C)
    world.run_until(lambda: BrokerId(C) in world.image.brokers)
    registration = world.image.brokers[BrokerId(C)]
    notices = [each for each in world[C].machine.start_notices if "has lost its end" in each]
    if how == "nothing":
        assert registration.previous_epoch != UNKNOWN_EPOCH
        assert not notices
    else:
        assert registration.previous_epoch == UNKNOWN_EPOCH
        end = RECORDS // 2 if how == "older" else RECORDS - 1
        assert [each.partition(",")[0] for each in notices] == [
            f"The log of t-0 has lost its end and ends at {end}"
        ]
    world.start(B)
    world.run_until(world.is_settled)
    assert world.offsets(C, "t") == (RECORDS, RECORDS)


def rot(cluster: Cluster, offset: int) -> None:
    """One bit of a batch flips on the disk."""
    log = cluster.replica().log
    found = log.active.find(offset)
    assert found is not None
    contents = cluster.world.files.find(log.active.log.path)
    assert isinstance(contents, Contents)
    contents.data[found[0] + 70] ^= 1


@pytest.mark.parametrize("is_rotten", [False, True])
def test_a_log_that_is_loaded_again_may_not_lose_records(*, is_rotten: bool) -> None:
    """The replica stays registered, and the others have what it has lost."""
    cluster = Cluster()
    cluster.create_topic("orders", replicas=(1, 2, 3), **{"min.insync.replicas": "2"})
    world = cluster.world
    world.turn()
    for number in range(10):
        assert cluster.produce(b"m%d" % number).error_code == 0
    for broker in (SECOND, THIRD):
        cluster.fetch(broker, offset=10)
    world.turn()
    for broker in (THIRD, SECOND):
        cluster.leave(broker)
    world.turn()
    if is_rotten:
        rot(cluster, 6)
    cluster.replica().fail(OutOfHandles("Cannot list: Too many open files."))
    world.turn()
    world.advance(30_000)
    replica = world.node.replicas.find(TopicPartition("orders", 0))
    if is_rotten:
        assert replica is None
        assert "lost records" in (world.directory.offline_reason or "")
    else:
        assert replica is not None
        assert (replica.log.log_end_offset, replica.log.high_watermark) == (10, 10)
        assert world.directory.offline_reason is None
