"""The model of a log: what it takes in, what it refuses, and how it follows cuts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from strandline.node.replica import Replica
from strandline.protocol.messages.delete_topics import DeleteTopicsRequest
from strandline.records.batch import set_crc
from strandline.sim.checkers.batches import Batches, header_fields, peek
from strandline.sim.checkers.log_model import LogModel
from strandline.sim.checkers.violations import Findings
from strandline.storage.log import Log
from strandline.types import NO_OFFSET, BrokerId, LeaderEpoch, Offset
from tests.sim.callers import controller_caller, create_topic
from tests.sim.checked_world import AT, Checked, model_of


@pytest.fixture
def checked() -> Iterator[Checked]:
    world = Checked()
    world.write(5)
    assert world.found == []
    yield world
    world.close()


def last_batch(log: Log, offset: int) -> bytearray:
    """The newest batch of the log, as if it had that offset."""
    size = log.active.size // 5
    batch = bytearray(peek(log.active.log, log.active.size - size, size))
    batch[:8] = offset.to_bytes(8, "big", signed=True)
    return batch


def append_raw(replica: Replica, data: bytearray, end: int) -> None:
    """Write bytes into the log as if they were a batch that ends there."""
    log = replica.log
    log.active.log.append(data)
    log.active.size += len(data)
    log.offsets.log_end_offset = Offset(end)


# -- What is refused -------------------------------------------------------------------------


def test_offsets_that_are_left_out(checked: Checked) -> None:
    replica = checked.replica(2)
    append_raw(replica, last_batch(replica.log, 7), 8)
    checked.act(2)
    assert "offsets are missing between 5 and 7" in checked.only("I-02").what


def test_offsets_that_are_there_twice(checked: Checked) -> None:
    replica = checked.replica(2)
    append_raw(replica, last_batch(replica.log, 4), 6)
    checked.act(2)
    assert "the batch at offset 4 overlaps the one before it" in checked.only("I-02").what


def test_a_batch_below_its_segment(checked: Checked) -> None:
    replica = checked.replica(2)
    data = last_batch(replica.log, 4)
    replica.log.roller.roll(0)
    append_raw(replica, data, 6)
    checked.act(2)
    assert "the batch at offset 4 lies below its segment" in checked.only("I-02").what


def test_half_a_batch(checked: Checked) -> None:
    replica = checked.replica(2)
    append_raw(replica, last_batch(replica.log, 5)[:-1], 6)
    checked.act(2)
    assert "is no whole batch" in checked.only("I-02").what


@pytest.mark.parametrize("position", [16, 8])
def test_headers_that_make_no_sense(checked: Checked, position: int) -> None:
    log = checked.replica(2).log
    data = bytearray(peek(log.active.log, 0, log.active.size))
    assert header_fields(bytes(data), 0) is not None
    data[position] = 0x70
    assert header_fields(bytes(data), 0) is None
    assert header_fields(bytes(data[:60]), 0) is None


# -- Cuts ------------------------------------------------------------------------------------


def test_a_cut_takes_off_what_is_gone(checked: Checked) -> None:
    model, log = model_of(checked, 2), checked.replica(2).log
    log.truncation.truncate_to(Offset(2), 0)
    removed = model.cut()
    assert [batch.base_offset for batch in removed] == [2, 3, 4]
    assert (model.end, model.size_bytes) == (2, log.segments.size_bytes)
    log.truncation.truncate_to(Offset(0), 0)
    assert len(model.cut()) == 2
    assert (model.end, model.size_bytes, model.below(9)) == (-1, 0, None)


def test_a_cut_and_an_append_in_one_event(checked: Checked) -> None:
    model, log = model_of(checked, 2), checked.replica(2).log
    again = last_batch(log, 4)
    log.truncation.truncate_to(Offset(4), 0)
    log.appender.append_as_follower(again, 0)
    assert model.cut() == []
    assert model.end == 5
    again[-2] ^= 1
    again[12:16] = (1).to_bytes(4, "big")
    set_crc(again, 0, len(again))
    log.truncation.truncate_to(Offset(4), 0)
    log.appender.append_as_follower(again, 0)
    [gone] = model.cut()
    assert (gone.base_offset, gone.leader_epoch) == (4, 0)
    assert (model.end, model.batches[-1].leader_epoch) == (5, 1)


def test_a_log_that_begins_anew(checked: Checked) -> None:
    model, log = model_of(checked, 2), checked.replica(2).log
    log.truncation.truncate_fully_and_start_at(Offset(40), 0)
    checked.act(2)
    assert (model.end, model.log_start) == (-1, 40)
    assert "I-20" not in checked.found


def test_batches_meet_behind_what_was_unknown() -> None:
    """A log that starts with a batch does not know what stands before it."""
    findings = Findings(lambda: 0, lambda _: None)
    batches = Batches("t-0", findings)
    fields = (5, 49, 2, 2, 77, 0, 0, 0, 0, -1, -1, -1, 1)
    before = batches.meet((4, *fields[1:]), 61, None, BrokerId(1))
    first = batches.meet(fields, 61, None, BrokerId(2))
    assert batches.meet(fields, 61, before, BrokerId(1)) is first
    assert first.before is before
    assert batches.meet(fields, 61, None, BrokerId(3)) is first
    assert findings.violations == []
    assert batches.meet(fields, 62, before, BrokerId(3)) is not first
    assert [violation.invariant for violation in findings.violations] == ["I-21"]
    assert len(batches) == 2
    assert "epoch 2" in repr(first)


# -- Logs that fail, and logs that go --------------------------------------------------------


def test_a_log_that_fails_is_followed_to_its_last_append(checked: Checked) -> None:
    replica = checked.replica(1)
    for broker_id in (2, 3):
        checked.isolate(broker_id)
    replica.check_leading().append(last_batch_of_client(replica), checked.world[1].now)
    replica.log.advance_high_watermark_to(Offset(6))
    replica.log.health.fail("a test")
    checked.act(1)
    assert "I-14" in checked.found  # it committed alone, and that is seen
    replica.log.offsets.log_end_offset = Offset(99)
    checked.act(1)
    assert "I-02" not in checked.found


def last_batch_of_client(replica: Replica) -> bytearray:
    batch = last_batch(replica.log, 0)
    batch[43:51] = NO_OFFSET.to_bytes(8, "big", signed=True)
    set_crc(batch, 0, len(batch))
    return batch


def test_a_topic_that_is_made_anew_is_another_one(checked: Checked) -> None:
    request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000)
    controller_caller(checked.world, "admin").ask(request, 5)
    assert checked.world.run_until(lambda: "t" not in checked.world.image.topics)
    checked.world.run_for(1_000)
    [old] = [each for each in checked.checkers.rules.partitions if each.at == AT]
    assert old.models == {}
    assert old.state is None
    create_topic(checked.world, "t", (3, 2, 1))
    assert checked.world.run_until(checked.world.is_settled)
    checked._sequence = 0
    checked.write(2, to=3)
    new = checked.checkers.rules.partitions.named(AT)[-1]
    assert new is not old
    assert (old.committed_end, new.committed_end) == (5, 2)
    checked.checkers.at_phase_end()
    checked.checkers.at_end()
    assert checked.found == []


def test_the_epochs_of_a_log_that_starts_inside(checked: Checked) -> None:
    model = model_of(checked, 1)
    assert model.epoch_starts(0) == [(0, 0)]
    assert model.epoch_starts(3) == [(0, 3)]
    assert model.epoch_starts(5) == []
    state = replace(checked.state, leader_epoch=LeaderEpoch(1))
    checked.replica(1).become_leader(state, checked.world[1].now)
    checked.act(1)
    assert isinstance(model, LogModel)
    assert "I-03" not in checked.found
