"""`why` and what is over: a refusal that would not happen any more is told only by its error."""

from __future__ import annotations

import json
from typing import Any

import pytest

from strandline.authorization.acls import (
    AclBinding,
    AclEntry,
    Operation,
    Permission,
    ResourcePattern,
    ResourceType,
)
from strandline.cluster.controller import create_acls
from strandline.cluster.store import Create, Delete, SetData
from strandline.cluster.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from strandline.cluster.znodes import ControllerEpochNode, ControllerNode
from strandline.cluster.znodes.topics import topic_path
from strandline.errors import ErrorCode
from strandline.node import coordinator_loading
from strandline.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from strandline.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from strandline.protocol.messages.find_coordinator import FindCoordinatorRequest
from strandline.protocol.messages.heartbeat import HeartbeatRequest
from strandline.protocol.messages.inspect import InspectRequest
from strandline.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from strandline.protocol.messages.sync_group import SyncGroupRequest
from strandline.types import BrokerId
from tests.node.followers import Cluster
from tests.node.messages import batch, fetch, produce, produced
from tests.node.test_why import commit, coordinate, join, secure, send, why
from tests.node.world import Client, World


def told(world: World, rule: str, **asked: object) -> list[Any]:
    """What is found by one rule."""
    return [each for each in why(world, **asked) if each["rule"] == rule]


def check_over(world: World, rule: str, code: ErrorCode, **asked: object) -> None:
    """It is told by its error alone, as something that is over: nothing has to be done for it."""
    assert told(world, rule, **asked) == []
    found = told(world, rule, error=code.name, **asked)
    assert found
    for each in found:
        assert (each["over"], each["remedy"], each["settings"]) == (True, None, [])
        assert any(code.name in line for line in each["evidence"])


# -- Topics ----------------------------------------------------------------------------------


def ask_for(world: World, name: str) -> None:
    wanted = [MetadataRequestTopic(name=name)]
    world.connect().ask(MetadataRequest(topics=wanted, allow_auto_topic_creation=False), 9)


def test_a_topic_that_exists_by_now_is_not_told_as_unknown(cluster: Cluster) -> None:
    world = cluster.world
    ask_for(world, "late")
    send(cluster, b"m", topic="late")
    causes = {each["about"]: each["cause"] for each in told(world, "unknown-topic", topic="late")}
    assert causes.keys() == {"topic late", "late-0"}
    assert all("there is no such topic" in each for each in causes.values())
    world.create_topic("late")
    assert why(world, topic="late") == why(world) == []
    check_over(world, "unknown-topic", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic="late")


def test_a_partition_that_the_topic_does_not_have_is_told_further_on(world: World) -> None:
    request = produce({("late", 0): batch(b"m"), ("late", 9): batch(b"m")}, acks=1)
    world.connect().ask(request, 9)
    world.create_topic("late", partitions=2)
    (found,) = told(world, "unknown-topic", topic="late")
    assert (found["about"], found["over"]) == ("late-9", False)
    assert found["cause"] == "the topic has the partitions 0 to 1"


def test_a_topic_that_was_unknown_by_its_id_is_known_by_it_now(cluster: Cluster) -> None:
    """This broker had heard of the topic later than the client."""
    world = cluster.world
    topic = world.node.metadata.image.topics["orders"]
    stored = [each for each in world.tree.view().nodes if topic_path("orders") in each.path]
    world.delete_topic("orders")
    world.connect().ask(fetch((topic.topic_id, 0, 0), max_wait_ms=0), 13)
    (found,) = told(world, "unknown-topic")
    assert str(topic.topic_id) in found["about"]
    operations = [Create(each.path, each.data) for each in sorted(stored, key=lambda n: n.path)]
    cluster.write(operations)
    world.turn()
    check_over(world, "unknown-topic", ErrorCode.UNKNOWN_TOPIC_ID)


def test_whether_there_is_what_was_asked_about_is_said(world: World) -> None:
    def known(**asked: object) -> object:
        request = InspectRequest(subject="why", arguments=json.dumps(asked).encode())
        return json.loads(world.connect().ask(request, 0).document)["known"]

    assert known() is None
    assert known(topic="orders") is known(topic="orders", partition=0) is True
    assert known(topic="ordres") is known(topic="orders", partition=7) is False


def test_a_missing_topic_is_told_whatever_error_is_asked_about(world: World) -> None:
    (found,) = why(world, topic="ordres", error="NOT_ENOUGH_REPLICAS")
    assert "did you mean 'orders'?" in found["cause"]
    assert why(world, topic="orders", error="NOT_ENOUGH_REPLICAS") == []


