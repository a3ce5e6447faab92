"""Registration, its loss and return, and leaving in good order."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from strandline.cluster.image import BrokerImage
from strandline.cluster.store import Delete, Operation, SetData
from strandline.errors import ErrorCode
from strandline.types import BrokerId
from tests.current import current
from tests.node.cluster_world import ClusterWorld
from tests.node.messages import batch, produce, produced
from tests.node.world import World


@pytest.fixture
def world(make_world: Callable[..., ClusterWorld]) -> ClusterWorld:
    return make_world()


def test_a_node_registers_itself_and_knows_its_epoch(world: ClusterWorld) -> None:
    for broker_id, machine in world.machines.items():
        assert machine.node.membership.is_registered
        assert machine.node.broker_epoch == world.image.brokers[broker_id].epoch > 0


def test_an_expired_session_is_followed_by_a_registration_that_lost_nothing(
    world: ClusterWorld,
) -> None:
    world.create_topic("t", (1, 2, 3))
    before = world[1].node.broker_epoch
    world[1].expire()
    world.run_until(lambda: world[1].node.broker_epoch > before)
    assert world.image.brokers[BrokerId(1)].previous_epoch == before
    second = world[1].node.broker_epoch
    world[1].expire()
    world.run_until(lambda: world[1].node.broker_epoch > second)
    # Nothing was lost since the *first* one, whichever of them the controller had seen.
    assert world.image.brokers[BrokerId(1)].previous_epoch == before
    after = world[1].node.broker_epoch
    assert world[1].node.membership.lives == ((before, after),)
    world.run_until(lambda: world.partition("t").in_sync_epochs.get(BrokerId(1)) == after)
    world.run_until(world.is_settled)
    answer = world.leader_of("t").connect().ask(produce(batch(b"x"), "t"), 9)
    assert produced(answer).error_code == ErrorCode.NONE


def test_r08_a_bounce_between_two_looks_is_noticed(world: ClusterWorld) -> None:
    """KAFKA-7235, KIP-380: a registration that was replaced at once is still another one."""
    world.create_topic("t", (1, 2, 3))
    world.pause(world.controller.broker_id)
    bounced = next(b for b in (1, 2, 3) if not world[b].is_paused)
    old = world.image.brokers[BrokerId(bounced)].epoch
    world[bounced].expire()
    world.run_until(lambda: world[bounced].node.broker_epoch > old)
    paused = next(b for b in (1, 2, 3) if world[b].is_paused)
    world.resume(paused)
    new = world[bounced].node.broker_epoch
    world.run_until(lambda: world.partition("t").in_sync_epochs.get(BrokerId(bounced)) == new)
    world.run_until(world.is_settled)


def test_a_stale_leadership_is_not_taken_up_after_a_restart(world: ClusterWorld) -> None:
    world.create_topic("t", (1, 2, 3))
    epoch = world.partition("t").leader_epoch
    world.kill(1, expire=True)
    world.start(1)

    def is_elected_anew() -> bool:
        for replica in world[1].node.replicas if world[1].is_up else ():
            assert not replica.is_leading or replica.leader_epoch > epoch
        return world.partition("t").leader_epoch > epoch

    world.run_until(is_elected_anew)
    world.run_until(world.is_settled)
    assert world.replica(1, "t").leader_epoch > epoch


def test_a_stopping_broker_gives_its_leadership_away_first(world: ClusterWorld) -> None:
    world.create_topic("t", (1, 2, 3))
    node = world[1].node
    began_ms = world.schedule.now_ms
    world[1].event(lambda _, now: node.begin_shutdown(now))
    assert not node.is_shutdown_complete
    world.run_until(lambda: node.is_shutdown_complete)
    assert world.schedule.now_ms - began_ms < 100
    state = world.partition("t")
    assert state.leader == 2
    assert 1 not in state.in_sync_replicas
    assert world.image.brokers[BrokerId(1)].is_shutting_down


def test_r33_a_stopping_broker_does_not_come_back_into_the_in_sync_set(
    world: ClusterWorld,
) -> None:
    """KAFKA-14140, KIP-841: it still fetches, and is caught up, but is about to go."""
    world.create_topic("t", (2, 1, 3))
    node = world[1].node
    world[1].event(lambda _, now: node.begin_shutdown(now))
    world.run_until(lambda: 1 not in world.partition("t").in_sync_replicas)
    for _ in range(10):
        world[2].connect().ask(produce(batch(b"x"), "t"), 9)
        world.run(500)
        assert world.replica(1, "t").log.log_end_offset == world.offsets(2, "t")[0]
        assert 1 not in world.partition("t").in_sync_replicas


def test_a_lone_broker_stops_at_once(make_world: Callable[..., ClusterWorld]) -> None:
    world = make_world(1)
    world.create_topic("t", (1,))
    node = world[1].node
    world[1].event(lambda _, now: node.begin_shutdown(now))
    assert node.is_shutdown_complete
    assert not world.image.brokers[BrokerId(1)].is_shutting_down


def test_all_brokers_can_stop_together(world: ClusterWorld) -> None:
    world.create_topic("t", (1, 2, 3))
    nodes = [machine.node for machine in world.machines.values()]
    for machine in world.machines.values():
        machine.event(lambda node, now: node.begin_shutdown(now))
    began_ms = world.schedule.now_ms
    world.run_until(lambda: all(node.is_shutdown_complete for node in nodes))
    assert world.schedule.now_ms - began_ms < 200


def test_brokers_that_stop_at_nearly_the_same_time_are_let_go_together(
    make_world: Callable[..., ClusterWorld],
) -> None:
    """The second one stops while its leader proposes the set without the first one."""
    world = make_world(4)
    world.create_topic("t", (1, 2, 3))
    assert world.controller.broker_id == 4
    world.hold((1, 4))
    nodes = [world[broker_id].node for broker_id in (2, 3)]
    for broker_id in (2, 3):
        world[broker_id].event(lambda node, now: node.begin_shutdown(now))
        world.run(20)
    assert world.is_held(1, 4)
    began_ms = world.schedule.now_ms
    world.hold()
    world.run_until(lambda: all(node.is_shutdown_complete for node in nodes))
    assert world.schedule.now_ms - began_ms < 200
    assert world.partition("t").in_sync_replicas == (1,)


def test_a_member_that_lags_leaves_although_another_one_begins_to_stop(
    make_world: Callable[..., ClusterWorld],
) -> None:
    """Its leader proposes the set without it while the other one is still a member there."""
    world = make_world(4, "replica.lag.time.max.ms=10000")
    world.create_topic("t", (1, 2, 3))
    assert world.controller.broker_id == 4
    world.cut({3}, {1})
    client = world[1].connect()
    client.send(produce(batch(b"x"), "t", acks=-1, timeout_ms=120_000), 9)
    world[1].schedule_turn()
    world.hold((1, 4))
    world.run_until(lambda: world.is_held(1, 4))
    node = world[2].node
    world[2].event(lambda _, now: node.begin_shutdown(now))
    world.run(20)
    began_ms = world.schedule.now_ms
    world.hold()
    world.run_until(lambda: node.is_shutdown_complete)
    assert world.schedule.now_ms - began_ms < 200
    world.run_until(lambda: bool(client.answers), ms_max=10_000)
    assert produced(client.answers[0]).error_code == ErrorCode.NONE
    world.heal()


def test_the_last_in_sync_replica_does_not_wait_in_controlled_shutdown(world: ClusterWorld) -> None:
    world.create_topic("t", (1, 2))
    world.kill(2, expire=True)
    world.run_until(lambda: world.partition("t").in_sync_replicas == (1,))
    node = world[1].node
    world[1].event(lambda _, now: node.begin_shutdown(now))
    world.run_until(lambda: node.is_shutdown_complete, ms_max=200)
    assert world.partition("t").leader == 1


def test_stopping_has_a_limit(
    make_world: Callable[..., ClusterWorld], caplog: pytest.LogCaptureFixture
) -> None:
    world = make_world(
        3, "controlled.shutdown.max.retries=2", "controlled.shutdown.retry.backoff.ms=1500"
    )
    world.create_topic("t", (1, 2, 3))
    controller = world.controller.broker_id
    leaving = next(b for b in (1, 2, 3) if b != controller)
    world.pause(controller)
    node = world[leaving].node
    began_ms = world.schedule.now_ms
    with caplog.at_level(logging.WARNING):
        world[leaving].event(lambda _, now: node.begin_shutdown(now))
        world.run_until(lambda: node.is_shutdown_complete)
    assert 3000 <= world.schedule.now_ms - began_ms < 3100
    assert f"Broker {leaving} stops although leadership could not be moved away" in caplog.text
    world.resume(controller)


def test_controlled_shutdown_can_be_off(make_world: Callable[..., ClusterWorld]) -> None:
    world = make_world(3, "controlled.shutdown.enable=false")
    world.create_topic("t", (1, 2, 3))
    node = world[1].node
    world[1].event(lambda _, now: node.begin_shutdown(now))
    assert node.is_shutdown_complete
    world.run(100)
    assert world.partition("t").leader == 1


def test_a_second_process_with_the_same_id_is_noticed(caplog: pytest.LogCaptureFixture) -> None:
    """On a node alone: the process around it would stop (see the next test)."""
    alone = World()
    membership, metadata = alone.node.membership, alone.node.metadata
    mine = metadata.image.brokers[BrokerId(1)]

    def change(operation: Operation) -> None:
        changes = alone.tree.multi([operation]).changes
        assert changes is not None
        alone.metadata_changed(changes)
        alone.turn()

    change(SetData(mine.node.path, elsewhere(mine), mine.version))
    assert membership.is_fenced
    assert not current(membership.is_registered)
    assert "Another process is registered as broker 1 (PLAINTEXT://elsewhere:9092)" in caplog.text
    change(Delete(mine.node.path))
    assert membership.is_registered
    # The cluster may have seen the other one in sync: whatever it recorded is not true of this one.
    assert metadata.image.brokers[BrokerId(1)].previous_epoch == -1
    assert alone.node.oldest_valid_broker_epoch == metadata.image.brokers[BrokerId(1)].epoch
    alone.check()


def elsewhere(broker: BrokerImage) -> bytes:
    """A registration under the same id, of a process at another address."""
    (endpoint,) = broker.node.endpoints
    return replace(broker.node, endpoints=(endpoint._replace(host="elsewhere"),)).encode()


def test_an_ousted_process_stops_and_leaves_the_id_to_the_other(world: ClusterWorld) -> None:
    mine = world.image.brokers[BrokerId(2)]
    world.store.apply([SetData(mine.node.path, elsewhere(mine), mine.version)])
    world.run_until(lambda: not world[2].is_running)


def test_c2_a_disk_from_before_the_last_clean_stop_is_not_taken_for_complete(
    world: ClusterWorld,
) -> None:
    """A volume that comes back from a copy, taken after an earlier stop that was clean as well."""
    strict: dict[str, Any] = {"min.insync.replicas": "2"}
    world.create_topic("t", (1, 2, 3), **strict)
    assert world.stop(3)
    copy = world[3].machine.disk.image()
    world.start(3)
    world.run_until(world.is_settled)
    answer = world.leader_of("t").connect().ask(produce(batch(b"x"), "t", acks=-1), 9)
    assert produced(answer).error_code == ErrorCode.NONE
    for broker in (1, 2, 3):
        assert world.stop(broker)
    assert (world.partition("t").in_sync_replicas, world.partition("t").elr) == ((3,), (2,))
    world[3].machine.disk.files = copy
    world.start(3)
    world.run_until(lambda: world.partition("t").last_known_elr == (3,))
    world.start(1)
    world.start(2)
    world.run_until(lambda: world.partition("t").leader == 2)
    world.run_until(world.is_settled)


def test_lives_are_kept_over_clean_restarts(world: ClusterWorld) -> None:
    lives = []
    for _ in range(3):
        lives.append(world[2].node.broker_epoch)
        world.restart(2)
        world.run_until(world.is_settled)
    membership = world[2].node.membership
    assert membership.lives == tuple((each, each) for each in (*lives, membership.broker_epoch))
    assert all(map(membership.holds, lives))
    assert not membership.holds(lives[1] + 1), "that was the registration of another broker"


def test_a_fenced_broker_claims_nothing_when_it_stops(world: ClusterWorld) -> None:
    mine = world.image.brokers[BrokerId(2)]
    assert world[2].node.oldest_valid_broker_epoch == mine.epoch
    world.store.apply([SetData(mine.node.path, elsewhere(mine), mine.version)])
    world.run_until(lambda: world[2].node.membership.is_fenced)
    membership = world[2].node.membership
    assert membership.oldest_valid_broker_epoch == -1
    assert membership.lives is None
    assert membership.unheard_ms is None


def test_a_registration_that_this_process_never_saw_is_known_as_ours(world: ClusterWorld) -> None:
    """It is frozen from before it hears of it until the session has ended."""
    assert world.stop(2)
    world.start(2)
    process = world[2].machine._process
    assert process is not None
    world.run_until(lambda: world[2].is_up and process.unanswered > 0)
    membership = world[2].node.membership
    assert not membership.is_registered
    assert membership.unheard_ms is not None
    world.pause(2)
    world.run_until(lambda: BrokerId(2) in world.image.brokers)
    epoch = world.image.brokers[BrokerId(2)].epoch
    world.run_until(lambda: BrokerId(2) not in world.image.brokers)
    world.resume(2)
    world.run_until(lambda: membership.is_registered)
    assert membership.broker_epoch > epoch
    assert membership.holds(epoch)
    assert membership.unheard_ms is None


def test_a_registration_whose_answer_was_lost_long_ago_is_still_known_as_ours(
    world: ClusterWorld,
) -> None:
    """The write may have arrived although this broker has tried, and failed, again since."""
    node = world.image.brokers[BrokerId(2)].node
    world[2].expire()
    membership = world[2].node.membership
    epoch = membership.broker_epoch
    world.run_until(lambda: membership.broker_epoch > epoch)
    again = world.image.brokers[BrokerId(2)].node
    assert again.timestamp_ms == node.timestamp_ms
    assert again.previous_epoch == epoch
