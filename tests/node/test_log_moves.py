"""Logs that move between the directories of a broker, under load and whatever else happens."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from strandline.cluster.image import ImageDelta
from strandline.errors import ErrorCode
from strandline.node.log_moves import LogMoves
from strandline.node.metadata_listener import MetadataListener
from strandline.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from strandline.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from strandline.protocol.messages.delete_topics import DeleteTopicsRequest
from strandline.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from strandline.sim.disk_faults import Ending
from strandline.storage.log import Log
from strandline.storage.log_directory import LogDirectory
from strandline.types import Instant, TopicPartition
from tests.node.cluster_world import ClusterWorld
from tests.node.messages import batch, fetch, produce, produced

A, B, C = 1, 2, 3
REMOVED_MS = 90_000
"""`file.delete.delay.ms`, and until it is looked again."""


@pytest.fixture
def world() -> Iterator[ClusterWorld]:
    """Three brokers with two directories each, and a partition that the first one leads."""
    world = ClusterWorld(3, disks=2)
    world.create_topic("t", (A, B, C), (A, B, C))
    world.run(1000)
    yield world
    world.check()


def directories(world: ClusterWorld, broker_id: int, number: int = 0) -> tuple[str, str]:
    """Where a replica lies, and the other directory of its broker."""
    here = world.replica(broker_id, "t", number).log.directory.rpartition("/")[0]
    (other,) = set(world[broker_id].config.log_dirs) - {here}
    return here, other


def move_to(path: str, topic: str = "t", number: int = 0) -> AlterReplicaLogDirsRequest:
    """Have a replica moved to a directory."""
    named = AlterReplicaLogDirTopic(name=topic, partitions=[number])
    return AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[named])])


def alter(world: ClusterWorld, broker_id: int, path: str, topic: str = "t", number: int = 0) -> int:
    """The error code of a move to a directory."""
    request = move_to(path, topic, number)
    (result,) = world[broker_id].connect().ask(request, 2).results
    (partition,) = result.partitions
    assert (result.topic_name, partition.partition_index) == (topic, number)
    code: int = partition.error_code
    return code


def described(world: ClusterWorld, broker_id: int, number: int = 0) -> dict[str, tuple[bool, int]]:
    """Per directory: whether the log there is a future one, and its lag."""
    results = world[broker_id].connect().ask(DescribeLogDirsRequest(topics=None), 4).results
    return {
        result.log_dir: (partition.is_future_key, partition.offset_lag)
        for result in results
        for topic in result.topics
        for partition in topic.partitions
        if (topic.name, partition.partition_index) == ("t", number)
    }


def write(world: ClusterWorld, count: int, *, acks: int = -1) -> None:
    client = world[A].connect()
    for _ in range(count):
        answer = client.ask(produce(batch(b"x" * 200), "t", 0, acks=acks), 9)
        assert produced(answer).error_code == 0


def has_moved(world: ClusterWorld, broker_id: int, path: str) -> bool:
    return world.replica(broker_id, "t", 0).log.directory == f"{path}/t-0"


def directory(world: ClusterWorld, broker_id: int, path: str) -> LogDirectory[Log]:
    (found,) = (d for d in world[broker_id].node.replicas.logs.directories if d.path == path)
    return found


@pytest.mark.parametrize("broker_id", [A, B])
def test_a_replica_moves_while_it_is_written_to(world: ClusterWorld, broker_id: int) -> None:
    write(world, 20)
    here, other = directories(world, broker_id)
    before = world.log_bytes(broker_id, "t", 0)
    assert alter(world, broker_id, other) == 0
    assert described(world, broker_id) == {here: (False, 0), other: (True, 20)}
    write(world, 3)
    world.run_until(lambda: has_moved(world, broker_id, other))
    assert described(world, broker_id) == {other: (False, 0)}
    write(world, 3)
    world.run(1000)
    replica = world.replica(broker_id, "t", 0)
    assert replica.log.log_end_offset == 26
    assert world.log_bytes(broker_id, "t", 0).startswith(before)
    assert world.log_bytes(broker_id, "t", 0) == world.log_bytes(C, "t", 0)
    assert replica.log.leader_epochs.entries == world.replica(C, "t", 0).log.leader_epochs.entries
    assert world.partition("t", 0).in_sync_replicas == (A, B, C)
    # The old directory has forgotten it, and its files go.
    assert not directory(world, broker_id, here).logs.keys() & {replica.topic_partition}
    world.run_until(lambda: not world[broker_id].node.replicas.logs.removed, ms_max=REMOVED_MS)
    left = world[broker_id].disk.files.list_directory(here)
    assert not [name for name in left if name.startswith("t-0")]


def test_waiting_requests_do_not_notice_a_move(world: ClusterWorld) -> None:
    write(world, 2)
    _, other = directories(world, A)
    reader = world[A].connect()
    reader.send(fetch(("t", 0, 2), max_wait_ms=20_000), 11)
    assert alter(world, A, other) == 0
    world.run_until(lambda: has_moved(world, A, other))
    write(world, 1)
    world.run_until(lambda: bool(reader.answers))
    (partition,) = reader.answers[0].responses[0].partitions
    assert partition.error_code == 0
    assert partition.records


def test_what_cannot_be_moved_is_refused_as_kafka_does(world: ClusterWorld) -> None:
    here, other = directories(world, A)
    assert alter(world, A, "/nowhere") == ErrorCode.LOG_DIR_NOT_FOUND
    assert alter(world, A, other, "unknown") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert alter(world, A, other, "x" * 220) == ErrorCode.INVALID_TOPIC_EXCEPTION
    world.create_topic("elsewhere", (B,))
    world.run(500)
    assert alter(world, A, other, "elsewhere") == ErrorCode.REPLICA_NOT_AVAILABLE
    assert alter(world, A, here) == 0
    assert described(world, A) == {here: (False, 0)}
    world[A].disk.break_dir(other)
    directory(world, A, other).go_offline("It is broken.")
    world.run(100)
    assert alter(world, A, other) == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_directory_for_a_replica_that_is_not_there_yet_is_remembered(
    world: ClusterWorld,
) -> None:
    for path in world[A].config.log_dirs:
        for number in range(3):
            name = f"new{number}{path[-1]}"
            assert alter(world, A, path, name) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            world.create_topic(name, (A,))
            world.run(500)
            assert world.replica(A, name, 0).log.directory == f"{path}/{name}-0"


def test_a_move_back_calls_a_move_off(world: ClusterWorld) -> None:
    write(world, 5)
    here, other = directories(world, A)
    assert alter(world, A, other) == 0
    assert alter(world, A, here) == 0
    assert described(world, A) == {here: (False, 0)}
    world.run(2000)
    assert has_moved(world, A, here)


def test_a_topic_is_deleted_while_it_moves(world: ClusterWorld) -> None:
    write(world, 5)
    here, other = directories(world, A)
    assert alter(world, A, other) == 0
    request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000)
    world.controller.connect().send(request, 4)
    world.run_until(lambda: not world.image.topics)
    world.run_until(lambda: not world[A].node.replicas.logs.removed, ms_max=REMOVED_MS)
    for path in (here, other):
        left = world[A].disk.files.list_directory(path)
        assert not [name for name in left if name.startswith("t-")]


def test_a_topic_is_deleted_in_the_turn_in_which_a_slice_is_due(
    world: ClusterWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is wrong with the disk whose copy was deleted with its source."""
    write(world, 5)
    _, other = directories(world, A)
    monkeypatch.setattr(LogMoves, "_finish", lambda *_: 1)  # the copy waits for its sync
    assert alter(world, A, other) == 0
    world.run(10)
    follow = MetadataListener.follow

    def follow_and_work(listener: MetadataListener, delta: ImageDelta, now: Instant) -> None:
        follow(listener, delta, now)
        listener._node.background.moves._work(now)

    monkeypatch.setattr(MetadataListener, "follow", follow_and_work)
    request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000)
    world.controller.connect().send(request, 4)
    world.run_until(lambda: not world.image.topics)
    world.run(100)
    assert not world[A].node.background.moves.find(TopicPartition("t", 0))
    assert directory(world, A, other).offline_reason is None


