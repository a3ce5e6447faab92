"""Requests about more partitions than one write of the metadata store takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from strandline.broker.zookeeper_requests import REQUEST_BYTES_MAX, Multi
from strandline.cluster.controller import PARTITIONS_PER_MULTI
from strandline.cluster.store import MultiTooLarge, StoreUnavailable
from strandline.errors import ErrorCode
from strandline.protocol.messages import alter_partition
from strandline.protocol.messages.alter_partition import AlterPartitionRequest, BrokerState
from strandline.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from strandline.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from strandline.types import BrokerId, TopicPartition
from tests.node.followers import B, C, Cluster

COUNT = 2 * PARTITIONS_PER_MULTI + 100
PORTIONS = 3


@pytest.fixture
def cluster(make_cluster: Callable[..., Cluster]) -> Cluster:
    """A topic with many partitions, all of them on broker 1."""
    cluster = make_cluster("log.index.size.max.bytes=4096", "auto.leader.rebalance.enable=false")
    others = (B, C)
    for broker in others:
        cluster.leave(broker)
    cluster.world.create_topic("wide", COUNT)
    for broker in others:
        cluster.register(broker)
    cluster.world.turn()
    return cluster


def move(*numbers: int, to: tuple[int, ...] = (1, 2)) -> AlterPartitionReassignmentsRequest:
    partitions = [
        ReassignablePartition(partition_index=number, replicas=list(to)) for number in numbers
    ]
    topic = ReassignableTopic(name="wide", partitions=partitions)
    return AlterPartitionReassignmentsRequest(timeout_ms=1000, topics=[topic])


def written_one_by_one(cluster: Cluster, request: object, version: int) -> tuple[Any, list[int]]:
    """The answer, and how many operations each write had that it took."""
    world = cluster.world
    client = world.connect()
    world.holds_metadata = True
    client.send(request, version)
    world.turn()
    sizes = []
    while not client.answers:
        world.advance(1)  # a portion begins in a turn of its own
        write = world.held.popleft()
        sizes.append(len(write.operations))
        assert len(write.operations) <= PARTITIONS_PER_MULTI + 2  # the fence, and the assignment
        frame = Multi(write.operations, request_bytes_max=REQUEST_BYTES_MAX).serialize()
        assert len(frame) < REQUEST_BYTES_MAX / 2
        world.write_metadata(write)
        world.turn()
    world.holds_metadata = False
    return client.answers[0], sizes


def reassigned(answer: Any) -> dict[int, int]:
    assert answer.error_code == ErrorCode.NONE
    (topic,) = answer.responses
    assert len({each.partition_index for each in topic.partitions}) == len(topic.partitions)
    return {each.partition_index: each.error_code for each in topic.partitions}


def test_a_long_list_of_moves_is_written_in_batches(cluster: Cluster) -> None:
    answer, sizes = written_one_by_one(cluster, move(*range(COUNT)), 1)
    assert reassigned(answer) == dict.fromkeys(range(COUNT), ErrorCode.NONE)
    assert len(sizes) == PORTIONS
    topic = cluster.world.node.metadata.image.topics["wide"]
    assert topic.node.adding_replicas.keys() == set(range(COUNT))


def test_what_is_named_twice_is_refused_however_far_apart(cluster: Cluster) -> None:
    answer, _ = written_one_by_one(cluster, move(*range(COUNT), 0), 1)
    codes = reassigned(answer)
    assert len(codes) == COUNT
    assert codes.pop(0) == ErrorCode.INVALID_REQUEST
    assert set(codes.values()) == {ErrorCode.NONE}


def test_an_answer_is_complete_when_the_store_fails_on_the_way(cluster: Cluster) -> None:
    world = cluster.world
    client = world.connect()
    world.holds_metadata = True
    client.send(move(*range(COUNT)), 1)
    world.turn()
    world.write_metadata(world.held.popleft())
    world.advance(1)
    world.holds_metadata = False
    world.store_error = StoreUnavailable("It is gone.")
    world.write_metadata(world.held.popleft())
    world.turn()
    world.store_error = None
    codes = reassigned(client.answers[0])
    done = [number for number, code in codes.items() if code == ErrorCode.NONE]
    assert done == list(range(PARTITIONS_PER_MULTI))
    assert len(codes) == COUNT
    assert set(codes.values()) == {ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR}


def test_a_store_that_fails_at_once_refuses_the_whole(cluster: Cluster) -> None:
    cluster.world.store_error = StoreUnavailable("It is gone.")
    answer = cluster.world.connect().ask(move(*range(COUNT)), 1)
    assert (answer.error_code, answer.responses) == (ErrorCode.KAFKA_STORAGE_ERROR, [])
    cluster.world.store_error = None


def test_elections_and_in_sync_sets_are_written_in_batches(cluster: Cluster) -> None:
    """Every partition gets broker 2, which becomes the preferred leader and is elected."""
    everywhere = range(COUNT)
    written_one_by_one(cluster, move(*everywhere, to=(2, 1)), 1)
    image = cluster.world.node.metadata.image
    topic = image.topics["wide"]
    epochs = {broker: image.brokers[BrokerId(broker)].epoch for broker in (1, 2)}
    data = [
        alter_partition.PartitionData(
            partition_index=number,
            leader_epoch=topic.partitions[number].leader_epoch,
            new_isr_with_epochs=[
                BrokerState(broker_id=broker, broker_epoch=epoch)
                for broker, epoch in epochs.items()
            ],
            partition_epoch=topic.partitions[number].partition_epoch,
        )
        for number in everywhere
    ]
    request = AlterPartitionRequest(
        broker_id=1,
        broker_epoch=epochs[1],
        topics=[alter_partition.TopicData(topic_id=topic.topic_id, partitions=data)],
    )
    answer, sizes = written_one_by_one(cluster, request, 3)
    (altered,) = answer.topics
    assert {each.partition_index: each.error_code for each in altered.partitions} == dict.fromkeys(
        everywhere, 0
    )
    assert len(sizes) >= PORTIONS
    cluster.world.turn()
    wanted = [TopicPartitions(topic="wide", partitions=list(everywhere))]
    request_all = ElectLeadersRequest(topic_partitions=wanted, timeout_ms=1000)
    answer, sizes = written_one_by_one(cluster, request_all, 2)
    (elected,) = answer.replica_election_results
    assert {each.partition_id: each.error_code for each in elected.partition_result} == (
        dict.fromkeys(everywhere, 0)
    )
    assert len(sizes) >= PORTIONS
    image = cluster.world.node.metadata.image
    for number in everywhere:
        partition = image.partition(TopicPartition("wide", number))
        assert partition is not None
        assert partition.leader == B


def test_a_request_with_nothing_to_write_takes_a_turn_for_each_batch(cluster: Cluster) -> None:
    """However long it is: decided one inside the other, 15,000 reached Python's limit."""
    world = cluster.world
    everywhere = range(200 * PARTITIONS_PER_MULTI)
    client = world.connect()
    wanted = [TopicPartitions(topic="nowhere", partitions=list(everywhere))]
    client.send(ElectLeadersRequest(topic_partitions=wanted, timeout_ms=1000), 2)
    world.turn()
    assert not client.answers
    world.advance(200)
    [answer] = client.answers
    (elected,) = answer.replica_election_results
    assert {each.partition_id: each.error_code for each in elected.partition_result} == (
        dict.fromkeys(everywhere, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    )


def test_a_batch_that_is_too_large_to_write_is_halved(cluster: Cluster) -> None:
    world = cluster.world
    client = world.connect()
    world.holds_metadata = True
    client.send(move(*range(COUNT)), 1)
    world.turn()
    world.store_error = MultiTooLarge(request_bytes=2_000_000, request_bytes_max=1_000_000)
    world.write_metadata(world.held.popleft())
    world.store_error = None
    moving = []
    while not client.answers:
        world.advance(1)
        world.write_metadata(world.held.popleft())
        world.turn()
        moving.append(len(world.node.metadata.image.topics["wide"].node.adding_replicas))
    world.holds_metadata = False
    assert reassigned(client.answers[0]) == dict.fromkeys(range(COUNT), ErrorCode.NONE)
    half = PARTITIONS_PER_MULTI // 2
    assert moving == [half, *range(2 * half, COUNT + 1, PARTITIONS_PER_MULTI)]


def test_moves_of_large_topics_are_written_in_batches_of_few(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The assignment of a topic is written as a whole, for however few of its partitions."""
    world = cluster.world
    world.create_topic("large", COUNT)
    topics = world.node.metadata.image.topics
    monkeypatch.setattr(
        "strandline.node.handlers.batching.BYTES_PER_MULTI", len(topics["large"].node.encode())
    )
    request = move(0, 1)
    request.topics += [
        ReassignableTopic(name="large", partitions=request.topics[0].partitions),
        *move(2).topics,
    ]
    answer, sizes = written_one_by_one(cluster, request, 1)
    assert [[each.error_code for each in topic.partitions] for topic in answer.responses] == [
        [ErrorCode.NONE] * 2,
        [ErrorCode.NONE] * 3,
    ]
    assert len(sizes) == 2
