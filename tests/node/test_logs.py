"""Which log a partition has on a broker: made once, known by its topic, and never made twice."""

from __future__ import annotations

import pytest

from strandline.errors import ErrorCode
from strandline.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from strandline.types import BrokerId, TopicPartition
from tests.node.cluster_world import ClusterWorld
from tests.node.messages import batch, produce, produced
from tests.node.world import World

T0 = TopicPartition("t", 0)


def test_a_log_gets_the_id_of_its_topic_also_after_a_crash_between_the_two(world: World) -> None:
    """F-03: the log was made, and the process died before it wrote `partition.metadata`."""
    topic_id = world.node.metadata.image.topics["orders"].topic_id
    assert world.replica("orders").log.topic_id == topic_id
    world.files.remove("/data/orders-0/partition.metadata")
    for _ in range(2):
        world.kill_and_restart()
        assert world.replica("orders").log.topic_id == topic_id
    assert world.files.exists("/data/orders-0/partition.metadata")


@pytest.mark.parametrize("operations", range(1, 12))
def test_a_crash_while_a_log_is_made(operations: int) -> None:
    """The same in a cluster: the process ends at one operation of the disk after another."""
    world = ClusterWorld(2)
    broker = world[1]
    broker.disk.crash_in(operations, path_part="t-0")
    ask_for_topic(world, "t", 1)
    world.run(100)
    assert not broker.is_running
    world.start(1)
    world.run_until(lambda: broker.is_up and world.sim.is_settled())
    assert world.replica(1, "t").log.topic_id == world.image.topics["t"].topic_id
    assert code_of_produce(world, 1) == 0
    world.check()


def test_no_log_is_made_anew_while_its_directory_cannot_be_read() -> None:
    """KIP-112: a broker starts without one of its disks. What lies there is not empty, and would
    be there twice when the disk is back."""
    world = ClusterWorld(3, disks=2)
    world.create_topic("t", (1, 2, 3))
    assert code_of_produce(world, 1) == 0
    world.run_until(lambda: world.offsets(3, "t") == (1, 1))
    path = parent(world, 3)
    other = next(each for each in world[3].config.log_dirs if each != path)
    assert world.stop(3)
    world[3].disk.break_dir(path)
    world.start(3)
    world.run_until(lambda: world[3].is_up)
    world.run(1_000)
    assert world.sim.replica(3, T0) is None
    assert not world[3].disk.files.exists(f"{other}/t-0")
    # What is new to the broker goes where there is room.
    ask_for_topic(world, "u", 1, 2, 3)
    world.run_until(lambda: world.sim.replica(3, TopicPartition("u", 0)) is not None)
    assert parent(world, 3, "u") == other
    # Whatever happens to the partition meanwhile.
    assert code_of_produce(world, 1) == 0
    world.run_until(lambda: world.offsets(2, "t") == (2, 2))
    world.kill(1, expire=True)
    world.run_until(lambda: world.partition("t").leader == 2)
    world.run(1_000)
    assert world.sim.replica(3, T0) is None

    assert not world.stop(3), "one directory cannot be marked"
    world[3].disk.heal()
    world.start(3)
    world.start(1)
    world.run_until(lambda: BrokerId(3) in world.partition("t").in_sync_replicas)
    assert parent(world, 3) == path
    assert world.offsets(3, "t") == (2, 2)
    world.check()


def ask_for_topic(world: ClusterWorld, name: str, *brokers: int) -> None:
    """Have a topic made on these brokers, and wait for nothing."""
    replicas = CreatableReplicaAssignment(partition_index=0, broker_ids=list(brokers))
    topic = CreatableTopic(
        name=name, num_partitions=-1, replication_factor=-1, assignments=[replicas]
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=1000)
    answer = world.controller.connect().ask(request, 5)
    assert [item.error_code for item in answer.topics] == [0], answer


def parent(world: ClusterWorld, broker_id: int, topic: str = "t") -> str:
    """The log directory of a partition."""
    return world.replica(broker_id, topic).log.directory.rpartition("/")[0]


def code_of_produce(world: ClusterWorld, broker_id: int) -> ErrorCode:
    answer = world[broker_id].connect().ask(produce(batch(b"x"), "t", acks=1), 9)
    return ErrorCode(produced(answer).error_code)
