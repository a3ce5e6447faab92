"""What a restart must find, and what must have come right in the end: I-45, I-46, I-48 to I-51."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from strandline.cluster.store import Create, Delete
from strandline.sim.checkers.batches import peek
from strandline.storage.log import Log
from strandline.storage.retention import Retention
from strandline.types import BrokerId, Offset
from tests.node.messages import batch, produce
from tests.sim.callers import Caller
from tests.sim.checked_world import AT, Checked, model_of

LOG = "/data1/t-0/00000000000000000000.log"


@pytest.fixture
def checked() -> Iterator[Checked]:
    world = Checked()
    world.write(5)
    assert world.found == []
    yield world
    world.close()


def restart(checked: Checked, broker_id: int) -> None:
    checked.world[broker_id].start()
    assert checked.world.run_until(lambda: checked.world[broker_id].is_up)


def batch_bytes(checked: Checked) -> int:
    return checked.replica(1).log.active.size // 5


# -- Restarts --------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["kill", "power_cut", "stop", "swap_disk"])
def test_honest_restarts_break_nothing(checked: Checked, how: str) -> None:
    machine = checked.world[2]
    getattr(machine, how)()
    assert checked.world.run_until(lambda: not machine.is_running)
    restart(checked, 2)
    assert checked.world.run_until(checked.world.is_settled)
    checked.write(2)
    checked.checkers.at_phase_end()
    checked.checkers.at_end()
    assert checked.found == []
    assert model_of(checked, 2).end == 7


def test_a_kill_that_loses_something(checked: Checked) -> None:
    checked.world[2].kill()
    files = checked.world[2].disk.files
    files.open(LOG).truncate(3 * batch_bytes(checked))
    restart(checked, 2)
    what = checked.only("I-46").what
    assert "came back after a kill and ends at 3, but everything below 5 was to survive" in what


def test_a_power_cut_that_loses_what_was_durable(checked: Checked) -> None:
    log = checked.replica(2).log
    plan = log.flusher.flush_plan()
    assert plan is not None
    plan.carry_out(checked.world[2].disk.files)
    log.flusher.mark_flushed(plan, 0)
    checked.act(2)
    assert checked.found == []
    checked.world[2].power_cut()
    checked.world[2].disk.files.open(LOG).truncate(3 * batch_bytes(checked))
    restart(checked, 2)
    assert "came back after a power cut and ends at 3" in checked.only("I-46").what


def test_a_power_cut_that_loses_what_was_not_durable(checked: Checked) -> None:
    checked.world[2].power_cut("none")
    restart(checked, 2)
    assert checked.found == []
    assert model_of(checked, 2).end == -1


def test_a_log_that_comes_back_with_other_batches(checked: Checked) -> None:
    other = peek(checked.replica(2).log.active.log, 0, 4 * batch_bytes(checked))
    log = checked.replica(2).log
    log.truncation.truncate_to(Offset(3), 0)
    checked.act(2)
    checked.world[2].kill()
    files = checked.world[2].disk.files
    file = files.open(LOG)
    file.truncate(0)
    file.append(other)
    restart(checked, 2)
    assert "with batch 3 of epoch 0" in checked.only("I-46").what


def test_a_log_that_is_gone(checked: Checked) -> None:
    machine = checked.world[2]
    machine.stop()
    assert checked.world.run_until(lambda: not machine.is_running)
    restart(checked, 2)
    assert checked.world.run_until(checked.world.is_settled)
    assert checked.replica(2).log.recovery_point == 5
    machine.kill()
    machine.disk.files.remove_tree("/data1/t-0")
    restart(checked, 2)
    assert "whose log was durable below 5, is gone" in checked.only("I-46").what


def test_a_crash_in_the_middle_of_an_append(checked: Checked) -> None:
    # The batch is in the file when the process dies in the sync that follows.
    log = checked.replica(1).log
    log.update_config(replace(log.config, flush_messages=1))
    checked.world[1].crash_in(1, "kill", operation="sync", path_part="t-0")
    caller = Caller(checked.world, "writer", 1)
    caller.send(produce(batch(b"x"), *AT, acks=1, timeout_ms=1_000), 9)
    assert checked.world.run_until(lambda: not checked.world[1].is_up)
    restart(checked, 1)
    assert checked.found == []
    assert model_of(checked, 1).end == 6


def test_a_process_that_dies_before_its_append_is_observed(checked: Checked) -> None:
    checked.replica(1).check_leading().append(bytearray(batch(b"x")), checked.world[1].now)
    checked.world[1].kill()
    restart(checked, 1)
    assert checked.found == []
    assert model_of(checked, 1).end == 6


# -- Rehearsals ------------------------------------------------------------------------------


def test_a_recovery_that_takes_something_away_each_time(
    checked: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked.checkers.at_end()
    assert checked.found == []
    load = Log.load

    def eats(*args: Any, **more: Any) -> Log:
        log = load(*args, **more)
        if log.topic_partition == AT and log.log_end_offset > 0:
            log.truncation.truncate_to(Offset(log.log_end_offset - 1), 0)
        return log

    monkeypatch.setattr(Log, "load", eats)
    checked.checkers.at_end()
    assert "I-45" in checked.found
    assert "I-46" in checked.found


def test_a_log_that_would_not_survive(checked: Checked) -> None:
    # What is in memory is not what is on disk.
    for machine in checked.world.machines.values():
        machine.disk.files.open(LOG).truncate(3 * batch_bytes(checked))
    checked.checkers.at_end()
    assert "would after a kill end at 3" in checked.only("I-46").what


# -- The end ---------------------------------------------------------------------------------


def test_no_controller_in_the_end(checked: Checked) -> None:
    checked.world.store.apply((Delete("/controller"),))
    checked.checkers.at_end()
    assert "The controller is None" in checked.only("I-48").what


def test_a_broker_that_is_not_registered_in_the_end(checked: Checked) -> None:
    image = checked.world.image
    broker_id = next(each for each in image.brokers if each != image.controller)
    checked.world.store.apply((Delete(f"/brokers/ids/{broker_id}"),))
    checked.checkers.at_end()
    assert f"Broker {broker_id} runs and is not registered" in checked.only("I-48").what


def test_a_partition_without_a_leader_in_the_end(checked: Checked) -> None:
    leader = checked.leader()
    checked.replica(1).leading = None
    checked.act(1)
    checked.checkers.at_end()
    assert "t-0: broker 1 is to lead, and does not" in checked.only("I-48").what
    assert leader.leader_epoch == 0


def test_a_replica_that_is_behind_in_the_end(checked: Checked) -> None:
    checked.drop_out(3)
    checked.checkers.at_end()
    assert "brokers [3] live and are not in sync" in checked.only("I-49").what


def test_replicas_that_differ_in_the_end(checked: Checked) -> None:
    checked.replica(3).log.leader_epochs.clear()
    checked.checkers.at_end()
    assert "t-0 on broker 3 has" in checked.only("I-49").what


def test_a_replica_that_is_missing_in_the_end(checked: Checked) -> None:
    node = checked.world[3].node
    node.replicas._forget(checked.replica(3))
    checked.act(3)
    checked.checkers.at_end()
    assert "broker 3 lives and has no log of it" in checked.only("I-49").what


def test_something_undecided_in_the_end(checked: Checked) -> None:
    checked.isolate(3)
    checked.write(acks=1, settle=False)
    checked.checkers.at_end()
    assert "ends at 6, but its high watermark is 5" in checked.only("I-50").what


def test_a_follower_that_keeps_what_its_leader_has_deleted(
    checked: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete = Retention.delete_records_to

    def never_follows(retention: Retention, offset: Offset) -> bool:
        return retention is checked.replica(1).log.retention and delete(retention, offset)

    monkeypatch.setattr(Retention, "delete_records_to", never_follows)
    log = checked.replica(1).log
    log.retention.delete_records_to(Offset(3))
    checked.replica(1).changed()
    checked.act(1)
    checked.checkers.at_end()
    assert "I-27" not in checked.found  # they may not have heard of it yet
    checked.world.run_for(11_000)
    checked.checkers.at_end()
    assert "which leads, has started at 3 for a while" in checked.only("I-27").what


@pytest.mark.parametrize("kind", ["I-51"])
def test_work_that_is_left_undone(checked: Checked, kind: str) -> None:
    store = checked.world.store
    for path in ("/admin", "/admin/preferred_replica_election"):
        if path not in store.tree:
            store.apply((Create(path),))
    store.apply((Create("/admin/preferred_replica_election/t-0"),))
    checked.checkers.at_end()
    assert "/admin/preferred_replica_election still has" in checked.only(kind).what


def test_a_topic_that_is_still_to_be_deleted(checked: Checked) -> None:
    store = checked.world.store
    for path in ("/admin", "/admin/delete_topics"):
        if path not in store.tree:
            store.apply((Create(path),))
    store.apply((Create("/admin/delete_topics/t"),))
    checked.checkers.at_end()
    assert "I-51" in checked.found


def test_a_reassignment_that_is_not_over(checked: Checked) -> None:
    image = checked.image_with(adding=(BrokerId(3),))
    checked.world.store.image = image
    checked.checkers.at_end()
    assert "t-0 is still being reassigned: (3,)" in checked.only("I-51").what


# -- Bugs ------------------------------------------------------------------------------------


def test_a_bug_is_a_violation(checked: Checked) -> None:
    checked.checkers.bug(BrokerId(2), "ValueError: no")
    checked.checkers.bug(None, "KeyError: 3")
    assert [v.what for v in checked.checkers.violations] == [
        "broker 2: ValueError: no",
        "KeyError: 3",
    ]
    assert str(checked.checkers.violations[1]) == "BUG: KeyError: 3"
