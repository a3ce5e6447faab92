"""Metadata that no controller may write is found out: I-12, I-16, I-18, I-19, I-31 to I-33."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from strandline.cluster.image_parts import Versioned
from strandline.cluster.store import Zxid
from strandline.protocol.messages.delete_topics import DeleteTopicsRequest
from strandline.types import BrokerId
from tests.sim.callers import controller_caller, create_topic
from tests.sim.checked_world import Checked


@pytest.fixture
def checked() -> Iterator[Checked]:
    world = Checked()
    world.write(5)
    assert world.found == []
    yield world
    world.close()


def test_a_leader_outside_the_in_sync_set(checked: Checked) -> None:
    checked.tell(checked.image_with(in_sync_replicas=(2, 3)))
    assert "the leader 1 is not in sync: (2, 3)" in checked.only("I-12").what


def test_members_that_are_not_assigned(checked: Checked) -> None:
    checked.tell(checked.image_with(replicas=(1, 2)))
    assert "(1, 2, 3) are in sync, but (1, 2) are assigned" in checked.only("I-12").what


def test_no_replica_in_sync_or_eligible(checked: Checked) -> None:
    checked.tell(checked.image_with(in_sync_replicas=(), leader=BrokerId(-1), leader_epoch=1))
    assert "no replica is in sync or eligible" in checked.only("I-12").what


def test_a_leader_epoch_that_falls(checked: Checked) -> None:
    checked.tell(checked.image_with(leader_epoch=-1))
    assert "leader epoch 0 became -1" in checked.only("I-18").what


def test_a_partition_epoch_that_falls(checked: Checked) -> None:
    image = checked.image_with(partition_epoch=5)
    checked.tell(image)
    assert checked.found == []
    checked.tell(checked.image_with(partition_epoch=4))
    assert "partition epoch 5 became 4" in checked.only("I-18").what


def test_another_leader_in_the_same_epoch(checked: Checked) -> None:
    checked.tell(checked.image_with(leader=BrokerId(2)))
    assert "the leader changed from 1 to 2 within leader epoch 0" in checked.only("I-18").what


def test_a_write_of_a_deposed_controller(checked: Checked) -> None:
    image = checked.image_with(partition_epoch=5)
    epoch = image.controller_epoch
    assert epoch is not None
    checked.tell(replace(image, controller_epoch=Versioned(epoch.value + 1, 9)))
    assert "was written in controller epoch 1, but 2 has begun" in checked.only("I-18").what


def test_a_controller_epoch_that_falls(checked: Checked) -> None:
    checked.tell(replace(checked.world.image, controller_epoch=Versioned(0, 9)))
    assert "The controller epoch fell from 1 to 0" in checked.only("I-18").what


def test_two_controllers_in_one_epoch(checked: Checked) -> None:
    controller = checked.world.image.controller
    other = next(b for b in checked.world.machines if b != controller)
    checked.tell(replace(checked.world.image, controller=other))
    assert "are both the controller of epoch 1" in checked.only("I-18").what


def test_a_broker_epoch_that_falls(checked: Checked) -> None:
    image = checked.world.image
    broker = image.brokers[BrokerId(2)]
    brokers = {**image.brokers, BrokerId(2): replace(broker, epoch=Zxid(1))}
    checked.tell(replace(image, brokers=brokers))
    assert "The broker epoch of broker 2 fell" in checked.only("I-18").what


def test_a_leader_that_was_not_complete(checked: Checked) -> None:
    checked.tell(checked.image_with(in_sync_replicas=(1, 2)))
    checked.tell(checked.image_with(leader=BrokerId(3), leader_epoch=1, in_sync_replicas=(3,)))
    assert "broker 3 was elected in leader epoch 1, but (1, 2) were" in checked.only("I-19").what


def test_members_that_join_by_an_election(checked: Checked) -> None:
    checked.tell(checked.image_with(in_sync_replicas=(1, 2)))
    checked.tell(checked.image_with(leader=BrokerId(2), leader_epoch=1, in_sync_replicas=(2, 3)))
    assert "[3] came into the in-sync set by the election" in checked.only("I-16").what


def test_a_member_that_joins_under_a_registration_that_never_fetched(checked: Checked) -> None:
    checked.tell(checked.image_with(in_sync_replicas=(1, 2)))
    epochs = {**checked.state.in_sync_epochs, BrokerId(3): 999}
    checked.tell(checked.image_with(in_sync_epochs=epochs))
    assert "not 999" in checked.only("I-16").what


def test_a_member_that_joins_without_having_fetched(checked: Checked) -> None:
    checked.tell(checked.image_with(in_sync_replicas=(1, 2)))
    checked.leader().progress[BrokerId(3)].has_fetched = False
    checked.tell(checked.world.image)
    assert "has not fetched in this leader epoch" in checked.only("I-16").what


def test_a_member_that_joins_too_short(checked: Checked) -> None:
    checked.drop_out(3)
    epochs = {b: broker.epoch for b, broker in checked.world.image.brokers.items()}
    checked.tell(checked.image_with(in_sync_replicas=(1, 2, 3), in_sync_epochs=epochs))
    what = checked.only("I-16").what
    assert "has committed everything below 6" in what
    assert "its log ends at 5" in what


def test_an_eligible_replica_that_is_in_sync(checked: Checked) -> None:
    checked.tell(checked.image_with(elr=(3,)))
    assert "(3,) are eligible and (1, 2, 3) in sync" in checked.only("I-31").what


def test_eligible_replicas_while_enough_are_in_sync(checked: Checked) -> None:
    checked.tell(checked.image_with(in_sync_replicas=(1, 2), elr=(3,)))
    assert "(3,) are eligible although (1, 2) are in sync" in checked.only("I-31").what


def test_an_eligible_replica_that_is_not_assigned(checked: Checked) -> None:
    checked.tell(checked.image_with(replicas=(1, 2), in_sync_replicas=(1,), elr=(3,)))
    assert "(3,) are eligible, but (1, 2) are assigned" in checked.only("I-31").what


def test_an_eligible_replica_that_lacks_something(checked: Checked) -> None:
    checked.drop_out(3)
    epochs = {b: broker.epoch for b, broker in checked.world.image.brokers.items()}
    checked.tell(checked.image_with(in_sync_replicas=(1,), elr=(2, 3), in_sync_epochs=epochs))
    what = checked.only("I-32").what
    assert "broker 3 is an eligible leader, but its log, which ends at 5, lacks batch 5" in what


def test_a_replica_that_becomes_eligible_from_nowhere(checked: Checked) -> None:
    checked.tell(checked.image_with(in_sync_replicas=(1,)))
    checked.tell(checked.image_with(in_sync_replicas=(1,), elr=(2,)))
    assert "broker 2 became eligible, but was neither" in checked.only("I-33").what


def test_a_member_that_stays_although_it_restarted_uncleanly(checked: Checked) -> None:
    image = checked.image_with(in_sync_epochs={**checked.state.in_sync_epochs, BrokerId(2): 999})
    broker = image.brokers[BrokerId(2)]
    restarted = replace(broker, epoch=Zxid(999), node=replace(broker.node, previous_epoch=-1))
    brokers = {**image.brokers, BrokerId(2): restarted}
    checked.tell(replace(image, brokers=brokers))
    assert "broker 2 was complete under broker epoch" in checked.only("I-33").what


def test_a_member_that_stays_after_a_clean_restart(checked: Checked) -> None:
    epochs = checked.state.in_sync_epochs
    image = checked.image_with(in_sync_epochs={**epochs, BrokerId(2): 999})
    broker = image.brokers[BrokerId(2)]
    node = replace(broker.node, previous_epoch=epochs[BrokerId(2)])
    brokers = {**image.brokers, BrokerId(2): replace(broker, epoch=Zxid(999), node=node)}
    checked.tell(replace(image, brokers=brokers))
    assert checked.found == []


def test_a_topic_that_is_made_anew_has_a_minimum_of_its_own(checked: Checked) -> None:
    """A deleted topic has no settings, so that none of them changes (seed 102001500)."""
    world, rules = checked.world, checked.checkers.rules.metadata
    default = rules._minimums["t"]
    create_topic(world, "extra", (1,), configs={"min.insync.replicas": "7"})
    assert rules._minimums["extra"] == {7} != default
    request = DeleteTopicsRequest(topic_names=["extra"], timeout_ms=1000)
    controller_caller(world, "admin").ask(request, 5)
    assert world.run_until(lambda: "extra" not in world.image.topics)
    create_topic(world, "extra", (1,))
    assert rules._minimums["extra"] == default


def test_a_changed_minimum_is_followed_by_and_by(checked: Checked) -> None:
    rules = checked.checkers.rules.metadata
    rules._minimums["t"] = frozenset({3})
    rules._former_minimums["t"] = [(checked.world.schedule.now_us + 1_000_000, 2)]
    checked.tell(checked.image_with(in_sync_replicas=(1, 2), elr=(3,)))
    assert checked.found == []
    checked.world.run_for(2_000)
    checked.tell(checked.image_with(in_sync_replicas=(1, 2, 3)))
    rules._minimums["t"] = frozenset({2})
    checked.tell(checked.image_with(in_sync_replicas=(1, 2), elr=(3,)))
    assert "I-31" in checked.found
