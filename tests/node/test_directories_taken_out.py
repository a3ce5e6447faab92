"""A directory is taken out of `log.dirs` while its broker is down: what lay in it is gone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from strandline.node.log_directories import UNKNOWN_EPOCH
from strandline.protocol.messages.delete_topics import DeleteTopicsRequest
from strandline.types import BrokerId
from tests.node.cluster_world import ClusterWorld
from tests.node.messages import batch, produce, produced

A, B, C = 1, 2, 3


@pytest.fixture
def world() -> Iterator[ClusterWorld]:
    world = ClusterWorld(3, "auto.leader.rebalance.enable=false", "min.insync.replicas=2", disks=2)
    if world.controller.broker_id == C:
        world.restart(C)
        world.run_until(world.is_settled)
    world.create_topic("t", (A, B, C), (A, B, C))
    yield world
    world.check()


def write(world: ClusterWorld, partition: int, *, acks: int = -1) -> None:
    leader = world.leader_of("t", partition)
    answer = leader.connect().ask(produce(batch(b"x"), "t", partition, acks=acks), 9)
    assert produced(answer).error_code == 0


def take_out(world: ClusterWorld, broker_id: int, directory: str) -> None:
    machine = world[broker_id].machine
    kept = tuple(each for each in machine.config.log_dirs if each != directory)
    machine.config = replace(machine.config, log_dirs=kept)


def directory_of(world: ClusterWorld, broker_id: int, partition: int) -> str:
    return world.replica(broker_id, "t", partition).log.directory.rpartition("/")[0]


@pytest.mark.parametrize("has_failed", [False, True])
def test_it_starts_as_after_a_crash(world: ClusterWorld, *, has_failed: bool) -> None:
    """The other directory was closed cleanly, and its marker knew only its own logs."""
    for partition in (0, 1):
        write(world, partition)
    lost = directory_of(world, C, 0)
    assert lost != directory_of(world, C, 1)
    assert world.stop(B)
    world.run_until(lambda: B not in world.partition("t", 0).in_sync_replicas)
    if has_failed:
        world[C].disk.break_dir(lost)
        write(world, 0, acks=1)
        world.run_until(lambda: C not in world.partition("t", 0).in_sync_replicas)
    assert world.stop(C) is not has_failed
    assert C in world.partition("t", 0).elr
    take_out(world, C, lost)
    world.start(C)
    world.run_until(lambda: BrokerId(C) in world.image.brokers)
    (notice,) = [each for each in world[C].machine.start_notices if " is gone" in each]
    assert notice.startswith("The log of t-0 is gone, although")
    assert world.image.brokers[BrokerId(C)].previous_epoch == UNKNOWN_EPOCH
    world.run_until(lambda: C not in world.partition("t", 0).elr)
    world.start(B)
    world.run_until(world.is_settled)
    assert world.replica(C, "t", 0).log.log_end_offset == 1 + has_failed


def test_without_what_lay_in_it_nothing_is_missing(world: ClusterWorld) -> None:
    """Its last log was deleted before."""
    request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=10)
    world.controller.connect().ask(request, 5)
    world.run_until(lambda: "t" not in world.image.topics)
    world.run_until(world.is_settled)
    world.create_topic("kept", (A, B, C))
    path = world.replica(C, "kept").log.directory.rpartition("/")[0]
    (emptied,) = set(world[C].machine.config.log_dirs) - {path}
    assert world.stop(C)
    take_out(world, C, emptied)
    world.start(C)
    world.run_until(lambda: BrokerId(C) in world.image.brokers)
    assert world.image.brokers[BrokerId(C)].previous_epoch != UNKNOWN_EPOCH
