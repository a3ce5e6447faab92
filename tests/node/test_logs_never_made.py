"""A broker that had not heard of a topic when it ended: there was no log of it to lose."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from strandline.node.log_directories import UNKNOWN_EPOCH
from strandline.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from strandline.protocol.messages.delete_topics import DeleteTopicsRequest
from strandline.types import BrokerId
from tests.node.cluster_world import ClusterWorld
from tests.node.messages import batch, produce, produced

LATE = 3
"""It must not be the controller."""
MINUTE_US = 60_000_000


@pytest.fixture
def world() -> Iterator[ClusterWorld]:
    # It would wait to be relieved, and hear of the topic meanwhile.
    at_once = "controlled.shutdown.enable=false"
    world = ClusterWorld(3, "auto.leader.rebalance.enable=false", "min.insync.replicas=2", at_once)
    if world.controller.broker_id == LATE:
        world.restart(LATE)
        world.run_until(world.is_settled)
    world.create_topic("kept", (1, 2, LATE))
    yield world
    world.check()


def create(world: ClusterWorld, name: str) -> None:
    topic = CreatableTopic(name=name, num_partitions=2, replication_factor=3)
    answer = world.controller.connect().ask(CreateTopicsRequest(topics=[topic], timeout_ms=10), 5)
    assert answer.topics[0].name == name
    world.run_until(lambda: name in world.image.topics)


def delete(world: ClusterWorld, name: str) -> None:
    world.controller.connect().ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=10), 5)
    world.run_until(lambda: name not in world.image.topics)


def is_complete(world: ClusterWorld, topic: str) -> bool:
    state = world.partition(topic)
    return BrokerId(LATE) in (*state.in_sync_replicas, *state.elr)


@pytest.mark.parametrize("is_anew", [False, True])
def test_a_topic_that_was_not_heard_of_costs_no_other_its_complete_replica(
    world: ClusterWorld, *, is_anew: bool
) -> None:
    """Seed 110410423. All brokers end in order, and only those that start again are electable."""
    if is_anew:
        world.create_topic("new", partitions=2)
    world.store.lag(BrokerId(LATE), MINUTE_US)
    if is_anew:
        delete(world, "new")
    create(world, "new")
    answer = world.leader_of("kept").connect().ask(produce(batch(b"x"), "kept", acks=-1), 9)
    assert produced(answer).error_code == 0
    assert world.stop(LATE)
    world.store.lag(BrokerId(LATE), 0)
    assert is_complete(world, "new")
    world.start(LATE)
    world.run_until(lambda: BrokerId(LATE) in world.image.brokers)
    assert not any(" is gone" in each for each in world[LATE].machine.start_notices)
    assert world.image.brokers[BrokerId(LATE)].previous_epoch != UNKNOWN_EPOCH
    assert is_complete(world, "kept")
    assert is_complete(world, "new")
    world.run_until(world.is_settled)


def test_a_log_that_was_removed_is_told_of_beside_one_that_was_never_made(
    world: ClusterWorld,
) -> None:
    world.store.lag(BrokerId(LATE), MINUTE_US)
    create(world, "new")
    assert world.stop(LATE)
    world.store.lag(BrokerId(LATE), 0)
    (directory,) = world[LATE].config.log_dirs
    world[LATE].disk.files.remove_tree(f"{directory}/kept-0")
    world.start(LATE)
    world.run_until(lambda: BrokerId(LATE) in world.image.brokers)
    (notice,) = [each for each in world[LATE].machine.start_notices if " is gone" in each]
    assert notice.startswith("The log of kept-0 is gone, although")
    assert world.image.brokers[BrokerId(LATE)].previous_epoch == UNKNOWN_EPOCH
    world.run_until(world.is_settled)
