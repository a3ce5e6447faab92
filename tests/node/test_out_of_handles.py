"""Opens that fail for a while (EMFILE) break nothing: no disk is given up, and all goes on."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from threading import get_ident

import pytest

from strandline.errors import ErrorCode
from strandline.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from strandline.protocol.messages.delete_topics import DeleteTopicsRequest
from strandline.storage.files import OutOfHandles
from strandline.types import TopicPartition
from tests.node.cluster_world import ClusterWorld
from tests.node.messages import batch, produce, produced

A, B, C = 1, 2, 3


@pytest.fixture
def world() -> Iterator[ClusterWorld]:
    """Three brokers; all partitions of `t` are led by the first."""
    world = ClusterWorld(3)
    world.create_topic("t", (A, B, C), (A, B, C))
    world.run(1000)
    yield world
    world.check()


def write(world: ClusterWorld, broker_id: int, number: int = 0, *, acks: int = -1) -> int:
    client = world[broker_id].connect()
    answer = client.ask(produce(batch(b"x"), "t", number, acks=acks), 9)
    code: int = produced(answer).error_code
    return code


def offline(world: ClusterWorld, broker_id: int) -> list[str]:
    """Why log directories of the broker are offline."""
    directories = world[broker_id].node.replicas.logs.directories
    return [each.offline_reason for each in directories if each.offline_reason is not None]


def settle(world: ClusterWorld) -> None:
    """All replicas are back in sync, and equal."""

    def is_well() -> bool:
        states = [world.partition("t", number) for number in (0, 1)]
        in_sync = all(sorted(state.in_sync_replicas) == [A, B, C] for state in states)
        return in_sync and world.is_settled() and all(map(world.are_logs_equal, "t", (0, 1)))

    world.run_until(is_well, ms_max=300_000)
    for broker_id in (A, B, C):
        assert not offline(world, broker_id)
        assert not world.image.brokers[world[broker_id].broker_id].offline


def test_a_leader_that_cannot_open_its_log_refuses_and_goes_on(world: ClusterWorld) -> None:
    assert write(world, A) == 0
    world[A].disk.starve()
    for _ in range(3):
        assert write(world, A) == ErrorCode.KAFKA_STORAGE_ERROR
        world.run(20_000)  # periodic work of all kinds fails meanwhile
        assert not offline(world, A)
    world[A].disk.starve(0)
    assert write(world, world.leader_of("t").broker_id) == 0
    settle(world)


def test_a_follower_that_cannot_open_its_log_catches_up_afterwards(world: ClusterWorld) -> None:
    world[B].disk.starve()
    for _ in range(3):
        assert write(world, A, acks=1) == 0
        world.run(5_000)
    assert not offline(world, B)
    world[B].disk.starve(0)
    settle(world)
    assert world.offsets(B, "t") == (3, 3)


def test_a_log_that_failed_for_want_of_handles_is_loaded_again_when_an_append_finds_it(
    world: ClusterWorld,
) -> None:
    """As after a compacted segment that could not be put in: the disk is not at fault."""
    replica = world[A].node.replicas.find(TopicPartition("t", 0))
    assert replica is not None
    shortage = OutOfHandles("Too many open files.")
    replica.log.health.fail(f"The compacted segment 0 could not be put in: {shortage}", shortage)
    assert write(world, A) == ErrorCode.KAFKA_STORAGE_ERROR
    world.run(20_000)
    settle(world)
    assert write(world, world.leader_of("t").broker_id) == 0


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
def test_what_breaks_off_in_the_middle_is_done_again(world: ClusterWorld, share: float) -> None:
    """A truncation, for one: the log is loaded again then, without a restart."""
    for round_number in range(3):
        world.pause(B)
        world.pause(C)
        for number in (0, 1):
            client = world[A].connect()
            client.send(produce(batch(b"lost"), "t", number, acks=1), 9)
        world.run(100)
        world.cut((A, B), (A, C))
        world.resume(B)
        world.resume(C)
        world.pause(A)
        world.run(30_000)
        for broker_id in (A, B, C):
            world[broker_id].disk.starve(share)
        world.resume(A)
        world.heal()
        world.run(30_000)
        for broker_id in (A, B, C):
            assert not offline(world, broker_id), round_number
            world[broker_id].disk.starve(0)
        settle(world)


def test_topics_can_be_made_and_deleted_again(world: ClusterWorld) -> None:
    controller = world.controller.connect()
    for broker_id in (A, B, C):
        world[broker_id].disk.starve(0.3)
    for _ in range(4):
        topic = CreatableTopic(name="u", num_partitions=4, replication_factor=3)
        controller.ask(CreateTopicsRequest(topics=[topic]), 7)
        world.run(15_000)
        controller.ask(DeleteTopicsRequest(topic_names=["u"]), 5)
        world.run(15_000)
    for broker_id in (A, B, C):
        assert not offline(world, broker_id)
        world[broker_id].disk.starve(0)
    settle(world)
    world.create_topic("u", (A, B, C))
    world.run_until(world.is_settled, ms_max=60_000)
    client = world[A].connect()
    assert produced(client.ask(produce(batch(b"x"), "u"), 9)).error_code == 0
    assert world.offsets(A, "u")[1] == 1
    for broker_id in (A, B, C):
        world.restart(broker_id)
    world.run_until(world.is_settled, ms_max=120_000)
    assert world.offsets(A, "u")[1] == 1


def test_one_message_tells_of_it(world: ClusterWorld, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        world[A].disk.starve()
        world.run(60_000)
        world[A].disk.starve(0)
    here = get_ident()  # clusters that tests share log from threads of their own
    assert not [each for each in caplog.records if each.exc_info and each.thread == here]
    settle(world)
