"""What clients are told of brokers that do not have the listener by which the clients came.

Such a listener is opened broker by broker while the cluster runs, and others stay closed to the
outside. As in Kafka, no address of another listener is told in its place.
"""

from __future__ import annotations

import pytest

from strandline.errors import ErrorCode
from strandline.protocol.messages.describe_cluster import DescribeClusterRequest
from strandline.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from strandline.protocol.messages.find_coordinator import FindCoordinatorRequest
from strandline.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.node.followers import ALL, B, C, Cluster
from tests.node.messages import batch, fetch, fetched, produce, produced


@pytest.fixture
def cluster() -> Cluster:
    """Broker 1 is asked by a listener that brokers 2 and 3 have; broker 2 loses it, and leads."""
    cluster = Cluster()
    cluster.create_topic()
    cluster.register(B, listener="INTERNAL")
    cluster.set_state(leader=B)
    return cluster


@pytest.mark.parametrize("version", range(14))
def test_metadata_names_no_leader_that_is_not_among_its_brokers(
    cluster: Cluster, version: int
) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="orders")])
    answer = cluster.world.connect().ask(request, version)
    [partition] = answer.topics[0].partitions
    assert {broker.node_id for broker in answer.brokers} == {1, 3}
    unknown = ErrorCode.LISTENER_NOT_FOUND if version >= 6 else ErrorCode.LEADER_NOT_AVAILABLE
    assert (partition.leader_id, partition.error_code) == (-1, unknown)
    assert partition.replica_nodes == (list(ALL) if version else [1, 3])
    assert partition.isr_nodes == (list(ALL) if version else [1, 3])
    assert partition.offline_replicas == ([B] if version >= 5 else [])
    cluster.set_state(leader=C)
    [partition] = cluster.world.connect().ask(request, version).topics[0].partitions
    code = ErrorCode.NONE if version else ErrorCode.REPLICA_NOT_AVAILABLE
    assert (partition.leader_id, partition.error_code) == (C, code)


def test_topics_are_described_without_such_a_leader(cluster: Cluster) -> None:
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="orders")])
    [topic] = cluster.world.connect().ask(request, 0).topics
    [partition] = topic.partitions
    assert (partition.leader_id, partition.error_code) == (-1, ErrorCode.NONE)
    assert (partition.replica_nodes, partition.offline_replicas) == (list(ALL), [B])


def test_the_cluster_is_described_without_it_also_while_it_is_down(cluster: Cluster) -> None:
    client = cluster.world.connect()
    for down in (None, B, C):
        if down is not None:
            cluster.leave(down)
        answer = client.ask(DescribeClusterRequest(include_fenced_brokers=True), 2)
        assert [(each.broker_id, each.is_fenced) for each in answer.brokers] == [
            (1, False),
            (3, down == C),
        ]


@pytest.mark.parametrize("version", [3, 6])
def test_it_is_not_found_as_a_coordinator(cluster: Cluster, version: int) -> None:
    cluster.create_topic("__consumer_offsets")
    client = cluster.world.connect()
    many = FindCoordinatorRequest(coordinator_keys=["g"])
    request = FindCoordinatorRequest(key="g") if version < 4 else many
    for leader, code in ((B, ErrorCode.COORDINATOR_NOT_AVAILABLE), (C, ErrorCode.NONE)):
        cluster.set_state("__consumer_offsets", leader=leader)
        answer = client.ask(request, version)
        found = answer if version < 4 else answer.coordinators[0]
        assert found.error_code == code
        at = (C, "localhost", 9092 + C)
        assert (found.node_id, found.host, found.port) == ((-1, "", -1) if code else at)
        assert (found.error_message or "").endswith("no listener PLAINTEXT." if code else "")


def test_its_address_is_no_hint_for_who_asks_the_wrong_broker(cluster: Cluster) -> None:
    client = cluster.world.connect()
    topic_id = cluster.replica().topic_id
    for leader, known in ((B, []), (C, [C])):
        cluster.set_state(leader=leader)
        told = client.ask(produce(batch(b"x"), topic_id=topic_id), 13)
        read = client.ask(fetch((topic_id, 0, 0), leader_epoch=0), 16)
        [refused] = fetched(read).values()
        for answer, partition, code in (
            (told, produced(told), ErrorCode.NOT_LEADER_OR_FOLLOWER),
            (read, refused, ErrorCode.FENCED_LEADER_EPOCH),
        ):
            assert partition.error_code == code
            assert partition.current_leader.leader_id == leader
            assert [end.node_id for end in answer.node_endpoints] == known
