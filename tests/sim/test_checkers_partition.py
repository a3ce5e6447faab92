"""Each rule about a whole partition is found out when it is broken: I-11 to I-16, I-21 to I-27."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from strandline.node.follower_role import FollowerRole
from strandline.node.replica import Replica
from strandline.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from strandline.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from strandline.records.batch import set_crc
from strandline.replication.in_sync import Committed
from strandline.replication.leader import Leader
from strandline.sim.checkers.batches import peek
from strandline.sim.checkers.crash_recovery_check import CrashRecoveryCheck
from strandline.storage.log_reader import LogSlice
from strandline.types import BrokerId, LeaderEpoch, Offset, TopicId
from tests.sim.callers import Caller
from tests.sim.checked_world import AT, Checked, model_of


@pytest.fixture
def checked() -> Iterator[Checked]:
    world = Checked()
    world.write(5)
    assert world.found == []
    yield world
    world.close()


def commits_alone(leader: Leader, mark: Offset, end: Offset, *_: object, **__: object) -> Offset:
    return end


def lead(checked: Checked, broker_id: int, *, epochs: int = 1) -> None:
    """Make a broker lead as if it had been elected."""
    state = replace(
        checked.state,
        leader=BrokerId(broker_id),
        leader_epoch=LeaderEpoch(checked.state.leader_epoch + epochs),
        in_sync_replicas=(BrokerId(broker_id),),
    )
    machine = checked.world[broker_id]
    machine.node.fetchers.forget(checked.replica(broker_id))
    checked.replica(broker_id).become_leader(state, machine.now)
    checked.act(broker_id)


# -- Leaders ---------------------------------------------------------------------------------


def test_two_leaders_in_one_epoch(checked: Checked) -> None:
    lead(checked, 2, epochs=0)
    assert "brokers 1 (life 1) and 2 (life 1) both lead in epoch 0" in checked.only("I-11").what


def test_one_broker_leads_in_an_epoch_of_its_former_life(checked: Checked) -> None:
    state = checked.state
    checked.world[1].kill()
    checked.world[1].start()
    assert checked.world.run_until(lambda: checked.world[1].is_up)
    checked.world.run_for(50)
    replica = checked.replica(1)
    assert replica.leader is None
    replica.become_leader(state, checked.world[1].now)
    checked.act(1)
    assert "brokers 1 (life 1) and 1 (life 2)" in checked.only("I-11").what


def test_a_leader_that_is_not_in_sync_with_itself(checked: Checked) -> None:
    checked.leader().in_sync = Committed(frozenset({BrokerId(2)}))
    checked.act(1)
    assert "Leader 1 is not in sync with itself" in checked.only("I-12").what


def test_a_leader_that_forgets_a_member(checked: Checked) -> None:
    checked.leader().in_sync = Committed(frozenset({BrokerId(1), BrokerId(2)}))
    checked.act(1)
    assert "waits for [1, 2], but the in-sync set is (1, 2, 3)" in checked.only("I-13").what


def test_a_leader_that_does_not_count_a_member(checked: Checked) -> None:
    leader = checked.leader()
    leader.progress[BrokerId(3)].is_counted = False
    checked.checkers.at_phase_end()
    assert "waits for [1, 2], but the in-sync set is (1, 2, 3)" in checked.only("I-13").what


def test_a_leader_that_commits_alone(checked: Checked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Leader, "next_high_watermark", commits_alone)
    checked.isolate(2)
    checked.write(acks=1)
    what = checked.only("I-14").what
    assert "broker 2 is in sync, but its log, which ends at 5, lacks batch 5 of epoch 0" in what


def test_a_member_that_joins_without_what_is_committed(checked: Checked) -> None:
    checked.drop_out(2)
    assert checked.found == []
    epochs = {b: broker.epoch for b, broker in checked.world.image.brokers.items()}
    checked.leader().progress[BrokerId(2)].has_fetched = False
    checked.tell(checked.image_with(in_sync_replicas=(1, 2, 3), in_sync_epochs=epochs))
    assert {"I-13", "I-14", "I-16"} <= set(checked.found)


def test_a_follower_that_is_believed_to_have_more(checked: Checked) -> None:
    checked.leader().progress[BrokerId(2)].log_end_offset = Offset(9)
    checked.world[1].node.replicas.host.purgatory.changed(checked.replica(1))
    checked.checkers.sweep()
    what = checked.only("I-15").what
    assert "believes that broker 2 has everything below 9, but its log ends at 5" in what


def deletion(offset: int) -> DeleteRecordsRequest:
    part = DeleteRecordsPartition(partition_index=AT.partition, offset=offset)
    topic = DeleteRecordsTopic(name=AT.topic, partitions=[part])
    return DeleteRecordsRequest(topics=[topic], timeout_ms=60_000)


def test_a_low_watermark_that_passes_a_replica(checked: Checked) -> None:
    caller = Caller(checked.world, "admin", 1)
    answer = caller.ask(deletion(3), 2)
    assert answer.topics[0].partitions[0].low_watermark == 3
    checked.checkers.sweep()
    assert checked.found == []
    checked.isolate(2)
    caller.send(deletion(4), 2)
    assert checked.world.run_until(lambda: checked.replica(1).log.offsets.log_start_saved == 4)
    checked.checkers.sweep()
    assert checked.replica(1).check_leading().low_watermark == 3
    assert checked.found == []
    checked.leader().progress[BrokerId(2)].log_start_offset = Offset(4)
    checked.leader().progress[BrokerId(3)].log_start_offset = Offset(4)
    checked.checkers.sweep()
    what = checked.only("I-27").what
    assert "has the low watermark 4, but the log of broker 2 starts at 3" in what


def test_a_leader_that_lacks_what_is_committed(checked: Checked) -> None:
    checked.drop_out(3)
    lead(checked, 3)
    what = checked.only("I-23").what
    assert "broker 3 leads in epoch 1, but its log, which ends at 5, lacks batch 5 of" in what


def test_a_member_that_truncates_what_is_committed(checked: Checked) -> None:
    checked.replica(2).log.truncation.truncate_to(Offset(3), 0)
    checked.act(2)
    what = checked.only("I-24").what
    assert "t-0 on broker 2 is in sync and has truncated batch 3 of epoch 0" in what


# -- Records ---------------------------------------------------------------------------------


def test_two_replicas_with_different_batches(
    checked: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = FollowerRole.append

    def tampered(role: FollowerRole, records: memoryview, *rest: object) -> object:
        changed = bytearray(records)
        changed[-2] ^= 1
        set_crc(changed, 0, len(changed))
        return append(role, changed, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(FollowerRole, "append", tampered)
    checked.write()
    assert "has batch 5 of epoch 0" in checked.only("I-21").what


@pytest.mark.parametrize("is_deleted", [False, True])
def test_the_same_batch_behind_another_one(checked: Checked, *, is_deleted: bool) -> None:
    """What lies below a log start need not agree."""
    # Broker 2 gets a batch of epoch 1 that no other replica has, and then the leader's next one.
    log = checked.replica(2).log
    size = log.active.size // 5
    other = bytearray(peek(log.active.log, 4 * size, size))
    log.truncation.truncate_to(Offset(4), 0)
    checked.act(2)
    other[-2] ^= 1
    set_crc(other, 0, size)
    other[12:16] = (1).to_bytes(4, "big")
    checked.replica(2).leader_epoch = LeaderEpoch(1)
    log.appender.append_as_follower(other, 0)
    checked.act(2)
    assert "I-21" not in checked.found
    checked.isolate(2)
    checked.isolate(3)
    state = replace(checked.state, leader_epoch=LeaderEpoch(2))
    checked.replica(1).become_leader(state, checked.world[1].now)
    checked.act(1)
    checked.write(acks=1, settle=False)
    end = checked.replica(1).log.active
    newest = peek(end.log, end.size - size, size)
    checked.replica(2).leader_epoch = LeaderEpoch(2)
    log.appender.append_as_follower(newest, 0)
    if is_deleted:
        log.restore_high_watermark(Offset(5))
        log.retention.delete_records_to(Offset(5))
    checked.act(2)
    if is_deleted:
        assert "I-21" not in checked.found
        hosting = checked.checkers._hostings[BrokerId(2)]
        hosting.take_in(log)  # as of the next process
        assert "I-21" not in checked.found
        checked.replica(2).host.logs.save_log_starts()
        rehearsal = CrashRecoveryCheck(checked.checkers.rules.findings, Random(1))
        rehearsal.check(hosting.machine, list(hosting.seen.values()))
        assert "I-21" not in checked.found
        return
    what = checked.only("I-21").what
    assert "on broker 2 batch 5 of epoch 2" in what
    assert "follows batch 4 of epoch 1" in what
    assert "on broker 1 it follows batch 4 of epoch 0" in what


def test_a_follower_that_calls_committed_what_is_not(checked: Checked) -> None:
    checked.isolate(3)
    checked.write(acks=1, settle=False)
    checked.world.run_for(600)
    log = checked.replica(2).log
    assert (log.log_end_offset, log.high_watermark) == (6, 5)
    log.offsets.high_watermark = Offset(6)
    checked.act(2)
    what = checked.only("I-22").what
    assert "has the high watermark 6, but batch 5 of epoch 0" in what


def test_a_committed_record_that_changes(checked: Checked) -> None:
    for broker_id in (2, 3):
        checked.isolate(broker_id)
    log = checked.replica(1).log
    log.truncation.truncate_to(Offset(3), 0)
    checked.act(1)
    checked.write(3, acks=1, settle=False, is_idempotent=False)
    log.advance_high_watermark_to(log.log_end_offset)
    checked.act(1)
    assert set(checked.found) >= {"I-10", "I-21", "I-25"}
    assert "which is committed" in checked.only("I-25").what


# -- Clients ---------------------------------------------------------------------------------


def fetch(checked: Checked, offset: int) -> None:
    topic = checked.world.image.topics["t"]
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[
            FetchTopic(
                topic_id=topic.topic_id,
                partitions=[
                    FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
                ],
            )
        ],
    )
    Caller(checked.world, "reader", 1).ask(request, 13)


def test_a_client_that_is_sent_what_is_not_committed(
    checked: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked.isolate(2)
    checked.write(acks=1, settle=False)
    fetch(checked, 0)
    assert checked.found == []
    assert checked.checkers.counters["answers with records"] == 1
    monkeypatch.setattr(Replica, "readable_end", lambda replica, _: replica.log.log_end_offset)
    fetch(checked, 0)
    assert "sends a client the batch 5-5, but its high watermark is 5" in checked.only("I-26").what


def test_a_client_that_is_sent_damaged_bytes(checked: Checked) -> None:
    segment = checked.replica(1).log.active
    byte = peek(segment.log, segment.size - 1, 1)[0]
    segment.log.write_at(segment.size - 1, bytes([byte ^ 0xFF]))
    fetch(checked, 0)
    assert "sends a client the batch at 4" in checked.only("I-47").what


def test_an_answer_from_an_unknown_log(checked: Checked) -> None:
    segment = checked.replica(1).log.active
    file = checked.world[1].disk.files.open("/data1/elsewhere", create=True)
    chunk = LogSlice(file, 0, 100, Offset(0), Offset(99))
    checked.checkers.sent(checked.world[1], 1, [b"", chunk])
    checked.checkers.sent(
        checked.world[1], 1, [b"", LogSlice(segment.log, 0, 10, *(Offset(0),) * 2)]
    )
    assert checked.found == []


# -- Deleted records -------------------------------------------------------------------------


def test_deleted_records_that_are_there_again(checked: Checked) -> None:
    topic_id = checked.replica(1).topic_id
    checked.checkers.note_records_deleted(AT, topic_id, 3)
    checked.checkers.note_records_deleted(AT, topic_id, 2)
    lead(checked, 2)
    what = checked.only("I-27").what
    assert "its log starts at 0, but a client was told that everything below 3 is deleted" in what


def test_what_is_deleted_in_a_former_topic_is_there_in_the_next_of_its_name(
    checked: Checked,
) -> None:
    checked.checkers.note_records_deleted(AT, TopicId(int=8), 3)
    lead(checked, 2)
    assert checked.found == []


def test_the_model_follows_records_that_are_deleted(checked: Checked) -> None:
    log = checked.replica(1).log
    log.roller.roll(0)
    checked.write(2)
    log.retention.delete_records_to(Offset(6))
    checked.replica(1).changed()
    checked.act(1)
    log.retention.apply_retention(checked.world[1].now.wall_ms)
    checked.act(1)
    assert checked.found == []
    assert model_of(checked, 1).bases == [5, 6]
    checked.checkers.at_phase_end()
    assert checked.found == []
