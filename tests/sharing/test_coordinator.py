"""The share coordinator: who may write, what is durable, and what is found after a replay."""

from __future__ import annotations

from typing import Any

import pytest

from strandline.errors import ErrorCode
from strandline.protocol.acknowledge_type import AckType
from strandline.protocol.coordinator_log import CoordinatorRecord
from strandline.protocol.messages import delete_share_group_state as delete
from strandline.protocol.messages import initialize_share_group_state as initialize
from strandline.protocol.messages import read_share_group_state as read
from strandline.protocol.messages import write_share_group_state as write
from strandline.sharing.coordinator import ShareCoordinator
from strandline.sharing.effects import (
    AppendRecords,
    Effect,
    Prune,
    Reply,
    ShareCoordinatorSettings,
)
from strandline.sharing.partition import SharePartition
from strandline.sharing.values import AckBatch, Limits, LogBatch
from strandline.types import Instant, LeaderEpoch, TopicId

TOPIC = TopicId(int=7)
NOW = Instant(monotonic_ms=1_000, wall_ms=1_000_000)


class Stage:
    """One coordinator that leads the only partition of its topic, and the log of that."""

    def __init__(self, *, updates_per_snapshot: int = 3) -> None:
        self.settings = ShareCoordinatorSettings(updates_per_snapshot=updates_per_snapshot)
        self.log: list[CoordinatorRecord] = []
        self.answers: list[Any] = []
        self.fails_with: ErrorCode | None = None
        self.held: list[int] | None = None
        """Appends that are not durable yet, if they are held."""
        self.pruned_to = 0
        self.lead(1)

    def lead(self, epoch: int) -> None:
        """A new coordinator reads the log."""
        self.coordinator = ShareCoordinator(
            self.settings,
            partition_count=lambda: 1,
            uuid_text=str,
            has_partition=lambda topic_id, partition: topic_id == TOPIC,
        )
        leader_epoch = LeaderEpoch(epoch)
        self.carry_out(self.coordinator.start_loading(0, leader_epoch, NOW))
        assert self.coordinator.replay(0, leader_epoch, self.log) == 0
        self.carry_out(self.coordinator.finish_loading(0, leader_epoch, NOW))

    def carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                effect.done(effect.response, NOW)
            elif isinstance(effect, AppendRecords):
                if self.fails_with is None:
                    self.coordinator.placed(effect.append_id, len(self.log))
                    self.log += effect.records
                if self.held is not None:
                    self.held.append(effect.append_id)
                    continue
                ended = self.coordinator.appended(effect.append_id, self.fails_with, NOW)
                self.carry_out(ended)
            elif isinstance(effect, Prune):
                self.pruned_to = effect.before

    def prune(self, rounds: int) -> list[int]:
        """Let the interval of pruning pass so often: the length of the log after each round."""
        found = []
        for _ in range(rounds):
            at_ms = self.coordinator.next_deadline()
            assert at_ms is not None
            self.carry_out(self.coordinator.tick(Instant(at_ms, NOW.wall_ms)))
            found.append(len(self.log))
        return found

    def ask(self, request: Any) -> Any:
        """The answer for the one partition that is asked for; None: there is none yet."""

        def done(response: Any, _at: Instant) -> None:
            self.answers.append(response)

        self.carry_out(self.coordinator.handle(request, done, NOW))
        if not self.answers:
            return None
        ((part,),) = [result.partitions for result in self.answers.pop().results]
        return part

    def initialize(self, state_epoch: int, start: int, group: str = "g") -> Any:
        item = initialize.PartitionData(partition=0, state_epoch=state_epoch, start_offset=start)
        topic = initialize.InitializeStateData(topic_id=TOPIC, partitions=[item])
        return self.ask(initialize.InitializeShareGroupStateRequest(group_id=group, topics=[topic]))

    def read(self, leader_epoch: int) -> Any:
        item = read.PartitionData(partition=0, leader_epoch=leader_epoch)
        topic = read.ReadStateData(topic_id=TOPIC, partitions=[item])
        return self.ask(read.ReadShareGroupStateRequest(group_id="g", topics=[topic]))

    def delete(self) -> Any:
        item = delete.PartitionData(partition=0)
        topic = delete.DeleteStateData(topic_id=TOPIC, partitions=[item])
        return self.ask(delete.DeleteShareGroupStateRequest(group_id="g", topics=[topic]))

    def release(self) -> None:
        """What is held becomes durable, and nothing is held any more."""
        held, self.held = self.held, None
        for append_id in held or ():
            self.carry_out(self.coordinator.appended(append_id, None, NOW))

    def write(self, leader_epoch: int, batch: tuple[int, int, int, int], **fields: int) -> Any:
        first, last, state, deliveries = batch
        item = write.PartitionData(
            partition=0,
            state_epoch=fields.get("state_epoch", 1),
            leader_epoch=leader_epoch,
            start_offset=fields.get("start", -1),
            state_batches=[
                write.StateBatch(
                    first_offset=first,
                    last_offset=last,
                    delivery_state=state,
                    delivery_count=deliveries,
                )
            ],
        )
        topic = write.WriteStateData(topic_id=TOPIC, partitions=[item])
        return self.ask(write.WriteShareGroupStateRequest(group_id="g", topics=[topic]))