def test_records_are_deleted_while_a_log_moves(world: ClusterWorld) -> None:
    write(world, 10)
    _, other = directories(world, A)
    assert alter(world, A, other) == 0
    request = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(
                name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=7)]
            )
        ],
        timeout_ms=5000,
    )
    client = world[A].connect()
    client.send(request, 2)
    world.run_until(lambda: has_moved(world, A, other))
    world.run_until(lambda: bool(client.answers))
    (topic,) = client.answers[0].topics
    assert (topic.partitions[0].error_code, topic.partitions[0].low_watermark) == (0, 7)
    assert world.replica(A, "t", 0).log.log_start_offset == 7


def test_the_disk_that_a_log_moves_to_fails(world: ClusterWorld) -> None:
    write(world, 5)
    here, other = directories(world, A)
    world[A].disk.fail("sync", other)
    assert alter(world, A, other) == 0
    world.run_until(lambda: directory(world, A, other).offline_reason is not None)
    world.run(500)
    assert has_moved(world, A, here)
    assert described(world, A) == {here: (False, 0)}
    write(world, 1)


def test_a_broker_goes_on_with_a_move_after_a_stop(world: ClusterWorld) -> None:
    write(world, 20)
    here, other = directories(world, B)
    assert alter(world, B, other) == 0
    assert world.stop(B)
    world.start(B)
    world.run_until(world.is_settled)
    world.run_until(lambda: has_moved(world, B, other))
    world.run_until(lambda: world.partition("t", 0).in_sync_replicas == (A, B, C))
    assert world.log_bytes(B, "t", 0) == world.log_bytes(A, "t", 0)
    assert described(world, B) == {other: (False, 0)}
    assert here != other


