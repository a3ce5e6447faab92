"""What happens to a follower's partitions while fetches of it are under way."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from strandline.errors import ErrorCode
from strandline.node.node import Node
from strandline.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from strandline.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from strandline.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from strandline.types import BrokerId, Offset
from tests.node.cluster_world import Broker, ClusterWorld
from tests.node.messages import batch, produce, produced

A, B = 1, 2


@pytest.fixture
def world() -> Iterator[ClusterWorld]:
    """Three brokers with the topic `t`, led by the first, kept by the first two."""
    world = ClusterWorld(3)
    world.create_topic("t", (A, B))
    world.run(1000)
    yield world
    world.check()


def write(world: ClusterWorld, topic: str) -> int:
    """Write a record to all replicas; the error code."""
    client = world.leader_of(topic).connect()
    code: int = produced(client.ask(produce(batch(b"x"), topic), 9)).error_code
    return code


def deletion(topic: str, offset: int) -> DeleteRecordsRequest:
    """Delete the records below an offset."""
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    topics = [DeleteRecordsTopic(name=topic, partitions=[partition])]
    return DeleteRecordsRequest(topics=topics, timeout_ms=2000)


def begin(world: ClusterWorld, broker: Broker, request: object, version: int) -> None:
    """Ask without waiting for the answer, but for what follows soon."""
    broker.connect().send(request, version)
    broker.schedule_turn()
    world.run(50)


def test_a_topic_that_goes_while_two_fetches_are_under_way_is_not_asked_for(
    world: ClusterWorld,
) -> None:
    world.create_topic("gone", (A, B))
    assert write(world, "t") == 0
    world.run(1000)
    # The first answer has records of the topic, the second one where the other log starts now.
    world.hold((A, B))
    begin(world, world[A], produce(batch(b"x"), "gone", acks=1), 9)
    begin(world, world[A], deletion("t", 1), 2)
    assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=[A, B])
    new = CreatableTopic(
        name="new", num_partitions=-1, replication_factor=-1, assignments=[assignment]
    )
    begin(world, world.controller, CreateTopicsRequest(topics=[new], timeout_ms=1000), 5)
    world.let_through(A, B)
    assert world.offsets(B, "gone") == (1, 0)
    deleted = DeleteTopicsRequest(topics=[DeleteTopicState(name="gone")], timeout_ms=1000)
    begin(world, world.controller, deleted, 6)
    world.let_through(A, B)
    world.hold()
    assert world.replica(B, "t").log.log_start_offset == 1
    assert write(world, "t") == 0
    world.run_until(lambda: world.are_logs_equal("t"))


def test_a_leader_hears_of_a_log_start_that_a_full_disk_took_later(world: ClusterWorld) -> None:
    assert write(world, "t") == 0
    world.run(1000)
    world[B].disk.fill("log-start-offset-checkpoint")
    client = world[A].connect()
    timed_out = client.ask(deletion("t", 1), 2).topics[0].partitions[0]
    assert (timed_out.error_code, timed_out.low_watermark) == (ErrorCode.REQUEST_TIMED_OUT, 0)
    world[B].disk.free_space()
    world.run_until(lambda: world.replica(B, "t").log.offsets.log_start_saved == 1, ms_max=100_000)
    # Nothing else happens in the partition.
    answer = client.ask(deletion("t", 1), 2).topics[0].partitions[0]
    assert (answer.error_code, answer.low_watermark) == (ErrorCode.NONE, 1)


def test_a_leader_hears_of_a_log_start_that_its_follower_has_raised_by_itself(
    world: ClusterWorld,
) -> None:
    assert write(world, "t") == 0
    world.run(1000)
    world[B].event(lambda node, _: _delete_to(node, 1))
    world.run(1000)
    leader = world.replica(A, "t").leader
    assert leader is not None
    assert leader.progress[BrokerId(B)].log_start_offset == 1


def _delete_to(node: Node, offset: int) -> None:
    """As retention does."""
    (replica,) = (each for each in node.replicas if each.topic_partition.topic == "t")
    replica.log.retention.delete_records_to(Offset(offset))
