"""The rarer ways in which things are wrong, and what looks like them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from strandline.cluster.store import SetData
from strandline.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from strandline.sim.checkers.batches import peek
from strandline.sim.checkers.recovery_rules import LastKnownState
from strandline.storage.log import Log
from strandline.types import BrokerId, Offset
from tests.current import current
from tests.sim.callers import controller_caller
from tests.sim.checked_world import Checked, always, model_of
from tests.sim.test_checkers_recovery import LOG, batch_bytes, restart


@pytest.fixture
def checked() -> Iterator[Checked]:
    world = Checked()
    world.write(5)
    assert world.found == []
    yield world
    world.close()


def set_config(checked: Checked, name: str, value: str) -> None:
    topic = AlterConfigsResource(
        resource_type=2,
        resource_name="t",
        configs=[AlterableConfig(name=name, config_operation=0, value=value)],
    )
    request = IncrementalAlterConfigsRequest(resources=[topic], validate_only=False)
    controller_caller(checked.world, "admin").ask(request, 1)
    checked.world.run_for(500)


# -- Settings --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"cleanup.policy": "compact"}, "its cleanup policy does not delete"),
        ({"retention.ms": "-1", "retention.bytes": "9999"}, "bytes are left of retention.bytes"),
        ({"retention.ms": "3600000"}, "ms old with retention.ms=3600000"),
    ],
)
def test_records_that_no_setting_gives_up(
    checked: Checked, settings: dict[str, str], problem: str
) -> None:
    log = checked.replica(1).log
    log.roller.roll(0)
    checked.write()
    for name, value in settings.items():
        set_config(checked, name, value)
    log.retention.delete_records_to(Offset(5))
    assert log.retention.drop_below_start(0) == 1
    checked.act(1)
    assert problem in checked.only("I-43").what


# -- Restarts --------------------------------------------------------------------------------


def test_a_log_that_comes_back_with_what_it_did_not_have(checked: Checked) -> None:
    """Records that were truncated are there again, though nothing else is longer."""
    old = peek(checked.replica(2).log.active.log, 0, 5 * batch_bytes(checked))
    log = checked.replica(2).log
    log.truncation.truncate_to(Offset(3), 0)
    checked.act(2)
    checked.world[2].kill()
    file = checked.world[2].disk.files.open(LOG)
    file.truncate(0)
    file.append(old)
    restart(checked, 2)
    assert "but had ended at 3 before" in checked.only("I-46").what


def test_a_worse_end_replaces_a_better_one(checked: Checked) -> None:
    last_known = LastKnownState(model_of(checked, 2), "kill")
    last_known.worsen("stop")
    assert current(last_known.how) == "kill"
    last_known.worsen("power")
    assert current(last_known.how) == "power"
    last_known.worsen("swap")
    last_known.worsen("power")
    assert last_known.how == "swap"


def test_what_is_done_to_a_machine_without_a_process_is_excused(checked: Checked) -> None:
    machine = checked.world[2]
    machine.kill()
    checked.checkers.ended(machine, "power", lossy=machine.disk.power_cut("none"))
    restart(checked, 2)
    assert checked.found == []
    machine.kill()
    machine.disk.files.remove_tree("/data1/t-0")
    checked.checkers.note_lossy(2)
    restart(checked, 2)
    assert checked.found == []


def test_a_disk_that_cannot_be_read_is_waited_for(checked: Checked) -> None:
    machine = checked.world[2]
    machine.kill()
    machine.disk.fail("read", "meta.properties")
    machine.start()
    checked.world.run_for(3_000)
    machine.disk.heal()
    machine.kill()
    restart(checked, 2)
    assert checked.world.run_until(checked.world.is_settled)
    assert checked.found == []
    assert model_of(checked, 2).end == 5


def test_a_log_without_a_topic_id_is_that_of_its_replica(checked: Checked) -> None:
    machine = checked.world[2]
    machine.kill()
    machine.disk.files.remove("/data1/t-0/partition.metadata")
    restart(checked, 2)
    assert checked.world.run_until(checked.world.is_settled)
    checked.write(2)
    assert model_of(checked, 2).end == 7
    assert checked.found == []


def test_a_leader_whose_log_failed_may_still_commit_what_all_have() -> None:
    checked = Checked(replica_fetch_max_bytes="100")  # one batch for each fetch
    checked.isolate(3)
    checked.write(3, acks=1, settle=False)
    log = checked.replica(1).log
    assert (log.log_end_offset, log.high_watermark) == (3, 0)
    log.health.fail("a test")
    checked.world.network.heal()
    assert checked.world.run_until(lambda: checked.replica(2).log.high_watermark == 3)
    assert model_of(checked, 1).has_failed
    assert checked.found == []
    checked.close()


def test_a_leader_whose_log_failed_must_not_commit_alone(checked: Checked) -> None:
    checked.isolate(2)
    checked.isolate(3)
    checked.write(acks=1, settle=False)
    log = checked.replica(1).log
    log.health.fail("a test")
    model_of(checked, 1).has_failed = True  # it has been looked at since
    log.offsets.high_watermark = log.log_end_offset
    checked.act(1)
    assert "lacks batch 5 of epoch 0" in checked.only("I-14").what


def test_a_log_directory_is_left_alone_while_it_is_offline(checked: Checked) -> None:
    [directory] = checked.world[2].node.replicas.logs.directories
    directory.go_offline("a test")
    checked.world[2].disk.files.open("/data1/leftover", create=True)
    checked.checkers.at_phase_end()
    assert checked.found == []


# -- Elections -------------------------------------------------------------------------------


def test_one_that_restarted_is_preferred_to_those_who_may_come_back(checked: Checked) -> None:
    checked.tell(
        checked.image_with(
            leader=BrokerId(2), leader_epoch=1, in_sync_replicas=(2,), is_recovering=True
        )
    )
    assert checked.found == []
    assert checked.checkers.counters["unclean elections"] == 1


def test_a_member_that_has_gone_again_is_judged_when_it_comes_back(checked: Checked) -> None:
    epochs = {**checked.state.in_sync_epochs, BrokerId(2): 999}
    image = checked.image_with(in_sync_epochs=epochs)
    brokers = {b: broker for b, broker in image.brokers.items() if b != 2}
    checked.tell(replace(image, brokers=brokers))
    assert checked.found == []


# -- Logs and disks --------------------------------------------------------------------------


def test_a_log_that_finds_itself_wrong(checked: Checked) -> None:
    log = checked.replica(2).log
    log.offsets.recovery_point = Offset(99)
    checked.checkers.sweep()
    assert "the recovery point 99 is beyond the end" in checked.only("I-07").what


def test_a_turn_that_waits_for_its_disk_is_judged_when_it_is_over(checked: Checked) -> None:
    """A look at everything in between compares nothing with a log that goes on changing."""
    log = checked.replica(1).log
    log.roller.roll(0)
    checked.write()
    log.retention.delete_records_to(Offset(5))
    assert log.retention.drop_below_start(0) == 1
    checked.replica(1).changed()
    for _ in range(3):
        checked.checkers.sweep()
    checked.checkers.at_phase_end()
    assert checked.found == []
    checked.act(1)
    assert "has dropped batch 4 of epoch 0" in checked.only("I-43").what
    assert model_of(checked, 1).is_current


def test_a_log_with_more_bytes_than_batches(
    checked: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Log, "check", always(None))
    checked.replica(2).log.active.size += 3
    checked.checkers.sweep()
    assert "but its batches" in checked.only("I-02").what


def test_other_batches_than_were_written(checked: Checked) -> None:
    file = checked.replica(2).log.active.log
    size = batch_bytes(checked)
    first, second = peek(file, 0, size), peek(file, size, size)
    file.write_at(0, second)
    file.write_at(size, first)
    checked.checkers.at_phase_end()
    assert "another batch at 1 than batch 0 of epoch 0" in checked.only("I-02").what


def test_a_partition_directory_without_a_log(checked: Checked) -> None:
    checked.world[2].disk.files.make_directory("/data1/other-3")
    checked.checkers.at_phase_end()
    assert "has the directory /data1/other-3 and no log in it" in checked.only("I-08").what


def test_a_partition_without_a_leader_in_the_end(checked: Checked) -> None:
    checked.world.store.image = checked.image_with(leader=BrokerId(-1))
    checked.checkers.at_end()
    assert "t-0 is led by -1, though [1, 2, 3] live and could lead" in checked.only("I-48").what


def test_a_log_that_would_be_gone(checked: Checked) -> None:
    for machine in checked.world.machines.values():
        machine.disk.files.remove_tree("/data1/t-0")
    checked.checkers.at_end()
    assert "would be gone after a kill" in checked.only("I-46").what
    assert "has no file 00000000000000000000.log any more" in checked.only("I-08").what


def test_a_write_of_the_store_changes_nothing_for_others(checked: Checked) -> None:
    """What is not about partitions is passed over."""
    before = len(checked.checkers.violations)
    checked.world.store.apply((SetData("/controller_epoch", b"1"),))
    assert len(checked.checkers.violations) == before


# -- Log directories ---------------------------------------------------------------------------


@pytest.mark.parametrize("is_broken", [False, True])
def test_a_directory_that_is_given_up_has_a_disk_that_failed(
    checked: Checked, is_broken: bool
) -> None:
    machine = checked.world[1]
    if is_broken:
        machine.disk.happened["broken"] = 1
    for directory in machine.node.replicas.logs.directories:
        directory.go_offline("it is told so")
    machine.kill()
    said = [each.what for each in checked.checkers.violations if each.invariant == "BUG"]
    assert said == [] if is_broken else "its disk is sound: it is told so" in said[0]
