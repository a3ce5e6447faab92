"""Several log directories, of which one fails: it takes its own replicas along and no others."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from strandline.errors import ErrorCode, StorageError
from strandline.node.replica import Replica
from strandline.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from strandline.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from strandline.protocol.messages.delete_topics import DeleteTopicsRequest
from strandline.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from strandline.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from strandline.types import TopicPartition
from tests.node.cluster_world import ClusterWorld
from tests.node.messages import batch, fetch, produce, produced

A, B, C, D = 1, 2, 3, 4
PARTITIONS = range(4)


@pytest.fixture
def world() -> Iterator[ClusterWorld]:
    """Three brokers with two directories each; all partitions of `t` are led by the first."""
    world = ClusterWorld(3, disks=2)
    world.create_topic("t", *[(A, B, C)] * len(PARTITIONS))
    world.run(1000)
    yield world
    world.check()


def write(world: ClusterWorld, broker_id: int, number: int, *, acks: int = -1) -> int:
    """The error code of a produce that goes to that broker."""
    client = world[broker_id].connect()
    answer = client.ask(produce(batch(b"x"), "t", number, acks=acks), 9)
    code: int = produced(answer).error_code
    return code


def leads(world: ClusterWorld, broker_id: int, number: int) -> bool:
    """Whether the metadata say so."""
    return world.partition("t", number).leader == broker_id


def is_leading(world: ClusterWorld, broker_id: int, number: int) -> bool:
    """Whether the broker does so."""
    return world.replica(broker_id, "t", number).is_leading


def are_in_sync(world: ClusterWorld, brokers: tuple[int, ...], number: int) -> bool:
    """Whether these are, and no others."""
    return world.partition("t", number).in_sync_replicas == brokers


def directory_of(replica: Replica) -> str:
    """The log directory that a replica lies in."""
    return replica.log.directory.rpartition("/")[0]


def spread(world: ClusterWorld, broker_id: int) -> dict[str, list[int]]:
    """The partitions of `t` that a broker hosts, by log directory."""
    found: dict[str, list[int]] = {}
    for replica in world[broker_id].node.replicas:
        if replica.topic_partition.topic == "t":
            found.setdefault(directory_of(replica), []).append(replica.topic_partition.partition)
    return found


def break_one(world: ClusterWorld, broker_id: int) -> tuple[list[int], list[int]]:
    """Break a directory under a partition that is written to; partitions in it, and the others."""
    (broken, lost), (_, kept) = sorted(spread(world, broker_id).items())
    world[broker_id].disk.break_dir(broken)
    assert write(world, A, lost[0], acks=1) == (
        ErrorCode.KAFKA_STORAGE_ERROR if broker_id == A else 0
    )
    return lost, kept


def delete_topic(world: ClusterWorld) -> None:
    """Have `t` deleted, and wait until the controller has done so."""
    request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000)
    (answer,) = world.controller.connect().ask(request, 5).responses
    assert answer.error_code == 0
    world.run_until(lambda: "t" not in world.image.topics)


def move(world: ClusterWorld, number: int, *replicas: int) -> None:
    """Reassign a partition of `t`, and wait until these replicas are in sync."""
    partition = ReassignablePartition(partition_index=number, replicas=list(replicas))
    topic = ReassignableTopic(name="t", partitions=[partition])
    request = AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=1000)
    assert world.controller.connect().ask(request, 1).error_code == 0
    world.run_until(lambda: world.partition("t", number).replicas == replicas)
    assert set(world.partition("t", number).in_sync_replicas) == set(replicas)


def start_on_a_healthy_disk(world: ClusterWorld, broker_id: int) -> None:
    """Heal the disks of a broker, and start it anew."""
    world[broker_id].disk.heal()
    world.kill(broker_id, expire=True)
    world.start(broker_id)
    world.run_until(world.is_settled, ms_max=120_000)


def names_in(world: ClusterWorld, broker_id: int, directory: str) -> list[str]:
    """The partitions of `t` that lie in a log directory, as they are called there."""
    names = world[broker_id].disk.files.list_directory(directory)
    return sorted(name for name in names if name.startswith("t-"))


def test_new_partitions_go_to_the_directory_with_the_fewest(world: ClusterWorld) -> None:
    for broker_id in (A, B, C):
        assert sorted(map(len, spread(world, broker_id).values())) == [2, 2]


def test_leadership_leaves_a_failed_directory_and_stays_in_the_others(world: ClusterWorld) -> None:
    lost, kept = break_one(world, A)
    for number in lost:
        world.run_until(partial(leads, world, B, number))
        assert A not in world.partition("t", number).in_sync_replicas
        assert write(world, A, number) == ErrorCode.KAFKA_STORAGE_ERROR
        world.run_until(partial(is_leading, world, B, number))
        assert write(world, B, number) == 0
    for number in kept:
        assert world.partition("t", number).leader == A
        assert write(world, A, number) == 0
    offline = world.image.brokers[world[A].broker_id].offline
    assert {TopicPartition("t", number) for number in lost} <= offline
    assert not {TopicPartition("t", number) for number in kept} & offline


def test_readers_of_a_failed_directory_are_told(world: ClusterWorld) -> None:
    assert write(world, A, 0) == 0
    lost, kept = break_one(world, A)
    for number, expected in ((lost[0], ErrorCode.KAFKA_STORAGE_ERROR), (kept[0], ErrorCode.NONE)):
        answer = world[A].connect().ask(fetch(("t", number, 0), max_wait_ms=0), 11)
        assert answer.responses[0].partitions[0].error_code == expected


def test_a_follower_with_a_failed_directory_leaves_the_in_sync_set(world: ClusterWorld) -> None:
    (broken, lost), (_, kept) = sorted(spread(world, B).items())
    world[B].disk.break_dir(broken)
    assert write(world, A, lost[0], acks=1) == 0
    for number in lost:
        world.run_until(partial(are_in_sync, world, (A, C), number))
    for number in kept:
        assert world.partition("t", number).in_sync_replicas == (A, B, C)


def test_producers_do_not_wait_for_a_follower_whose_disk_has_failed(world: ClusterWorld) -> None:
    """It had everything a moment ago, but it cannot join until its broker starts again."""
    (broken, lost), _ = sorted(spread(world, B).items())
    world[B].disk.break_dir(broken)
    assert write(world, A, lost[0], acks=1) == 0
    world.run_until(lambda: world.partition("t", lost[0]).in_sync_replicas == (A, C))
    began_ms = world[A].now.monotonic_ms
    assert write(world, A, lost[0]) == 0
    assert world[A].now.monotonic_ms - began_ms < 1000


def test_clients_see_which_replicas_are_offline(world: ClusterWorld) -> None:
    lost, kept = break_one(world, A)
    world.run_until(lambda: world.partition("t", lost[0]).leader == B)
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")])
    (topic,) = world[C].connect().ask(request, 0).topics
    offline = {each.partition_index: each.offline_replicas for each in topic.partitions}
    assert offline == {**{at: [A] for at in lost}, **{at: [] for at in kept}}


def test_describe_log_dirs_tells_the_truth(world: ClusterWorld) -> None:
    for number in PARTITIONS:
        assert write(world, A, number) == 0
    lost, kept = break_one(world, A)
    world.run(100)
    results = world[A].connect().ask(DescribeLogDirsRequest(topics=None), 4).results
    failed, working = sorted(results, key=lambda result: result.error_code, reverse=True)
    assert failed.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (failed.topics, failed.total_bytes, failed.usable_bytes) == ([], -1, -1)
    assert working.error_code == ErrorCode.NONE
    assert 0 < working.usable_bytes <= working.total_bytes
    sizes = {
        partition.partition_index: partition.partition_size
        for topic in working.topics
        if topic.name == "t"
        for partition in topic.partitions
    }
    assert sizes == {at: len(world.log_bytes(A, "t", at)) for at in kept}
    assert lost


def test_deleting_records_does_not_wait_for_a_replica_on_a_failed_disk(world: ClusterWorld) -> None:
    (broken, lost), _ = sorted(spread(world, B).items())
    assert write(world, A, lost[0]) == 0
    world[B].disk.break_dir(broken)
    assert write(world, A, lost[0], acks=1) == 0
    world.run_until(lambda: world.partition("t", lost[0]).in_sync_replicas == (A, C))
    asked = DeleteRecordsTopic(
        name="t", partitions=[DeleteRecordsPartition(partition_index=lost[0], offset=1)]
    )
    request = DeleteRecordsRequest(topics=[asked], timeout_ms=30_000)
    (answer,) = world[A].connect().ask(request, 2).topics[0].partitions
    assert (answer.error_code, answer.low_watermark) == (ErrorCode.NONE, 1)


def test_a_broker_without_any_directory_ends(world: ClusterWorld) -> None:
    for path in sorted(spread(world, A)):
        world[A].disk.break_dir(path)
    for number in PARTITIONS:
        if world[A].is_up:
            world[A].connect().send(produce(batch(b"x"), "t", number, acks=1), 9)
            world[A].schedule_turn()
        world.run(10)
    assert any("Every log directory is offline" in note for note in world.sim.notes)
    for number in PARTITIONS:
        world.run_until(partial(leads, world, B, number), ms_max=60_000)


def test_a_partition_comes_back_when_its_disk_does(world: ClusterWorld) -> None:
    lost, _ = break_one(world, A)
    world.run_until(lambda: world.partition("t", lost[0]).leader == B)
    world.run_until(lambda: world.replica(B, "t", lost[0]).is_leading)
    assert write(world, B, lost[0]) == 0
    world[A].disk.heal()
    world.kill(A, expire=True)
    world.start(A)
    world.run_until(world.is_settled, ms_max=120_000)
    assert world.partition("t", lost[0]).in_sync_replicas == (A, B, C)
    assert not world.image.brokers[world[A].broker_id].offline
    assert world.are_logs_equal("t", lost[0])


def test_who_waits_for_a_deletion_hears_that_the_disk_has_failed(world: ClusterWorld) -> None:
    (broken, lost), _ = sorted(spread(world, A).items())
    assert write(world, A, lost[0]) == 0
    world.pause(B)
    asked = DeleteRecordsTopic(
        name="t", partitions=[DeleteRecordsPartition(partition_index=lost[0], offset=1)]
    )
    waiting = world[A].connect()
    waiting.send(DeleteRecordsRequest(topics=[asked], timeout_ms=30_000), 2)
    world.run(100)
    assert not waiting.answers
    world[A].disk.break_dir(broken)
    assert write(world, A, lost[0], acks=1) == ErrorCode.KAFKA_STORAGE_ERROR
    world.run_until(lambda: bool(waiting.answers), ms_max=1000)
    (answer,) = waiting.answers[0].topics[0].partitions
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    world.resume(B)


# -- What a failed disk keeps ------------------------------------------------------------------


def test_a_topic_that_is_made_again_lies_on_the_disks_that_work(world: ClusterWorld) -> None:
    (broken, _), (working, _) = sorted(spread(world, A).items())
    lost, _ = break_one(world, A)
    world.run_until(lambda: world.partition("t", lost[0]).leader == B)
    delete_topic(world)
    world.create_topic("t", *[(A, B, C)] * len(PARTITIONS))
    assert spread(world, A) == {working: list(PARTITIONS)}
    assert not world.image.brokers[world[A].broker_id].offline
    for number in PARTITIONS:
        assert world.partition("t", number).in_sync_replicas == (A, B, C)
        assert write(world, A, number) == 0

    start_on_a_healthy_disk(world, A)  # the old logs are there again
    assert spread(world, A) == {working: list(PARTITIONS)}
    assert all(world.are_logs_equal("t", number) for number in PARTITIONS)
    kept = names_in(world, A, broken)
    assert [name.partition(".")[0] for name in kept] == [f"t-{number}" for number in lost]
    assert all(name.endswith("-stray") for name in kept)


def test_a_topic_can_be_made_again_on_the_only_broker() -> None:
    world = ClusterWorld(1, disks=2)
    world.create_topic("t", *[(A,)] * len(PARTITIONS))
    break_one(world, A)
    delete_topic(world)
    world.create_topic("t", *[(A,)] * len(PARTITIONS))
    assert [write(world, A, number) for number in PARTITIONS] == [0] * len(PARTITIONS)
    world.check()


@pytest.mark.parametrize("written", [1, 4])
def test_a_replica_that_was_moved_away_from_a_failed_disk_comes_back(written: int) -> None:
    world = ClusterWorld(4, disks=2)
    world.create_topic("t", *[(A, B, C)] * len(PARTITIONS))
    (broken, lost), (working, kept) = sorted(spread(world, B).items())
    number = lost[0]
    assert write(world, A, number) == 0
    world[B].disk.break_dir(broken)
    for _ in range(written):
        assert write(world, A, number, acks=1) == 0
    world.run_until(lambda: world.partition("t", number).in_sync_replicas == (A, C))
    move(world, number, A, C, D)
    assert write(world, A, number) == 0
    move(world, number, A, B, C)
    assert directory_of(world.replica(B, "t", number)) == working
    world.run_until(lambda: world.are_logs_equal("t", number))

    start_on_a_healthy_disk(world, B)  # two logs of one topic: the one that has more is kept
    assert spread(world, B) == {broken: lost[1:], working: sorted([number, *kept])}
    assert world.partition("t", number).in_sync_replicas == (A, B, C)
    assert world.are_logs_equal("t", number)
    world.check()


def test_a_replica_that_was_moved_away_from_a_failed_disk_is_none_at_the_next_start() -> None:
    world = ClusterWorld(4, disks=2)
    world.create_topic("t", *[(A, B, C)] * len(PARTITIONS))
    (broken, lost), _ = sorted(spread(world, B).items())
    world[B].disk.break_dir(broken)
    assert write(world, A, lost[0], acks=1) == 0
    world.run_until(lambda: world.partition("t", lost[0]).in_sync_replicas == (A, C))
    move(world, lost[0], A, C, D)
    start_on_a_healthy_disk(world, B)
    assert world.sim.replica(B, TopicPartition("t", lost[0])) is None
    stray, _ = names_in(world, B, broken)
    assert stray.startswith(f"t-{lost[0]}.")
    assert stray.endswith("-stray")
    world.check()


def test_a_disk_does_not_fail_with_the_log_of_a_deleted_topic_on_another_one(
    world: ClusterWorld,
) -> None:
    """A sync, for example, may hang for as long as it takes to make the topic again."""
    former = {number: world.replica(A, "t", number) for number in PARTITIONS}
    lost, _ = break_one(world, A)
    delete_topic(world)
    world.create_topic("t", *[(A, B, C)] * len(PARTITIONS))
    world[A].event(lambda _, now: former[lost[0]].fail(StorageError("The sync failed.")))
    world.run(1000)
    assert world.partition("t", lost[0]).leader == A
    assert write(world, A, lost[0]) == 0