def is_down_or_has_moved(world: ClusterWorld, broker_id: int, path: str) -> bool:
    return not world[broker_id].is_up or has_moved(world, broker_id, path)


def is_over(moves: LogMoves) -> bool:
    """Whether no log of the topic is on its way any more."""
    return moves.find(TopicPartition("t", 0)) is None


@pytest.mark.parametrize("how", ["kill", "power"])
def test_wherever_a_move_breaks_off_one_of_the_two_logs_is_whole(how: Ending) -> None:
    """The broker dies at one operation of its disk after the other, until it gets through."""
    world = ClusterWorld(1, disks=2)
    world.create_topic("t", (A,))
    world.run(1000)
    write(world, 6)
    world.sync(A, "t")
    expected = world.log_bytes(A, "t", 0)
    is_through, left_off_at = False, 0
    while not is_through:
        left_off_at += 1
        _, other = directories(world, A)
        world[A].disk.crash_in(left_off_at, how=how, mode="none")
        client = world[A].connect()
        world[A].event(lambda *_, client=client, to=other: client.send(move_to(to), 2))
        world.run_until(partial(is_down_or_has_moved, world, A, other))
        world.run(50)
        is_through = world[A].is_running
        world[A].disk.forget_crash()
        if not is_through:
            world.start(A)
            world.run_until(world.is_settled)
            moves = world[A].node.background.moves
            world.run_until(partial(is_over, moves))
        assert world.log_bytes(A, "t", 0) == expected
    write(world, 1)
    assert left_off_at > 20
    world.check()


def test_of_two_logs_of_a_partition_a_start_keeps_the_one_that_is_further_on(
    world: ClusterWorld,
) -> None:
    """The old disk was away when the log had moved, and comes back."""
    write(world, 5)
    world.run(500)
    here, other = directories(world, B)
    assert world.stop(B)
    files = world[B].disk.files
    names = files.list_directory(f"{here}/t-0")
    old = {name: files.read_bytes(f"{here}/t-0/{name}") for name in names}
    world.start(B)
    world.run_until(world.is_settled)
    assert alter(world, B, other) == 0
    world.run_until(lambda: has_moved(world, B, other))
    write(world, 2)
    world.run(500)
    assert world.stop(B)
    files = world[B].disk.files
    files.make_directory(f"{here}/t-0")
    for name, data in old.items():
        files.write_atomically(f"{here}/t-0/{name}", data)
    world.start(B)
    world.run_until(world.is_settled)
    assert has_moved(world, B, other)
    assert world.log_bytes(B, "t", 0) == world.log_bytes(A, "t", 0)
    (aside,) = [
        name for name in world[B].disk.files.list_directory(here) if name.endswith("-stray")
    ]
    assert aside.startswith("t-0.")
    assert any("is further on there" in line for line in world[B].machine.start_notices)


def test_a_copy_whose_log_is_gone_takes_its_place_and_does_not_count_as_complete(
    world: ClusterWorld,
) -> None:
    world.stop(B)
    world.stop(C)
    world.run_until(lambda: world.partition("t", 0).in_sync_replicas == (A,))
    write(world, 5)
    here, other = directories(world, A)
    assert alter(world, A, other) == 0
    world.run(3)
    copied = described(world, A)[other]
    assert copied[0]
    assert world.stop(A)
    world[A].disk.files.remove_tree(f"{here}/t-0")
    world.start(A)
    at = TopicPartition("t", 0)
    world.run_until(lambda: (found := world.sim.replica(A, at)) is not None and found.is_leading)
    assert has_moved(world, A, other)
    notices = " ".join(world[A].machine.start_notices)
    assert f"its copy, which ends at {5 - copied[1]}, takes its place" in notices
    assert "The log of t-0 is gone" in notices
    assert "it starts as after a crash" in notices


def test_a_copy_that_has_lost_its_topic_takes_no_place(world: ClusterWorld) -> None:
    """The topic may have been made anew since: its records would be another one's."""
    world.stop(B)
    write(world, 5)
    here, other = directories(world, A)
    assert alter(world, A, other) == 0
    world.run(3)
    assert world.stop(A)
    files = world[A].disk.files
    (copy,) = [name for name in files.list_directory(other) if name.endswith("-future")]
    files.remove(f"{other}/{copy}/partition.metadata")
    files.remove_tree(f"{here}/t-0")
    world.start(A)
    world.run_until(lambda: world.sim.replica(A, TopicPartition("t", 0)) is not None)
    notices = " ".join(world[A].machine.start_notices)
    assert "has lost the file that names its topic" in notices
    assert "takes its place" not in notices
    (aside,) = [name for name in files.list_directory(other) if name.endswith("-stray")]
    assert aside.startswith("t-0.")