def test_several_apis_that_refuse_for_one_cause_are_told_together(cluster: Cluster) -> None:
    cluster.set_state(leader=2)
    send(cluster, b"m")
    cluster.world.connect().ask(fetch(("orders", 0, 0), max_wait_ms=0), 10)
    (found,) = why(cluster.world, topic="orders")
    assert found["rule"] == "not-leader"
    apis = {line.split()[0] for line in found["evidence"] if "was refused" in line}
    assert apis == {"PRODUCE", "FETCH"}


# -- Leaders, replication --------------------------------------------------------------------


def test_a_broker_that_leads_again_is_not_told_as_one_that_does_not(cluster: Cluster) -> None:
    cluster.set_state(leader=2)
    send(cluster, b"m")
    assert told(cluster.world, "not-leader", topic="orders")
    cluster.set_state(leader=1)
    check_over(cluster.world, "not-leader", ErrorCode.NOT_LEADER_OR_FOLLOWER, topic="orders")


def test_records_that_are_committed_by_now_are_not_told_as_timed_out(cluster: Cluster) -> None:
    send(cluster, b"m", acks=-1)
    (found,) = told(cluster.world, "timed-out", topic="orders")
    assert found["cause"].endswith("may be committed later")
    cluster.fetch(2, 1)
    assert told(cluster.world, "timed-out", topic="orders")
    cluster.fetch(3, 1)
    send(cluster, b"the next one, which is not committed")
    check_over(cluster.world, "timed-out", ErrorCode.REQUEST_TIMED_OUT, topic="orders")


def test_a_deletion_that_takes_long_is_not_told_as_records_that_were_not_replicated(
    cluster: Cluster,
) -> None:
    send(cluster, b"m", acks=-1)
    for follower in (2, 3):
        cluster.fetch(follower, 1)
    partition = DeleteRecordsPartition(partition_index=0, offset=1)
    topics = [DeleteRecordsTopic(name="orders", partitions=[partition])]
    client = cluster.world.connect()
    client.send(DeleteRecordsRequest(topics=topics, timeout_ms=100), 2)
    cluster.world.advance(100)
    (found,) = told(cluster.world, "timed-out", topic="orders")
    assert found["cause"].startswith("not every replica had deleted the records")


def test_a_preferred_leader_that_leads_by_now_is_not_told_as_unavailable(
    cluster: Cluster,
) -> None:
    cluster.set_state(leader=2, isr=(2, 3))
    wanted = [TopicPartitions(topic="orders", partitions=[0])]
    cluster.world.connect().ask(ElectLeadersRequest(topic_partitions=wanted), 2)
    (found,) = told(cluster.world, "election-refused", topic="orders", partition=0)
    assert found["about"] == "orders-0"
    assert "leader 2, preferred 1, in sync [2, 3]" in found["evidence"]
    cluster.set_state(leader=1, isr=(1, 2, 3))
    check_over(cluster.world, "election-refused", ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)


def test_the_controller_is_not_told_as_a_broker_that_is_not(cluster: Cluster) -> None:
    world = cluster.world
    epoch = world.node.metadata.image.controller_epoch
    assert epoch is not None
    cluster.write(
        [
            SetData(ControllerEpochNode.path, ControllerEpochNode(epoch.value + 1).encode()),
            SetData(ControllerNode.path, ControllerNode(BrokerId(2)).encode()),
        ]
    )
    world.connect().ask(ElectLeadersRequest(topic_partitions=None), 2)
    (found,) = told(world, "no-controller")
    assert found["cause"] == "this broker is not the controller; broker 2 is"
    cluster.write([Delete(ControllerNode.path)])
    world.turn()
    assert world.node.controller_loop.is_controller
    check_over(world, "no-controller", ErrorCode.NOT_CONTROLLER)


# -- Groups ----------------------------------------------------------------------------------


def test_a_group_that_is_stable_again_is_not_told_as_rebalancing(cluster: Cluster) -> None:
    coordinate(cluster)
    first, second = cluster.world.connect(), cluster.world.connect()
    first.send(join(), 2)
    cluster.world.advance(10_000)
    (member,) = first.answers

    def sync(client: Client, joined: Any) -> None:
        request = SyncGroupRequest(
            group_id="g", generation_id=joined.generation_id, member_id=joined.member_id
        )
        assert client.ask(request, 2).error_code == 0

    sync(first, member)
    second.send(join(), 2)
    cluster.world.turn()
    beat = HeartbeatRequest(
        group_id="g", member_id=member.member_id, generation_id=member.generation_id
    )
    assert first.ask(beat, 4).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    causes = [each["cause"] for each in told(cluster.world, "rebalancing", group="g")]
    assert "members were told that the group rebalances" in causes
    first.send(join(member.member_id), 2)
    cluster.world.turn()
    sync(first, first.answers[-1])
    sync(second, second.answers[-1])
    check_over(cluster.world, "rebalancing", ErrorCode.REBALANCE_IN_PROGRESS, group="g")


