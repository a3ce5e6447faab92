"""Topics of coordinators that are deleted, and made again when they are needed next."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from strandline.cluster.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from strandline.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from strandline.protocol.messages.delete_topics import DeleteTopicsRequest
from strandline.protocol.messages.find_coordinator import FindCoordinatorRequest
from strandline.protocol.messages.init_producer_id import InitProducerIdRequest
from strandline.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.node.cluster_world import ClusterWorld
from tests.node.world import Client, World

NAME = "first"
ONE_PARTITION = ("offsets.topic.num.partitions=1", "transaction.state.log.num.partitions=1")


def find(client: Client, key_type: int) -> tuple[int, int]:
    """Error and coordinator."""
    answer = client.ask(FindCoordinatorRequest(key=NAME, key_type=key_type), 2)
    return answer.error_code, answer.node_id


def commit(client: Client) -> int:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = OffsetCommitRequestTopic(name="orders", partitions=[partition])
    answer = client.ask(OffsetCommitRequest(group_id=NAME, topics=[topic]), 8)
    return int(answer.topics[0].partitions[0].error_code)


def initialize(client: Client) -> int:
    request = InitProducerIdRequest(transactional_id=NAME, transaction_timeout_ms=60_000)
    return int(client.ask(request, 4).error_code)


CASES = pytest.mark.parametrize(
    ("topic", "key_type", "use"),
    [(CONSUMER_OFFSETS, 0, commit), (TRANSACTION_STATE, 1, initialize)],
    ids=["groups", "transactions"],
)


@CASES
def test_a_coordinator_serves_the_topic_that_is_made_in_place_of_a_deleted_one(
    topic: str, key_type: int, use: Callable[[Client], int]
) -> None:
    """The new topic's leader epochs begin at 0 again."""
    world = World(*ONE_PARTITION)
    world.create_topic("orders")
    assert find(world.connect(), key_type) == (0, 1)
    world.restart()
    assert use(world.connect()) == 0
    assert world.replica(topic).leader_epoch > 0

    world.delete_topic(topic)
    client = world.connect()
    assert find(client, key_type) == (0, 1)
    assert world.replica(topic).leader_epoch == 0
    assert use(client) == 0
    world.check()


@CASES
def test_also_a_broker_that_only_led_the_deleted_one_formerly(
    make_world: Callable[..., ClusterWorld],
    topic: str,
    key_type: int,
    use: Callable[[Client], int],
) -> None:
    world = make_world(2, *ONE_PARTITION)
    world.create_topic("orders", (1,))
    world.create_topic(topic, (1,))
    world.restart(1)
    world.run_until(world.is_settled)
    assert world.replica(1, topic).leader_epoch > 0
    assert find(world[1].connect(), key_type) == (0, 1)
    assert use(world[1].connect()) == 0
    move = ReassignablePartition(partition_index=0, replicas=[2])
    moved = ReassignableTopic(name=topic, partitions=[move])
    request = AlterPartitionReassignmentsRequest(topics=[moved], timeout_ms=1000)
    assert world.controller.connect().ask(request, 0).error_code == 0
    world.run_until(lambda: world.partition(topic).replicas == (2,))
    world.run_until(world.is_settled)
    assert world.partition(topic).leader_epoch > 0
    assert find(world[2].connect(), key_type) == (0, 2)
    assert use(world[2].connect()) == 0

    deleting = DeleteTopicsRequest(topic_names=[topic], timeout_ms=1000)
    assert world.controller.connect().ask(deleting, 3).responses[0].error_code == 0
    world.run_until(lambda: topic not in world.image.topics)
    world.create_topic(topic, (1,))
    assert world.partition(topic).leader_epoch == 0
    assert find(world[1].connect(), key_type) == (0, 1)
    assert use(world[1].connect()) == 0
