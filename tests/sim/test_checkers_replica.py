"""Each rule about one replica is found out when it is broken: I-01 to I-08, I-10, I-17, ..."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from strandline.replication.leader import Leader
from strandline.sim.checkers import replica_rules
from strandline.sim.checkers.batches import peek
from strandline.sim.checkers.storage_rules import checkpoint_in
from strandline.storage.indexed_segment import IndexedSegment
from strandline.storage.leader_epochs import EpochEntry, LeaderEpochs
from strandline.storage.producer_state import ProducerStates
from strandline.storage.retention import Retention
from strandline.types import LeaderEpoch, Offset
from tests.node.messages import batch, produce
from tests.sim.callers import Caller
from tests.sim.checked_world import AT, Checked, always


@pytest.fixture
def checked() -> Iterator[Checked]:
    world = Checked(log_index_interval_bytes="100")
    world.write(5)
    assert world.found == []
    yield world
    world.close()


def test_a_sound_cluster_breaks_nothing(checked: Checked) -> None:
    checked.checkers.at_phase_end()
    checked.world.run_for(5_000)
    checked.checkers.at_end()
    assert checked.found == []
    assert checked.checkers.counters["commits"] >= 5
    assert checked.checkers.counters["rehearsals"] >= 2


def test_offsets_out_of_order(checked: Checked) -> None:
    log = checked.replica(2).log
    log.offsets.log_start_offset = Offset(log.high_watermark + 1)
    checked.checkers.sweep()
    assert "start 6, high watermark 5 and end 5 are out of order" in checked.only("I-01").what


def test_a_batch_without_its_checksum_is_appended(checked: Checked) -> None:
    log = checked.replica(2).log
    data = bytearray(peek(log.active.log, 0, log.active.size))
    size = len(data) // 5
    last = data[-size:]
    last[:8] = (5).to_bytes(8, "big")
    last[-1] ^= 1
    log.active.log.append(last)
    log.active.size += size
    log.offsets.log_end_offset = Offset(6)
    checked.act(2)
    assert "does not match its checksum" in checked.only("I-02").what


def test_an_end_that_no_batch_has(checked: Checked) -> None:
    log = checked.replica(2).log
    log.offsets.log_end_offset = Offset(9)
    checked.act(2)
    assert "says that it ends at 9" in checked.only("I-02").what


def test_bytes_that_change_later(checked: Checked) -> None:
    file = checked.replica(3).log.active.log
    byte = peek(file, 60, 1)[0]
    file.write_at(60, bytes([byte ^ 0xFF]))
    checked.act(3)
    assert checked.found == []  # nothing shows it but reading it all again
    checked.checkers.at_phase_end()
    assert "has no readable batches" in checked.only("I-02").what


def test_a_table_of_epochs_that_is_not_the_logs(checked: Checked) -> None:
    epochs = checked.replica(2).log.leader_epochs
    [entry] = epochs.entries
    epochs._publish([entry, EpochEntry(LeaderEpoch(entry.epoch + 1), Offset(3))])
    checked.act(2)
    assert "but its batches say [(0, 0)]" in checked.only("I-03").what


def test_an_epoch_that_the_replica_is_not_in(checked: Checked) -> None:
    checked.replica(2).leader_epoch = LeaderEpoch(-1)
    checked.world[2].node.fetchers  # noqa: B018 -- it goes on fetching in its former epoch
    checked.act(2)
    checked.replica(2).log.appender.append_as_follower(_next_batch(checked), 0)
    checked.act(2)
    assert "is in leader epoch -1 and has appended" in checked.only("I-03").what


def _next_batch(checked: Checked) -> bytes:
    """The last batch again, at the offset behind it."""
    log = checked.replica(1).log
    data = peek(log.active.log, 0, log.active.size)
    last = bytearray(data[-len(data) // 5 :])
    last[:8] = int(log.log_end_offset).to_bytes(8, "big")
    return bytes(last)


def test_a_leader_without_an_entry_for_its_epoch(
    checked: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LeaderEpochs, "assign", always(False))
    state = replace(checked.state, leader_epoch=LeaderEpoch(4))
    checked.replica(1).become_leader(state, checked.world[1].now)
    checked.settle(1)
    assert "leads in epoch 4, but the newest epoch of its table is 0" in checked.only("I-03").what


def test_an_index_that_leads_nowhere(checked: Checked) -> None:
    index = checked.replica(1).log.active.offset_index
    assert index.entries > 1
    index._pending[4:8] = (7).to_bytes(4, "big")
    checked.checkers.at_phase_end()
    assert "No batch begins at position 7," in checked.only("I-04").what


def test_a_time_index_that_names_no_batch(checked: Checked) -> None:
    index = checked.replica(1).log.active.time_index
    assert index.entries
    index._pending[8:12] = (77).to_bytes(4, "big")
    checked.checkers.at_phase_end()
    assert "No batch ends with offset 77," in checked.only("I-04").what


def test_a_producer_that_is_remembered_wrongly(checked: Checked) -> None:
    entry = checked.replica(2).log.producers._by_id[checked.producer_id]
    entry.remember(17, 4, 0, entry.last_timestamp)
    checked.checkers.at_phase_end()
    assert "sequence 17 and offset 4" in checked.only("I-05").what


def test_a_producer_that_is_forgotten(checked: Checked) -> None:
    checked.replica(2).log.producers._by_id.clear()
    checked.checkers.at_phase_end()
    assert "does not know producer" in checked.only("I-05").what


def test_a_producer_may_be_forgotten_after_a_look_into_the_future(checked: Checked) -> None:
    clock = checked.world[2].clock
    clock.jump_wall(2 * 86_400_000)
    checked.act(2)
    clock.heal()
    checked.replica(2).log.producers._by_id.clear()
    checked.checkers.at_phase_end()
    assert checked.found == []


def test_a_producer_that_never_wrote(checked: Checked) -> None:
    producers = checked.replica(2).log.producers
    producers._by_id[99] = producers._by_id[checked.producer_id]  # type: ignore[index]
    checked.checkers.at_phase_end()
    assert "no batch says so" in checked.only("I-05").what


def test_a_transaction_below_the_last_stable_offset(checked: Checked) -> None:
    transactions = checked.replica(1).log.producers.transactions
    transactions.begin(checked.producer_id, Offset(2))
    transactions.first_unstable_offset = Offset(4)
    checked.write(settle=False)
    assert "a transaction is open since 2" in checked.only("I-06").what


def test_a_last_stable_offset_that_goes_back(checked: Checked) -> None:
    """A leader said that a record was decided, and takes it back."""
    transactions = checked.replica(1).log.producers.transactions
    transactions.begin(checked.producer_id, Offset(3))
    checked.write(settle=False)
    transactions._open = {Offset(1): checked.producer_id}
    transactions.first_unstable_offset = Offset(1)
    checked.write(settle=False)
    assert "has the last stable offset 1, after 3" in checked.only("I-06").what


def test_a_recovery_point_that_is_not_durable(checked: Checked) -> None:
    log = checked.replica(2).log
    assert log.recovery_point < log.log_end_offset
    log.offsets.recovery_point = log.log_end_offset
    checked.act(2)
    assert "bytes are durable" in checked.only("I-07").what


def test_a_recovery_point_that_is_written_down_too_high(checked: Checked) -> None:
    files = checked.world[2].disk.files
    path = "/data1/recovery-point-offset-checkpoint"
    files.write_atomically(path, b"0\n1\nt 0 5\n")
    assert checkpoint_in(files.read_bytes(path)) == {AT: 5}
    checked.checkers.at_phase_end()
    assert "but 5 is written down" in checked.only("I-07").what


def test_files_that_belong_to_nothing(checked: Checked) -> None:
    files = checked.world[2].disk.files
    files.open("/data1/t-0/00000000000000000077.log", create=True)
    checked.checkers.at_phase_end()
    assert "00000000000000000077.log, which belongs to nothing" in checked.only("I-08").what


def test_a_file_that_is_missing(checked: Checked) -> None:
    checked.world[2].disk.files.remove("/data1/t-0/00000000000000000000.log")
    checked.checkers.at_phase_end()
    assert "has no file 00000000000000000000.log" in checked.only("I-08").what


def test_a_file_beside_the_partitions(checked: Checked) -> None:
    checked.world[2].disk.files.open("/data1/leftover", create=True)
    checked.checkers.at_phase_end()
    assert "/data1/leftover" in checked.only("I-08").what


def test_a_leader_that_lowers_its_high_watermark(checked: Checked) -> None:
    checked.replica(1).log.offsets.high_watermark = Offset(2)
    checked.act(1)
    assert "has lowered its high watermark from 5 to 2" in checked.only("I-10").what


def test_a_leader_that_truncates(checked: Checked) -> None:
    checked.replica(1).log.truncation.truncate_to(Offset(3), 0)
    checked.act(1)
    assert "has truncated its log from 5 to 3" in checked.only("I-10").what


def test_a_high_watermark_below_the_minimum(
    checked: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked.world[2].kill()
    checked.world[3].kill()
    assert checked.world.run_until(lambda: checked.state.in_sync_replicas == (1,))
    checked.world.run_for(1_000)
    assert checked.found == []

    def settle(leader: Leader) -> None:
        leader._is_held = False
        leader._followers = ()

    monkeypatch.setattr(Leader, "_settle", settle)
    checked.leader()._settle()
    checked.write(acks=1)
    assert "with only [1] in sync, where 2 must be" in checked.only("I-17").what


def test_a_truncation_that_brings_nothing(checked: Checked) -> None:
    checked.replica(2).log.offsets.truncations += 1
    checked.act(2)
    assert "went from (epoch, end) (0, 5) to (0, 5)" in checked.only("I-20").what


def test_too_many_truncations(checked: Checked) -> None:
    log = checked.replica(2).log
    for end in (4, 3, 2, 1):
        log.truncation.truncate_to(Offset(end), 0)
        checked.act(2)
    assert "was truncated 4 times" in checked.only("I-20").what


def test_a_leader_that_lowers_its_log_start(checked: Checked) -> None:
    log = checked.replica(1).log
    log.retention.delete_records_to(Offset(3))
    checked.act(1)
    log.offsets.log_start_offset = Offset(1)
    checked.act(1)
    assert "has lowered its log start from 3 to 1" in checked.only("I-27").what


def test_an_old_epoch_of_a_producer(checked: Checked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProducerStates, "check", always(None))
    checked.write(epoch=3)
    assert checked.found == []
    checked.write(epoch=2)
    assert "in epoch 2 after epoch 3" in checked.only("I-37").what


def test_a_segment_that_no_setting_gives_up(checked: Checked) -> None:
    log = checked.replica(1).log
    log.roller.roll(0)
    checked.write()
    checked.act(1)
    log.retention.delete_records_to(Offset(5))
    assert log.retention.drop_below_start(0) == 1
    checked.act(1)
    assert "has dropped batch 4 of epoch 0" in checked.only("I-43").what


def test_what_the_coordinator_of_share_groups_deletes_may_go_in_the_same_step(
    checked: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seed 118006352: its timer rang together with that of retention."""
    monkeypatch.setattr(replica_rules, "SHARE_GROUP_STATE", AT.topic)
    log = checked.replica(1).log
    log.roller.roll(0)
    checked.write()
    log.retention.delete_records_to(Offset(5))
    assert log.retention.drop_below_start(0) == 1
    checked.act(1)
    assert checked.found == []