def batches(answer: Any) -> list[tuple[int, int, int, int]]:
    assert answer.error_code == ErrorCode.NONE
    return [
        (each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in answer.state_batches
    ]


def test_a_leader_of_an_older_epoch_may_not_write_once_another_has_read() -> None:
    stage = Stage()
    assert stage.initialize(1, 10).error_code == ErrorCode.NONE
    assert stage.read(4).start_offset == 10
    assert stage.write(4, (10, 12, 2, 1)).error_code == ErrorCode.NONE
    assert batches(stage.read(5)) == [(10, 12, 2, 1)]
    assert stage.write(4, (13, 13, 2, 1)).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert stage.read(4).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert batches(stage.read(5)) == [(10, 12, 2, 1)]


def test_a_state_of_before_a_new_initialisation_is_refused() -> None:
    stage = Stage()
    stage.initialize(1, 0)
    stage.read(1)
    assert stage.initialize(2, 50).error_code == ErrorCode.NONE
    assert stage.write(1, (0, 0, 2, 1)).error_code == ErrorCode.FENCED_STATE_EPOCH
    assert stage.initialize(1, 0).error_code == ErrorCode.FENCED_STATE_EPOCH
    assert stage.read(1).start_offset == 50


def test_an_initialisation_that_is_asked_for_again_changes_nothing() -> None:
    """A group coordinator that did not hear the answer asks anew, and so does the next one, while
    members may acknowledge records already."""
    stage = Stage()
    stage.initialize(1, 10)
    stage.read(1)
    stage.write(1, (10, 12, 2, 1))
    assert stage.initialize(1, 10).error_code == ErrorCode.NONE
    assert batches(stage.read(1)) == [(10, 12, 2, 1)]


def test_an_acknowledgement_counts_although_its_leader_died_before_it_heard_so() -> None:
    """Its records do not come again; so the member that was not told must not wait for them."""
    stage = Stage()
    stage.initialize(1, 0)
    stage.read(1)
    limits, member = Limits(), "m"
    had = SharePartition(0)
    had.acquire(member, [LogBatch(0, 4)], limits, NOW, records_max=5)
    assert had.acknowledge(member, [AckBatch(0, 4, [AckType.ACCEPT])], limits, NOW) is not None
    write = had.next_write()
    assert write is not None
    assert had.is_writing
    assert (write.start, write.batches) == (5, ())
    stage.write(1, (5, 5, 0, 0), start=write.start)
    found = stage.read(2)
    then = SharePartition.loaded(found.start_offset, (), log_start=0, log_end=5)
    assert then.acquire("n", [LogBatch(0, 4)], limits, NOW, records_max=5) == []
    assert then.first_offset == 5


@pytest.mark.parametrize("updates", [0, 1, 3, 500])
def test_the_next_coordinator_finds_what_was_written(updates: int) -> None:
    """Whether a change was an update or a snapshot."""
    stage = Stage(updates_per_snapshot=updates)
    stage.initialize(1, 0)
    stage.read(1)
    for offset in range(8):
        state = 2 if offset % 2 else 0
        written = stage.write(1, (offset, offset, state, offset % 3), start=offset // 4 * 2)
        assert written.error_code == ErrorCode.NONE
    before = stage.read(1)
    assert before.start_offset == 2
    assert [each[0] for each in batches(before)] == list(range(2, 8))
    stage.lead(2)
    after = stage.read(1)
    assert (after.start_offset, batches(after)) == (2, batches(before))
    assert stage.write(1, (8, 8, 2, 1)).error_code == ErrorCode.NONE


def test_a_write_that_fails_never_was() -> None:
    stage = Stage()
    stage.initialize(1, 0)
    stage.read(1)
    stage.fails_with = ErrorCode.KAFKA_STORAGE_ERROR
    assert stage.write(1, (0, 5, 2, 1)).error_code == ErrorCode.NOT_COORDINATOR
    stage.fails_with = None
    assert batches(stage.read(1)) == []
    stage.lead(2)
    assert batches(stage.read(1)) == []


def test_what_was_never_initialised_can_be_neither_read_nor_written() -> None:
    stage = Stage()
    assert stage.read(1).error_code == ErrorCode.INVALID_REQUEST
    assert stage.write(1, (0, 0, 2, 1)).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("is_loaded_again", [False, True])
def test_pruning_rests_when_the_log_has_nothing_but_what_is_needed(is_loaded_again: bool) -> None:
    """New snapshots of all states in turns were written for ever, each making the others old."""
    stage = Stage(updates_per_snapshot=100)
    for group in ("g", "h", "i"):
        stage.initialize(1, 0, group)
    stage.read(1)
    for offset in range(10):
        stage.write(1, (offset, offset, 2, 1))
    written = len(stage.log)
    if is_loaded_again:
        stage.lead(2)
    lengths = stage.prune(8)
    assert lengths[0] > written, "snapshots of the old states, for the log to be cut before them"
    assert lengths[3:] == [lengths[3]] * 5
    assert stage.pruned_to >= written


def test_a_log_that_is_always_written_to_is_pruned_as_well() -> None:
    """It was pruned only if nothing was on its way to followers at that moment, and grew for ever
    if that was never so."""
    stage = Stage()
    stage.initialize(1, 0)
    stage.read(1)
    stage.held = []
    stage.write(1, (0, 0, 2, 1))
    for offset in range(1, 40):
        stage.write(1, (offset, offset, 2, 1))
        stage.carry_out(stage.coordinator.appended(stage.held.pop(0), None, NOW))
        stage.answers.clear()
    stage.prune(2)  # after the first one the write is overdue
    assert len(stage.log) - 10 < stage.pruned_to < len(stage.log)


def test_a_topic_that_goes_while_its_states_are_loaded() -> None:
    """They stayed for ever, and with them the records of which they were made."""
    stage = Stage()
    stage.initialize(1, 0)
    coordinator, epoch = stage.coordinator, LeaderEpoch(2)
    stage.carry_out(coordinator.start_loading(0, epoch, NOW))
    assert coordinator.topics_deleted([TOPIC], NOW) == []
    coordinator.replay(0, epoch, stage.log)
    stage.carry_out(coordinator.finish_loading(0, epoch, NOW))
    assert stage.read(1).error_code == ErrorCode.INVALID_REQUEST
    assert stage.log[-1].value is None


def test_a_state_that_is_to_end_has_ended_when_that_is_durable() -> None:
    """Who asked again was told so at once. Were it lost, the next group of the name would find a
    state of a higher epoch than its own, and get no records."""
    stage = Stage()
    stage.initialize(5, 0)
    stage.held = []
    assert stage.delete() is None
    assert stage.delete() is None
    stage.release()
    codes = [answer.results[0].partitions[0].error_code for answer in stage.answers]
    assert codes == [ErrorCode.NONE, ErrorCode.NONE]


def test_a_state_begins_and_ends_twice_before_anything_is_durable() -> None:
    stage = Stage()
    stage.held = []
    for _ in range(2):
        stage.initialize(1, 0)
        stage.delete()
    stage.answers.clear()
    stage.release()
    stage.answers.clear()
    assert stage.read(1).error_code == ErrorCode.INVALID_REQUEST
    assert stage.initialize(1, 0).error_code == ErrorCode.NONE
