"""Nodes of the metadata store that cannot be read when a broker starts."""

from __future__ import annotations

import pytest

from strandline.cluster.controller.topic_writes import topic_creation
from strandline.cluster.store import NO_SESSION, Create, Delete, MalformedNode, Operation, SetData
from strandline.cluster.znodes import (
    ConfigResource,
    ResourceKind,
    TopicNode,
    deletion_path,
    partition_path,
    partitions_path,
    state_path,
    topic_path,
)
from strandline.errors import ErrorCode
from strandline.node.log_directories import UNKNOWN_EPOCH
from strandline.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from strandline.types import NO_TOPIC_ID, BrokerId, TopicPartition
from tests.node.cluster_world import ClusterWorld
from tests.node.messages import batch, fetch, produce, produced, values
from tests.node.test_start_up import Driver
from tests.node.world import World

T0 = TopicPartition("orders", 0)
SETTINGS = ConfigResource(ResourceKind.TOPIC, "orders").path


def change(world: World, *operations: Operation) -> None:
    """Another program writes."""
    changes = world.tree.multi(operations).changes
    assert changes is not None
    world.metadata_changed(changes)
    world.turn()


def test_a_partition_whose_state_cannot_be_read_waits_and_loses_nothing(world: World) -> None:
    world.create_topic("others")
    world.connect().ask(produce(batch(b"a"), "orders"), 9)
    state = world.node.metadata.image.topics["orders"].states[0].value.encode()
    change(world, SetData(state_path(T0), state[:-1]))
    world.restart()
    client = world.connect()
    assert produced(client.ask(produce(batch(b"b"), "others"), 9)).error_code == ErrorCode.NONE
    assert not values(client.ask(fetch(("orders", 0, 0)), 11))
    change(world, SetData(state_path(T0), state))
    assert values(world.connect().ask(fetch(("orders", 0, 0)), 11)) == [b"a"]


def test_a_topic_whose_settings_cannot_be_read_keeps_all_records() -> None:
    world = World("log.retention.ms=1000", "log.cleanup.policy=compact")
    world.create_topic("orders")
    change(world, Create(SETTINGS, b"oops"))
    world.restart()
    config = world.replica("orders").log.config
    assert config.cleanup_policies == frozenset(), "nothing is ever removed"
    assert not config.unclean_leader_election_enable
    change(world, SetData(SETTINGS, b'{"version":1,"config":{"retention.ms":"7"}}'))
    assert world.replica("orders").log.config.retention_ms == 7


def test_the_settings_told_are_those_followed_while_the_stored_ones_cannot_be_read() -> None:
    world = World()
    world.create_topic("orders")
    change(world, Create(SETTINGS, b"oops"))
    world.restart()
    resource = DescribeConfigsResource(resource_type=2, resource_name="orders")
    (result,) = world.connect().ask(DescribeConfigsRequest(resources=[resource]), 4).results
    told = {each.name: each.value for each in result.configs if each.config_source == 1}
    assert told == {
        "cleanup.policy": "",
        "min.insync.replicas": "2147483647",
        "retention.bytes": "-1",
        "retention.ms": "-1",
        "unclean.leader.election.enable": "false",
    }
    answer = world.connect().ask(produce(batch(b"a"), "orders"), 9)
    assert produced(answer).error_code == ErrorCode.NONE, "its only replica is enough"