def test_a_coordinator_that_is_loaded_is_not_told_as_loading(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinate(cluster)
    commit(cluster)
    commit(cluster)
    monkeypatch.setattr(coordinator_loading, "_RECORDS_PER_STEP", 1)
    cluster.world.restart()
    answer = cluster.world.connect().ask(join(), 2)
    assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert told(cluster.world, "coordinator-loading", group="g")
    cluster.world.advance(10_000)
    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    check_over(cluster.world, "coordinator-loading", code, group="g")


def find(cluster: Cluster, key: str, key_type: int, version: int) -> int:
    """The error of a request for a coordinator."""
    request = FindCoordinatorRequest(key=key, key_type=key_type)
    if version >= 4:
        request = FindCoordinatorRequest(coordinator_keys=[key], key_type=key_type)
    answer = cluster.world.connect().ask(request, version)
    return int(answer.coordinators[0].error_code if version >= 4 else answer.error_code)


@pytest.mark.parametrize("version", [2, 4])
@pytest.mark.parametrize(
    ("key_type", "topic", "about"),
    [(0, CONSUMER_OFFSETS, "group mine"), (1, TRANSACTION_STATE, "transactional id mine")],
)
def test_a_coordinator_that_is_there_by_now_is_not_told_as_missing(
    cluster: Cluster, key_type: int, topic: str, about: str, version: int
) -> None:
    cluster.create_topic(topic, (2, 3))
    cluster.leave(BrokerId(2))
    cluster.leave(BrokerId(3))
    assert find(cluster, "mine", key_type, version) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    found = told(cluster.world, "no-coordinator")
    assert about in {each["about"] for each in found}
    cluster.register(BrokerId(2))
    cluster.set_state(topic, leader=2, isr=(2,))
    assert find(cluster, "mine", key_type, version) == 0
    check_over(cluster.world, "no-coordinator", ErrorCode.COORDINATOR_NOT_AVAILABLE)


def test_a_coordinator_that_cannot_store_anything_is_told_further_on(cluster: Cluster) -> None:
    cluster.create_topic(CONSUMER_OFFSETS, (2, 1), min_insync_replicas="2")
    cluster.leave(BrokerId(2))
    assert find(cluster, "mine", 0, 4) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    cluster.set_state(CONSUMER_OFFSETS, leader=1, isr=(1,))
    about = {each["about"] for each in told(cluster.world, "no-coordinator")}
    assert about == {"group mine", f"{CONSUMER_OFFSETS}-0"}


def test_a_broker_that_coordinates_by_now_is_not_told_as_another_one(cluster: Cluster) -> None:
    cluster.create_topic(CONSUMER_OFFSETS, (2, 1))
    request = HeartbeatRequest(group_id="g", member_id="m", generation_id=1)
    answer = cluster.world.connect().ask(request, 4)
    assert answer.error_code == ErrorCode.NOT_COORDINATOR
    (found,) = told(cluster.world, "no-coordinator", group="g")
    assert found["cause"] == "another broker coordinates the group"
    cluster.set_state(CONSUMER_OFFSETS, leader=1)
    check_over(cluster.world, "no-coordinator", ErrorCode.NOT_COORDINATOR, group="g")


# -- Permissions -----------------------------------------------------------------------------


def test_a_permission_that_was_given_since_is_not_told_as_lacking(cluster: Cluster) -> None:
    world = cluster.world
    client = secure(cluster)
    client.ask(produce(batch(b"a"), "orders", acks=1), 9)
    assert told(world, "topic-permission", topic="orders")
    image = world.node.metadata.image
    entry = AclEntry("User:alice", "*", Operation.WRITE, Permission.ALLOW)
    orders = ResourcePattern(ResourceType.TOPIC, "orders")
    cluster.write(create_acls(image, [AclBinding(orders, entry)]).operations)
    assert produced(client.ask(produce(batch(b"a"), "orders", acks=1), 9)).error_code == 0
    assert told(world, "topic-permission") == []
    (found,) = told(world, "topic-permission", error="TOPIC_AUTHORIZATION_FAILED")
    assert found["over"]
    assert found["cause"].startswith(
        "User:alice at test-host lacked Write of Topic 'orders', and has it now: "
    )
