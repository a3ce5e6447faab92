"""Administration of several brokers: elections, moves, descriptions, and who answers what."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from strandline.cluster.controller import ElectionKind
from strandline.errors import ErrorCode
from strandline.protocol.messages.alter_partition import AlterPartitionRequest
from strandline.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from strandline.protocol.messages.api_versions import ApiVersionsRequest
from strandline.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from strandline.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from strandline.protocol.messages.delete_topics import DeleteTopicsRequest
from strandline.protocol.messages.describe_cluster import DescribeClusterRequest
from strandline.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from strandline.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from strandline.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from strandline.protocol.messages.init_producer_id import InitProducerIdRequest
from strandline.protocol.messages.inspect import InspectRequest
from strandline.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from strandline.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from strandline.protocol.messages.unregister_broker import UnregisterBrokerRequest
from tests.node.cluster_world import ClusterWorld
from tests.node.messages import batch, produce


@pytest.fixture
def world() -> Iterator[ClusterWorld]:
    world = ClusterWorld(4, "auto.leader.rebalance.enable=false")
    yield world
    world.check()


def ask_controller(world: ClusterWorld, message: object, version: int) -> Any:
    return world.controller.connect().ask(message, version)


def other_than(world: ClusterWorld, *brokers: int) -> int:
    return next(broker for broker in (1, 2, 3, 4) if broker not in brokers)


# -- Who answers ------------------------------------------------------------------------------


def test_only_the_controller_changes_topics_and_moves_replicas(world: ClusterWorld) -> None:
    world.create_topic("t", (1, 2, 3))
    client = world[other_than(world, world.controller.broker_id)].connect()
    topic = CreatableTopic(name="x", num_partitions=1, replication_factor=1)
    answer = client.ask(CreateTopicsRequest(topics=[topic]), 7)
    assert [item.error_code for item in answer.topics] == [ErrorCode.NOT_CONTROLLER]
    answer = client.ask(DeleteTopicsRequest(topic_names=["t"]), 5)
    assert [item.error_code for item in answer.responses] == [ErrorCode.NOT_CONTROLLER]
    more = CreatePartitionsTopic(name="t", count=3, assignments=None)
    answer = client.ask(CreatePartitionsRequest(topics=[more]), 3)
    assert [item.error_code for item in answer.results] == [ErrorCode.NOT_CONTROLLER]
    assert client.ask(reassignment((1, 2, 4)), 1).error_code == ErrorCode.NOT_CONTROLLER
    assert client.ask(AlterPartitionRequest(), 3).error_code == ErrorCode.NOT_CONTROLLER
    wanted = [TopicPartitions(topic="t", partitions=[0])]
    election = ElectLeadersRequest(topic_partitions=wanted)
    assert client.ask(election, 2).error_code == ErrorCode.NOT_CONTROLLER
    # Version 0 has no place for an error of the whole request.
    (old,) = client.ask(election, 0).replica_election_results
    assert [item.error_code for item in old.partition_result] == [ErrorCode.NOT_CONTROLLER]


def test_c10_every_broker_creates_topics_that_are_used(world: ClusterWorld) -> None:
    """In the answer to the very request, where Kafka says "unknown" the first time."""
    client = world[other_than(world, world.controller.broker_id)].connect()
    topic = MetadataRequestTopic(name="fresh")
    answer = client.ask(MetadataRequest(topics=[topic], allow_auto_topic_creation=True), 9)
    (found,) = answer.topics
    assert found.error_code == ErrorCode.NONE
    assert found.partitions[0].leader_id in (1, 2, 3, 4)


def test_two_brokers_give_out_different_producer_ids(world: ClusterWorld) -> None:
    taken = [
        world[broker].connect().ask(InitProducerIdRequest(transactional_id=None), 4).producer_id
        for broker in (1, 2, 3, 4, 1, 2)
    ]
    assert len(set(taken)) == 6


def test_what_brokers_ask_each_other_is_not_advertised(world: ClusterWorld) -> None:
    request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    answer = world[1].connect().ask(request, 3)
    keys = {item.api_key for item in answer.api_keys}
    assert {43, 45, 46} <= keys
    assert 56 not in keys


# -- Elections --------------------------------------------------------------------------------


def elected(answer: Any) -> dict[tuple[str, int], int]:
    assert answer.error_code == ErrorCode.NONE
    return {
        (topic.topic, item.partition_id): item.error_code
        for topic in answer.replica_election_results
        for item in topic.partition_result
    }


def test_preferred_leaders_are_elected_on_request(world: ClusterWorld) -> None:
    world.create_topic("t", (1, 2, 3), (2, 3, 1))
    world.kill(1, expire=True)
    world.run_until(lambda: world.partition("t").leader == 2)
    world.run_until(world.is_settled)
    everything = ElectLeadersRequest(topic_partitions=None)
    assert elected(ask_controller(world, everything, 2)) == {
        ("t", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    }
    world.start(1)
    world.run_until(lambda: set(world.partition("t").in_sync_replicas) == {1, 2, 3})
    world.run_until(world.is_settled)
    assert elected(ask_controller(world, everything, 2)) == {("t", 0): ErrorCode.NONE}
    assert world.partition("t").leader == 1
    named = [
        TopicPartitions(topic="t", partitions=[0, 1]),
        TopicPartitions(topic="x", partitions=[0]),
    ]
    answer = ask_controller(world, ElectLeadersRequest(topic_partitions=named), 1)
    assert elected(answer) == {
        ("t", 0): ErrorCode.ELECTION_NOT_NEEDED,
        ("t", 1): ErrorCode.ELECTION_NOT_NEEDED,
        ("x", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_a_crashed_replica_leads_only_after_an_unclean_election_is_requested(
    world: ClusterWorld,
) -> None:
    """Also where one replica in sync is enough (note 0007, D-12)."""
    world.create_topic("t", (1, 2))
    world.kill(2, expire=True)
    world.kill(1, expire=True)
    world.start(2)
    world.run_until(lambda: world.partition("t").last_known_elr == (2,))
    state = world.partition("t")
    assert (state.leader, state.in_sync_replicas) == (-1, (1,))
    world.run(100)  # until all have heard
    about = json.dumps({"topic": "t"}).encode()
    told = ask_controller(world, InspectRequest(subject="why", arguments=about), 0)
    (finding,) = [
        found for found in json.loads(told.document)["findings"] if found["rule"] == "no-leader"
    ]
    assert finding["cause"] == "only broker 1 may lead without loss, and none can"
    assert "broker 2 restarted uncleanly, and may lack records" in finding["evidence"]
    assert finding["remedy"] == (
        "Start broker 1. If its data is lost for good: `strandline topics elect t:0 --unclean`, "
        "which may lose committed records."
    )
    wanted = [TopicPartitions(topic="t", partitions=[0])]
    answer = ask_controller(
        world, ElectLeadersRequest(election_type=ElectionKind.UNCLEAN, topic_partitions=wanted), 2
    )
    assert elected(answer) == {("t", 0): ErrorCode.NONE}
    state = world.partition("t")
    assert (state.leader, state.in_sync_replicas, state.last_known_elr) == (2, (2,), ())


def test_c15_an_election_without_a_time_out_is_carried_out_and_told(world: ClusterWorld) -> None:
    """Kafka answers REQUEST_TIMED_OUT and elects afterwards."""
    world.create_topic("t", (1, 2, 3))
    world.kill(1, expire=True)
    world.run_until(lambda: world.partition("t").leader == 2)
    world.start(1)
    world.run_until(lambda: set(world.partition("t").in_sync_replicas) == {1, 2, 3})
    world.run_until(world.is_settled)
    request = ElectLeadersRequest(topic_partitions=None, timeout_ms=0)
    assert elected(ask_controller(world, request, 2)) == {("t", 0): ErrorCode.NONE}
    assert world.partition("t").leader == 1


def test_an_unknown_kind_of_election_is_refused(world: ClusterWorld) -> None:
    answer = ask_controller(world, ElectLeadersRequest(election_type=7), 2)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_elections_for_many_partitions_are_decided_in_batches(
    world: ClusterWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.node.handlers.batching.PARTITIONS_PER_MULTI", 2)
    world.create_topic("t", *[(1, 2)] * 5)
    world.kill(1, expire=True)
    world.run_until(lambda: world.partition("t", 4).leader == 2)
    world.start(1)
    world.run_until(
        lambda: all(len(world.partition("t", n).in_sync_replicas) == 2 for n in range(5))
    )
    world.run_until(world.is_settled)
    answer = ask_controller(world, ElectLeadersRequest(topic_partitions=None), 2)
    assert elected(answer) == {("t", number): ErrorCode.NONE for number in range(5)}
    assert {world.partition("t", number).leader for number in range(5)} == {1}


# -- Moves ------------------------------------------------------------------------------------


def reassignment(replicas: tuple[int, ...] | None) -> AlterPartitionReassignmentsRequest:
    partition = ReassignablePartition(
        partition_index=0, replicas=None if replicas is None else list(replicas)
    )
    return AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name="t", partitions=[partition])]
    )


def reassigned(answer: Any) -> int:
    assert answer.error_code == ErrorCode.NONE
    code: int = answer.responses[0].partitions[0].error_code
    return code


def test_replicas_move_with_all_records(world: ClusterWorld) -> None:
    world.create_topic("t", (1, 2, 3))
    world[1].connect().ask(produce(batch(b"a", b"b"), "t"), 9)
    assert reassigned(ask_controller(world, reassignment((4, 3, 2)), 1)) == ErrorCode.NONE
    world.run_until(lambda: set(world.partition("t").replicas) == {2, 3, 4})
    world.run_until(world.is_settled)
    state = world.partition("t")
    assert (state.adding, state.removing) == ((), ())
    assert world.offsets(4, "t") == (2, 2)
    world.run_until(lambda: world.are_logs_equal("t"))
    # The broker that has to give it up deletes its log.
    world.run_until(
        lambda: not [r for r in world[1].node.replicas if r.topic_partition.topic == "t"]
    )


def test_a_move_is_listed_and_can_be_cancelled(world: ClusterWorld) -> None:
    world.create_topic("t", (1, 2))
    free = next(broker for broker in (3, 4) if broker != world.controller.broker_id)
    world.kill(free)
    assert reassigned(ask_controller(world, reassignment((1, free)), 1)) == ErrorCode.NONE
    for broker in {1, 2, 3, 4} - {free}:
        world.run(50)
        answer = world[broker].connect().ask(ListPartitionReassignmentsRequest(topics=None), 0)
        ((topic, moves),) = [(item.name, item.partitions) for item in answer.topics]
        assert topic == "t"
        assert [(m.partition_index, m.adding_replicas, m.removing_replicas) for m in moves] == [
            (0, [free], [2])
        ]
    elsewhere = ListPartitionReassignmentsTopics(name="t", partition_indexes=[7])
    answer = world[1].connect().ask(ListPartitionReassignmentsRequest(topics=[elsewhere]), 0)
    assert not answer.topics
    assert reassigned(ask_controller(world, reassignment(None), 1)) == ErrorCode.NONE
    code = reassigned(ask_controller(world, reassignment(None), 1))
    assert code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert set(world.partition("t").replicas) == {1, 2}


def test_a_move_to_a_broker_that_is_not_there_is_refused(world: ClusterWorld) -> None:
    world.create_topic("t", (1, 2))
    code = reassigned(ask_controller(world, reassignment((1, 9)), 1))
    assert code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_change_of_the_number_of_replicas_can_be_excluded(world: ClusterWorld) -> None:
    world.create_topic("t", (1, 2))
    request = reassignment((1, 2, 3))
    request.allow_replication_factor_change = False
    answer = ask_controller(world, request, 1)
    assert reassigned(answer) == ErrorCode.INVALID_REPLICATION_FACTOR
    told = answer.responses[0].partitions[0].error_message
    assert told == "The replication factor is changed from 2 to 3"  # C-16: in Kafka's words


# -- Descriptions -----------------------------------------------------------------------------


def test_dead_replicas_and_eligible_leaders_are_shown(world: ClusterWorld) -> None:
    world.create_topic("t", (1, 2), min_insync_replicas="2")
    controller = world.controller.broker_id
    for broker in (1, 2):
        world.kill(broker, expire=True)
        world.run(3000)
    alive = other_than(world, 1, 2, controller) if controller in (3, 4) else 3
    client = world[alive].connect()
    state = world.partition("t")
    assert state.leader == -1
    (topic,) = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 9).topics
    (partition,) = topic.partitions
    assert partition.error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert partition.offline_replicas == [1, 2]
    asked = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")])
    (topic,) = client.ask(asked, 0).topics
    (partition,) = topic.partitions
    assert (partition.error_code, partition.leader_id) == (ErrorCode.NONE, -1)  # as Kafka's
    assert partition.isr_nodes == list(state.in_sync_replicas)
    assert partition.eligible_leader_replicas == list(state.elr)
    assert state.elr
    assert partition.offline_replicas == [1, 2]


@pytest.mark.parametrize("version", range(14))
def test_names_that_no_topic_can_have_are_told_apart_from_unknown_ones(
    world: ClusterWorld, version: int
) -> None:
    """Also where the topic is not to be created, and in DescribeTopicPartitions."""
    client = world.controller.connect()
    names = {
        "a b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "x" * 250: ErrorCode.INVALID_TOPIC_EXCEPTION,
        "..": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    asked = [MetadataRequestTopic(name=name) for name in names]
    for creates in (True, False) if version >= 4 else (True,):
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=creates)
        answer = client.ask(request, version)
        assert {topic.name: topic.error_code for topic in answer.topics} == names
    names["missing"] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    described = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in names])
    assert {each.name: each.error_code for each in client.ask(described, 0).topics} == names


@pytest.mark.parametrize("version", range(10))
def test_metadata_in_version_0_says_that_a_replica_is_not_available(
    world: ClusterWorld, version: int
) -> None:
    """It names those that are, as Kafka does; later versions name all."""
    world.create_topic("t", (1, 2), (3, 4))
    world.kill(2, expire=True)
    world.run_until(world.is_settled)
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    (topic,) = world[other_than(world, 2)].connect().ask(request, version).topics
    found = {
        each.partition_index: (each.error_code, each.leader_id, each.replica_nodes, each.isr_nodes)
        for each in topic.partitions
    }
    expected = (ErrorCode.NONE, 1, [1, 2], [1])
    if version == 0:
        expected = (ErrorCode.REPLICA_NOT_AVAILABLE, 1, [1], [1])
    assert found == {0: expected, 1: (ErrorCode.NONE, 3, [3, 4], [3, 4])}
    world.kill(1, expire=True)
    world.run_until(lambda: world.partition("t").leader == -1)
    world.run(100)  # until all have heard
    (topic,) = world[3].connect().ask(request, version).topics
    (first, _) = sorted(topic.partitions, key=lambda each: each.partition_index)
    assert (first.error_code, first.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert first.replica_nodes == ([] if version == 0 else [1, 2])


def test_c13_brokers_that_are_down_are_described_to_who_asks_for_them(world: ClusterWorld) -> None:
    down = other_than(world, world.controller.broker_id)
    world.kill(down, expire=True)
    world.run_until(world.is_settled)
    client = world.controller.connect()
    answer = client.ask(DescribeClusterRequest(), 2)
    assert down not in {broker.broker_id for broker in answer.brokers}
    answer = client.ask(DescribeClusterRequest(include_fenced_brokers=True), 2)
    assert {(b.broker_id, b.host, b.is_fenced) for b in answer.brokers} == {
        (number, f"broker-{number}", number == down) for number in (1, 2, 3, 4)
    }


def test_a_broker_that_is_gone_for_good_is_unregistered_until_it_comes_back(
    world: ClusterWorld,
) -> None:
    down = other_than(world, world.controller.broker_id)
    any_broker = other_than(world, world.controller.broker_id, down)
    client = world[any_broker].connect()
    code = client.ask(UnregisterBrokerRequest(broker_id=down), 0).error_code
    assert code == ErrorCode.INVALID_REQUEST
    world.kill(down, expire=True)
    world.run_until(world.is_settled)
    request = UnregisterBrokerRequest(broker_id=down)
    codes = [client.ask(request, 0).error_code for _ in range(2)]
    assert codes == [ErrorCode.NONE, ErrorCode.BROKER_ID_NOT_REGISTERED]
    assert down not in world.image.registrations
    world.start(down)
    world.run_until(lambda: down in world.image.brokers)
    assert down in world.image.registrations


def test_the_cluster_is_described_alike_by_all(world: ClusterWorld) -> None:
    answers = [
        machine.connect().ask(DescribeClusterRequest(), 1) for machine in world.machines.values()
    ]
    assert {answer.controller_id for answer in answers} == {world.controller.broker_id}
    for answer in answers:
        assert {(b.broker_id, b.host) for b in answer.brokers} == {
            (number, f"broker-{number}") for number in (1, 2, 3, 4)
        }


def test_log_directories_show_followed_partitions_too(world: ClusterWorld) -> None:
    world.create_topic("t", (1, 2))
    world[1].connect().ask(produce(batch(b"a"), "t"), 9)
    sizes = []
    for broker in (1, 2):
        (result,) = world[broker].connect().ask(DescribeLogDirsRequest(topics=None), 4).results
        (topic,) = result.topics
        sizes.append(topic.partitions[0].partition_size)
    assert sizes[0] == sizes[1] > 0