def test_a_segment_that_is_not_replicated_is_given_up(
    checked: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked.isolate(2)
    checked.write(acks=1, settle=False)
    log = checked.replica(1).log
    log.roller.roll(0)
    monkeypatch.setattr(Retention, "may_drop", always(True))
    log.offsets.log_start_offset = log.log_end_offset
    assert log.retention.drop_below_start(0) == 1
    checked.act(1)
    assert "beyond its high watermark 5" in checked.only("I-43").what


def test_retention_within_the_rules_is_no_violation() -> None:
    checked = Checked()
    log = checked.replica(1).log
    for _ in range(4):
        checked.write(2)
        log.roller.roll(0)
        checked.act(1)
    log.update_config(replace(log.config, retention_bytes=log.segments.first.size))
    assert log.retention.apply_retention(checked.world[1].now.wall_ms) == 3
    checked.act(1)
    checked.write(2)
    checked.checkers.at_phase_end()
    assert checked.found == []
    checked.close()


@pytest.mark.parametrize(("age_ms", "problem"), [(7_200_000, None), (0, "3600000")])
def test_each_segment_needs_a_reason_of_its_own_to_go(age_ms: int, problem: str | None) -> None:
    """The first goes by its size, and the second by the age of the records that a client sent."""
    checked = Checked()
    log = checked.replica(1).log
    now_ms = checked.world[1].now.wall_ms
    for age in (0, age_ms, 0, 0):
        records = batch(b"x" * 20, timestamp=now_ms - age)
        Caller(checked.world, "writer", 1).ask(produce(records, *AT), 9)
        checked.world.run_for(1_500)
        log.roller.roll(now_ms)
        checked.act(1)
    bases = log.segments.base_offsets
    assert bases[:5] == [0, 1, 2, 3, 4]
    size = log.segments.first.size
    log.update_config(replace(log.config, retention_bytes=3 * size, retention_ms=3_600_000))
    log.retention.delete_records_to(Offset(2))
    assert log.retention.drop_below_start(now_ms) == 2
    checked.act(1)
    if problem is None:
        assert checked.found == []
    else:
        what = checked.only("I-43").what
        assert "has dropped batch 1 of epoch 0" in what
        assert f"but {2 * size} bytes are left of retention.bytes={3 * size}" in what
        assert what.endswith(f"ms old with retention.ms={problem}")
    checked.close()


def test_an_index_is_looked_at_in_a_sweep(
    checked: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(IndexedSegment, "add_entries", always(None))
    checked.replica(1).log.active.offset_index._pending[4:8] = (7).to_bytes(4, "big")
    for _ in range(30):
        checked.checkers.sweep()
    assert "I-04" in checked.found