def test_acks_all_means_all_replicas_while_the_settings_cannot_be_read() -> None:
    """How many the topic asked for is not known; the leader and the controller ask for no fewer."""
    world = ClusterWorld(3, "auto.leader.rebalance.enable=false")
    world.create_topic("orders", (1, 2, 3), min_insync_replicas="2")
    settings = world.image.configs[ConfigResource(ResourceKind.TOPIC, "orders")].value.encode()
    world.store.apply([SetData(SETTINGS, b"oops")], NO_SESSION)
    for broker_id in (1, 2, 3):
        world.restart(broker_id)
        world.run_until(world.is_settled)
    assert set(world.partition("orders").in_sync_replicas) == {1, 2, 3}

    def write(value: bytes) -> int:
        answer = world.leader_of("orders").connect().ask(produce(batch(value), "orders"), 9)
        return ErrorCode(produced(answer).error_code)

    assert write(b"a") == ErrorCode.NONE
    away = next(each for each in (1, 2, 3) if each != world.leader_of("orders").broker_id)
    world.kill(away, expire=True)
    world.run_until(lambda: len(world.partition("orders").in_sync_replicas) == 2)
    assert world.partition("orders").elr == (away,)
    world.run(100)
    assert write(b"b") == ErrorCode.NOT_ENOUGH_REPLICAS
    world.store.apply([SetData(SETTINGS, settings)], NO_SESSION)
    world.run_until(lambda: not world.partition("orders").elr)
    world.run(100)
    assert write(b"b") == ErrorCode.NONE
    world.check()


def test_a_broker_starts_beside_what_it_can_do_without(caplog: pytest.LogCaptureFixture) -> None:
    driver = Driver()
    driver.run()
    driver.start_up.directories.abandon()
    node = TopicNode("orders", NO_TOPIC_ID, {0: (BrokerId(1),)})
    driver.tree.multi([*topic_creation(node, {}), Create(partition_path(T0))])
    paths = (SETTINGS, "/config/groups/g", state_path(T0), "/brokers/ids/9")
    driver.tree.multi([Create(path, b"oops") for path in paths])
    again = Driver(files=driver.files)
    again.tree = driver.tree
    again.run()
    again.start_up.make_node(())
    for path in paths:
        assert f"The content of the metadata node {path!r} is unusable" in caplog.text
    assert "Set its content right, for example with zkCli.sh" in caplog.text


@pytest.mark.parametrize(
    "path", [topic_path("orders"), "/config/brokers/1", "/kafka-acl/Topic/orders"]
)
def test_a_broker_does_not_start_without_what_keeps_records_and_secrets(path: str) -> None:
    driver = Driver()
    driver.run()
    driver.start_up.directories.abandon()
    driver.tree.multi([Create(path, b"oops")])
    again = Driver(files=driver.files)
    again.tree = driver.tree
    with pytest.raises(MalformedNode, match=f"{path}.* before it is set right"):
        again.run()


def test_a_log_that_was_removed_counts_for_nothing_once_its_state_can_be_read() -> None:
    world = ClusterWorld(
        3, "auto.leader.rebalance.enable=false", "controlled.shutdown.enable=false"
    )
    world.create_topic("orders", (1, 2, 3))
    late = next(each for each in (2, 3) if each != world.controller.broker_id)
    state = world.image.topics["orders"].states[0].value.encode()
    assert world.stop(late)
    world.store.apply([SetData(state_path(T0), b"oops")], NO_SESSION)
    (directory,) = world[late].config.log_dirs
    world[late].disk.files.remove_tree(f"{directory}/orders-0")
    world.start(late)
    world.run_until(lambda: late in world.image.brokers)
    assert world.image.brokers[BrokerId(late)].previous_epoch == UNKNOWN_EPOCH
    world.store.apply([SetData(state_path(T0), state)], NO_SESSION)
    world.run_until(world.is_settled)
    assert set(world.partition("orders").in_sync_replicas) == {1, 2, 3}
    world.check()


def test_a_deletion_that_the_store_refuses_holds_up_no_other(world: World) -> None:
    names = ("orders", "others", "rest")
    for name in names[1:]:
        world.create_topic(name)
    foreign = f"{partitions_path('orders')}/foreign"
    change(world, Create(foreign), *(Create(deletion_path(name)) for name in names))
    world.advance(1000)
    image = world.node.metadata.image
    assert image.topics.keys() == image.requested_deletions.keys() == {"orders"}
    change(world, Delete(foreign))
    world.advance(1000)
    assert not world.node.metadata.image.topics
