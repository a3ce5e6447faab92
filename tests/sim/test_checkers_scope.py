"""What is asked of a run, and what is not any more after a fault that makes it pointless."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from strandline.replication.in_sync import Committed
from strandline.sim.history.operations import (
    CommitAsked,
    Polled,
    Sent,
    TransactionBegan,
    TransactionEnded,
    WriterBegan,
)
from strandline.sim.phases import Course
from strandline.sim.plan import ClientSpec, Options, Plan
from strandline.sim.world import World
from strandline.types import BrokerId, Offset
from tests.sim.checked_world import AT, Checked, model_of
from tests.sim.test_checkers_partition import lead
from tests.sim.test_checkers_recovery import LOG, batch_bytes, restart


@pytest.fixture
def checked() -> Iterator[Checked]:
    world = Checked()
    world.write(5)
    assert world.found == []
    assert world.checkers.scope.has_promises
    yield world
    world.close()


@pytest.fixture
def lossy() -> Iterator[Checked]:
    world = Checked(loss=True)
    world.write(5)
    yield world
    world.close()


# -- Beyond ----------------------------------------------------------------------------------


def test_beyond_its_budget_a_cluster_may_lose_what_it_promised(lossy: Checked) -> None:
    lossy.checkers.note_records_deleted(AT, lossy.replica(1).topic_id, 3)
    lossy.drop_out(3)
    lead(lossy, 3)  # without what is committed, and with what is deleted
    assert lossy.found == []
    assert lossy.checkers.scope.may_lose
    assert lossy.checkers.kept([]) == set()


def test_beyond_its_budget_logs_still_agree_with_themselves(lossy: Checked) -> None:
    lossy.replica(2).log.offsets.high_watermark = Offset(9)
    lossy.act(2)
    assert "I-01" in lossy.found


def test_beyond_its_budget_there_is_one_leader_per_epoch(lossy: Checked) -> None:
    lead(lossy, 2, epochs=0)
    assert "I-11" in lossy.found


def test_an_unclean_election_permits_loss(checked: Checked) -> None:
    checked.drop_out(3)
    checked.tell(
        checked.image_with(
            leader=BrokerId(3),
            leader_epoch=1,
            partition_epoch=9,
            in_sync_replicas=(3,),
            in_sync_epochs={},
            is_recovering=True,
        )
    )
    assert checked.checkers.scope.may_lose
    lead(checked, 3)
    assert checked.found == []
    assert checked.checkers.counters["unclean elections"] == 1


# -- Damage ----------------------------------------------------------------------------------


def rot(checked: Checked) -> None:
    """A disk changes a byte of a log that was read long ago."""
    disk = checked.world[2].disk
    disk.files.open(LOG).write_at(3 * batch_bytes(checked) + 30, b"\xff")
    assert disk.on_damage is not None
    disk.on_damage()


def test_every_disk_says_when_it_does_damage(checked: Checked) -> None:
    checked.world[2].kill()
    assert checked.world[2].disk.lose_file(".log") is not None
    assert not checked.checkers.scope.has_logs
    assert not checked.checkers.scope.has_promises
    assert not checked.checkers.scope.may_lose


def test_a_sync_that_drops_its_pages_is_damage(checked: Checked) -> None:
    disk = checked.world[2].disk
    disk.drop_on_sync(LOG)
    assert checked.checkers.scope.has_logs
    checked.world[2].stop()
    assert checked.world.run_until(lambda: not checked.world[2].is_running)
    assert not checked.checkers.scope.has_logs


def test_a_new_disk_is_no_damage(checked: Checked) -> None:
    checked.world[2].swap_disk()
    restart(checked, 2)
    assert checked.world.run_until(checked.world.is_settled)
    assert checked.checkers.scope.has_promises
    assert model_of(checked, 2).end == 5
    assert checked.found == []


def test_nothing_is_asked_of_logs_on_damaged_disks(checked: Checked) -> None:
    rot(checked)
    checked.world[2].kill()
    restart(checked, 2)
    assert checked.world.run_until(checked.world.is_settled)
    checked.write(2)
    checked.replica(3).log.truncation.truncate_to(Offset(2), 0)
    checked.act(3)
    checked.checkers.at_phase_end()
    assert checked.found == []


def test_brokers_check_themselves_on_damaged_disks(checked: Checked) -> None:
    rot(checked)
    checked.leader().in_sync = Committed(frozenset({BrokerId(2)}))
    checked.checkers.sweep()
    assert checked.found == ["I-12"]


def test_states_must_follow_each_other_on_damaged_disks(checked: Checked) -> None:
    rot(checked)
    checked.tell(checked.image_with(leader=BrokerId(2)))
    assert "I-18" in checked.found


def test_damaged_disks_come_right_in_the_end(checked: Checked) -> None:
    rot(checked)
    checked.checkers.at_end()
    assert checked.found == []
    checked.drop_out(3)
    checked.checkers.at_end()
    assert "brokers [3] live and are not in sync" in checked.only("I-49").what
    assert "ends at" not in checked.only("I-49").what


@pytest.mark.parametrize(
    ("happened", "found"),
    [("nothing", ["I-34", "I-36"]), ("damage", ["I-34"]), ("an unclean election", [])],
)
def test_what_is_asked_of_transactions(happened: str, found: list[str]) -> None:
    """A damaged disk costs no reader the knowledge of what was aborted. Where records are lost, the
    marker between an aborted transaction and a committed one may be lost with them."""
    clients = (
        ClientSpec("transactional", "x", {"topic": "t"}),
        ClientSpec("consumer", "c", {"topic": "t", "isolation": "committed"}),
    )
    world = World(Options(seed=1, brokers=1))
    course = Course(Plan(world.options, clients, ()), world)
    assert course.checkers is not None
    if happened == "damage":
        course.checkers.scope.note_damage()
    elif happened == "an unclean election":
        course.checkers.scope.permit_loss()
    world.history += [
        WriterBegan("x", 1),
        TransactionBegan("x/1", "x", 1),
        Sent("x", "t-0", "aborted", None, "x/1"),
        TransactionEnded("x/1", is_committed=False),
        TransactionBegan("x/2", "x", 1),
        Sent("x", "t-0", "gone", None, "x/2"),
        CommitAsked("x/2"),
        TransactionEnded("x/2", is_committed=True),
        Polled("c", "t-0", [(0, "aborted")]),
    ]
    findings = course._fractured({"t-0"}, may_lose=False)
    assert [each.invariant for each in findings] == found
    world.close()
