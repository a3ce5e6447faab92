"""The controller loop: who is elected, what it does then, and what it does once replaced."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from strandline.cluster.controller.reconciliation import LEADERS_PER_MULTI
from strandline.cluster.store import Changes, SetData, StoreUnavailable
from strandline.cluster.znodes import ControllerEpochNode, ControllerNode
from strandline.errors import ErrorCode
from strandline.node.effects import WriteMetadata
from strandline.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from strandline.protocol.messages.metadata import MetadataRequest
from strandline.types import BrokerId
from tests.current import current
from tests.node.cluster_world import ClusterWorld
from tests.node.messages import batch, produce, produced
from tests.node.world import World


@pytest.fixture
def cluster(make_world: Callable[..., ClusterWorld]) -> ClusterWorld:
    return make_world()


def creation(name: str) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=1000)


def created(answer: Any) -> int:
    (topic,) = answer.topics
    code: int = topic.error_code
    return code


def controllers(world: ClusterWorld) -> list[int]:
    """The running brokers that take themselves for the controller."""
    return [
        int(broker_id)
        for broker_id, machine in world.machines.items()
        if machine.is_up and not machine.is_paused and machine.node.controller_loop.is_controller
    ]


# -- Having it --------------------------------------------------------------------------------


def test_one_broker_is_the_controller_and_all_brokers_name_it(cluster: ClusterWorld) -> None:
    controller = cluster.controller.broker_id
    assert controllers(cluster) == [controller]
    for machine in cluster.machines.values():
        answer = machine.connect().ask(MetadataRequest(topics=[]), 9)
        assert answer.controller_id == controller
        assert {broker.node_id for broker in answer.brokers} == {1, 2, 3}


@pytest.mark.parametrize("seed", range(5))
def test_the_office_passes_on_when_its_holder_dies(
    make_world: Callable[..., ClusterWorld], seed: int
) -> None:
    world = make_world(seed=seed)
    first = world.controller.broker_id
    epoch = world.image.controller_epoch
    world.create_topic("t", (first, 1, 2, 3) if first > 3 else (first, first % 3 + 1))
    world.kill(first)
    world.run_until(world.is_settled)
    assert world.controller.broker_id != first
    assert controllers(world) == [world.controller.broker_id]
    assert world.image.controller_epoch is not None
    assert epoch is not None
    assert world.image.controller_epoch.value == epoch.value + 1
    assert world.partition("t").leader == first % 3 + 1


def test_an_expired_controller_gives_the_office_up(cluster: ClusterWorld) -> None:
    first = cluster.controller
    epoch = first.node.broker_epoch
    first.expire()
    cluster.run_until(lambda: first.node.broker_epoch > epoch)
    cluster.run_until(cluster.is_settled)
    assert controllers(cluster) == [cluster.controller.broker_id]


# -- Losing it --------------------------------------------------------------------------------


def test_r42_a_deposed_controller_stops_to_act(
    cluster: ClusterWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """KAFKA-4447: it finds out when it wakes up, and does nothing that only a controller may."""
    first = cluster.controller
    cluster.create_topic("t", (1, 2, 3))
    cluster.pause(first.broker_id)
    cluster.run_until(lambda: cluster.image.controller not in (None, first.broker_id))
    with caplog.at_level(logging.INFO):
        cluster.resume(first.broker_id)
        cluster.run_until(lambda: not first.node.controller_loop.is_controller)
    assert f"Broker {first.broker_id} is not the controller any more" in caplog.text
    assert created(first.connect().ask(creation("x"), 5)) == ErrorCode.NOT_CONTROLLER
    cluster.run_until(cluster.is_settled)
    assert controllers(cluster) == [cluster.controller.broker_id]
    # Nothing is left of its term that would come due.
    cluster.run(700_000)
    assert controllers(cluster) == [cluster.controller.broker_id]


def successor(world: World, controller: int) -> Changes:
    """Another broker is elected; the node does not hear of it yet."""
    image = world.node.metadata.image
    assert image.controller_epoch is not None
    epoch = ControllerEpochNode(image.controller_epoch.value + 1)
    changes = world.tree.multi(
        [
            SetData(ControllerEpochNode.path, epoch.encode()),
            SetData(ControllerNode.path, ControllerNode(BrokerId(controller)).encode()),
        ]
    ).changes
    assert changes is not None
    return changes


def test_r07_a_superseded_controller_cannot_write(world: World) -> None:
    """KAFKA-6082: every write checks the version of the controller epoch."""
    changes = successor(world, 9)
    before = world.tree.view()
    assert world.node.controller_loop.is_controller
    code = created(world.connect().ask(creation("x"), 5))
    assert code == ErrorCode.NOT_CONTROLLER
    assert world.tree.view() == before
    world.metadata_changed(changes)
    world.turn()
    assert not world.node.controller_loop.is_controller


def test_r42_a_term_of_this_id_that_this_process_did_not_begin_is_not_its_own(world: World) -> None:
    """`/controller` of a former session names the same broker until that session expires."""
    world.metadata_changed(successor(world, 1))
    world.turn()
    assert world.node.metadata.image.controller == 1
    assert not world.node.controller_loop.is_controller


# -- What the controller does -----------------------------------------------------------------


def test_leadership_goes_back_to_preferred_leaders_by_itself(
    make_world: Callable[..., ClusterWorld],
) -> None:
    world = make_world(3, "leader.imbalance.check.interval.seconds=10")
    world.create_topic("t", (1, 2, 3))
    world.kill(1)
    world.run_until(world.is_settled)
    assert world.partition("t").leader == 2
    world.start(1)
    world.run_until(world.is_settled)
    world.run_until(lambda: world.partition("t").leader == 1, ms_max=20_000)
    world.run_until(world.is_settled)


def test_all_leadership_goes_back_however_many_writes_it_takes(
    make_world: Callable[..., ClusterWorld],
) -> None:
    """As soon as few enough partitions are elsewhere, a new rebalance would not begin."""
    world = make_world(3, "leader.imbalance.check.interval.seconds=10")
    world.create_topic("t", *[(1, 2, 3)] * (LEADERS_PER_MULTI + 2))
    assert world.stop(1)
    world.start(1)
    world.run_until(world.is_settled)
    partitions = world.image.topics["t"].partitions
    assert {partitions[number].leader for number in partitions} == {2}
    world.run(20_000)
    partitions = world.image.topics["t"].partitions
    assert {partitions[number].leader for number in partitions} == {1}


def test_leadership_stays_where_it_is_when_balancing_is_off(
    make_world: Callable[..., ClusterWorld],
) -> None:
    world = make_world(
        3, "leader.imbalance.check.interval.seconds=10", "auto.leader.rebalance.enable=false"
    )
    world.create_topic("t", (1, 2, 3))
    world.kill(1)
    world.run_until(world.is_settled)
    world.start(1)
    world.run_until(world.is_settled)
    world.run(60_000)
    assert world.partition("t").leader == 2


def test_an_unclean_election_is_said_aloud(
    make_world: Callable[..., ClusterWorld], caplog: pytest.LogCaptureFixture
) -> None:
    world = make_world()
    controller = world.controller.broker_id
    other, last = (b for b in (1, 2, 3) if b != controller)
    world.create_topic(
        "t", (last, other), unclean_leader_election_enable="true", min_insync_replicas="1"
    )
    world.kill(other, expire=True)
    world.run_until(lambda: world.partition("t").in_sync_replicas == (last,))
    world.kill(last, expire=True)
    world.run_until(lambda: world.partition("t").leader == -1)
    with caplog.at_level(logging.WARNING, "strandline.node.controller_loop"):
        world.start(other)
        world.run_until(lambda: world.partition("t").leader == other)
        world.run(10)
    assert any("t-0" in r.getMessage() for r in caplog.records if r.levelno == logging.WARNING)
    world.run_until(world.is_settled)
    answer = world[other].connect().ask(produce(batch(b"x"), "t", acks=1), 9)
    assert produced(answer).error_code == ErrorCode.NONE


def test_elections_wait_for_a_store_that_is_away(world: World) -> None:
    """The only broker's bounce is repaired as soon as the store writes again."""
    world.store_error = StoreUnavailable("away")
    broker = world.node.metadata.image.brokers[BrokerId(1)]
    epoch = world.replica("orders").leader_epoch
    session = broker.session
    changes = world.tree.expire_session(session).changes
    assert changes is not None
    world.metadata_changed(changes)
    world.advance(10_000)
    assert BrokerId(1) not in world.node.metadata.image.brokers
    assert not current(world.node.controller_loop.is_controller)
    world.store_error = None
    world.advance(3000)
    assert world.node.controller_loop.is_controller
    assert world.replica("orders").leader_epoch > epoch


def test_one_write_of_the_controller_is_under_way_at_a_time(world: World) -> None:
    world.holds_metadata = True
    session = world.node.metadata.image.brokers[BrokerId(1)].session
    changes = world.tree.expire_session(session).changes
    assert changes is not None
    world.metadata_changed(changes)
    seen: list[WriteMetadata] = []
    for _ in range(20):
        world.turn()
        if not world.held:
            break
        assert len(world.held) == 1
        seen.append(world.held.popleft())
        world.write_metadata(seen[-1])
    assert world.node.controller_loop.is_controller
    assert len(seen) == 3  # registration, controller, leader
