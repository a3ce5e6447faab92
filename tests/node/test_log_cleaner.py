"""Compaction as a node schedules it: what is due, what is asked for, what makes a round void."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from strandline.errors import ErrorCode, StorageError
from strandline.node import log_cleaner
from strandline.node.effects import CleanLog
from strandline.node.explain.compact import compaction_state
from strandline.node.follower_role import FollowerRole
from strandline.node.ledger.keeping import Reason
from strandline.node.why.subject import why
from strandline.protocol.messages.find_coordinator import FindCoordinatorRequest
from strandline.records.batch import iterate_headers
from strandline.records.own_batch import own_batch
from strandline.records.record import read_records
from strandline.storage.compaction.cleaning import CleaningAborted, Uncleanable, carry_out
from strandline.storage.files import DiskFull, OutOfHandles
from strandline.types import Offset, TopicPartition
from tests.node.messages import batch, produce, produced
from tests.node.world import DATA, World, failing

BACKOFF_MS = 15_000
T = "table"
CHECKPOINT = f"{DATA}/cleaner-offset-checkpoint"


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    world.create_topic(T, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
    yield world
    world.check()


def truncate(world: World, offset: int) -> None:
    """As a follower does it."""
    replica = world.replica(T)
    FollowerRole(replica, replica.host).truncate_to(Offset(offset), world.now, Reason.DIVERGED)


def write(world: World, topic: str, *keys: str, roll: bool = True) -> None:
    """Write one value per key, then close the segment."""
    client = world.connect()
    for number, key in enumerate(keys):
        data = batch(b"%d" % number, key=key.encode(), timestamp=world.now.wall_ms)
        answer = produced(client.ask(produce(data, topic), 9))
        assert answer.error_code == 0
    if roll:
        world.replica(topic).log.roller.roll(world.now.wall_ms)


def offsets(world: World, topic: str = T) -> list[int]:
    """The offsets that are still there."""
    data = world.log_bytes(topic)
    return [
        record.offset
        for position, _ in iterate_headers(data)
        for record in read_records(data, position)
    ]


def test_a_dirty_log_is_compacted_within_the_backoff(world: World) -> None:
    write(world, T, "a", "b", "a", "c", "a")
    world.advance(BACKOFF_MS)
    assert offsets(world) == [1, 3, 4]
    assert world.files.read_bytes(CHECKPOINT).splitlines()[2:] == [b"table 0 5"]
    cleaning = world.node.background.cleaning
    last = cleaning.last[world.replica(T).log]
    assert (last.problem, last.stats.records_read, last.stats.records_kept) == (None, 5, 3)
    assert not cleaning.is_under_way(world.replica(T).log)


def told(world: World, topic: str) -> list[str]:
    """The causes that `why` names."""
    found = why(world.node.parts, {"topic": topic}, world.now)["findings"]
    assert isinstance(found, list)
    return [each["cause"] for each in found if each["rule"] == "compaction"]


def test_why_tells_what_compaction_waits_for_and_what_it_has_removed(world: World) -> None:
    assert told(world, T) == []
    write(world, T, "a", "b", "a", roll=False)
    (waits,) = told(world, T)
    assert waits == "from offset 0 on it is not compacted yet: Nothing is cleanable"
    world.replica(T).log.roller.roll(world.now.wall_ms)
    (waits,) = told(world, T)
    assert "it is due, and waits for a cleaner thread: there are log.cleaner.threads=1" in waits
    world.advance(BACKOFF_MS)
    assert told(world, T) == ["below offset 3 it has only the newest record of each key"]
    world.create_topic("clean", cleanup_policy="compact", min_cleanable_dirty_ratio="1")
    write(world, "clean", "a")
    (waits,) = told(world, "clean")
    assert waits.endswith("The dirty ratio 1.000 does not exceed min.cleanable.dirty.ratio=1.0")


def test_what_is_not_compacted_stays(world: World) -> None:
    world.create_topic("deleted")
    write(world, "deleted", "a", "a")
    world.create_topic("clean", cleanup_policy="compact", min_cleanable_dirty_ratio="1")
    write(world, "clean", "a", "a")
    world.advance(3 * BACKOFF_MS)
    assert offsets(world, "deleted") == [0, 1]
    assert offsets(world, "clean") == [0, 1]


def test_the_dirtiest_log_is_first_and_one_at_a_time(world: World) -> None:
    world.holds_cleaning = True
    world.create_topic("more", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
    write(world, T, "a", "a", "b")
    world.advance(BACKOFF_MS)
    world.carry_on_cleaning()
    write(world, T, "a")
    write(world, "more", "a", "a")
    world.advance(2 * BACKOFF_MS)
    (held,) = world.held_cleaning
    assert held.plan.topic_partition.topic == "more", "all of it is dirty"
    world.carry_on_cleaning()
    world.advance(1)
    (held,) = world.held_cleaning
    assert held.plan.topic_partition.topic == T, "without another pause"
    world.carry_on_cleaning()


def test_threads_are_as_many_as_the_setting_says() -> None:
    world = World("log.cleaner.threads=2")
    world.holds_cleaning = True
    for topic in ("one", "two", "three"):
        world.create_topic(topic, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
        write(world, topic, "a", "a")
    world.advance(BACKOFF_MS)
    assert len(world.held_cleaning) == 2
    settings = world.held_cleaning[0].plan.settings
    assert settings.dedupe_buffer_bytes == 134_217_728 // 2
    world.carry_on_cleaning()
    world.advance(1)
    assert len(world.held_cleaning) == 1
    world.carry_on_cleaning()


def test_without_a_cleaner_nothing_is_compacted() -> None:
    world = World("log.cleaner.enable=false")
    world.create_topic(T, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
    write(world, T, "a", "a")
    world.advance(4 * BACKOFF_MS)
    assert offsets(world) == [0, 1]


def test_who_asks_gets_it_at_once_and_what_was_written_last_counts(world: World) -> None:
    world.create_topic("clean", cleanup_policy="compact", min_cleanable_dirty_ratio="1")
    write(world, "clean", "a", "b", "a", roll=False)
    world.node.background.cleaning.ask(world.replica("clean"), world.now)
    world.advance(1)
    assert offsets(world, "clean") == [1, 2]
    assert not world.node.background.cleaning.asked


def test_consumer_offsets_are_compacted(world: World) -> None:
    request = FindCoordinatorRequest(key="g", key_type=0)
    assert world.connect().ask(request, 2).error_code == 0
    replica = world.replica("__consumer_offsets")
    log = replica.log
    assert log.config.is_compacted
    for value in range(3):
        data = own_batch([(b"key", b"%d" % value)], timestamp=world.now.wall_ms)
        replica.check_leading().append_own(data, world.now)
    log.roller.roll(world.now.wall_ms)
    world.advance(BACKOFF_MS)
    assert offsets(world, "__consumer_offsets") == [2]


# -- What makes a round void -----------------------------------------------------------------


def hold_a_round(world: World) -> CleanLog:
    """Begin a round, and let it wait."""
    world.holds_cleaning = True
    write(world, T, "a", "b", "a", "a")
    world.advance(BACKOFF_MS)
    (held,) = world.held_cleaning
    return held


def test_r23_a_truncation_ends_a_round_and_lowers_the_checkpoint(world: World) -> None:
    write(world, T, "a", "a", "a")
    world.advance(BACKOFF_MS)
    assert world.directory.cleaner_offsets[TopicPartition(T, 0)] == 3
    held = hold_a_round(world)
    results = list(carry_out(held.plan, world.files))
    truncate(world, 1)
    world.turn()
    assert world.stopped_cleaning == [held.token]
    assert world.directory.cleaner_offsets[TopicPartition(T, 0)] == 1
    for result in results:
        world.node.log_cleaned(held.token, result, world.now)
    world.node.cleaning_ended(held.token, CleaningAborted("asked"), world.now)
    world.held_cleaning.clear()
    names = world.files.list_directory(f"{DATA}/{T}-0")
    assert not [name for name in names if name.endswith((".cleaned", ".swap"))]
    assert world.replica(T).log.log_end_offset == 1


def test_a_deleted_topic_ends_its_round(world: World) -> None:
    held = hold_a_round(world)
    results = list(carry_out(held.plan, world.files))
    world.delete_topic(T)
    assert world.stopped_cleaning == [held.token]
    for result in results:
        world.node.log_cleaned(held.token, result, world.now)
    world.node.cleaning_ended(held.token, CleaningAborted("gone"), world.now)
    world.held_cleaning.clear()
    world.advance(2 * BACKOFF_MS)
    assert not world.node.background.cleaning.last, "nothing is remembered of a log that is gone"


def test_a_log_that_is_loaded_again_waits_for_the_end_of_its_void_round() -> None:
    """Two rounds would write, and remove, files of the same names (I-36)."""
    world = World("log.cleaner.threads=2")
    world.create_topic(T, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
    first = hold_a_round(world)
    failed = world.replica(T)
    failed.fail(OutOfHandles("Too many open files."))
    world.advance(3 * BACKOFF_MS)
    assert world.replica(T) is not failed
    assert world.held_cleaning == [first]
    world.carry_on_cleaning()
    world.advance(BACKOFF_MS)
    world.carry_on_cleaning()
    assert offsets(world) == [1, 3]
    world.check()


def test_a_shutdown_ends_rounds_and_begins_none(world: World) -> None:
    held = hold_a_round(world)
    world.node.begin_shutdown(world.now)
    world.turn()
    assert world.stopped_cleaning == [held.token]
    world.node.cleaning_ended(held.token, CleaningAborted("asked"), world.now)
    world.held_cleaning.clear()
    world.advance(4 * BACKOFF_MS)
    assert not world.held_cleaning


def test_a_log_that_cannot_be_compacted_is_left_alone_until_a_request(world: World) -> None:
    held = hold_a_round(world)
    world.node.cleaning_ended(held.token, Uncleanable("It is damaged."), world.now)
    world.held_cleaning.clear()
    world.advance(4 * BACKOFF_MS)
    assert not world.held_cleaning
    cleaning = world.node.background.cleaning
    assert list(cleaning.uncleanable.values()) == ["It is damaged."]
    cleaning.ask(world.replica(T), world.now)
    world.advance(1)
    assert len(world.held_cleaning) == 1
    world.carry_on_cleaning()
    assert not cleaning.uncleanable


def test_a_full_disk_puts_compaction_off(world: World) -> None:
    held = hold_a_round(world)
    world.node.cleaning_ended(held.token, DiskFull("There is no room."), world.now)
    world.held_cleaning.clear()
    world.advance(1)
    assert not world.held_cleaning, "there is no more room at once"
    world.advance(BACKOFF_MS)
    assert len(world.held_cleaning) == 1
    world.carry_on_cleaning()
    assert world.directory.offline_reason is None
    assert offsets(world) == [1, 3]


def test_a_look_that_fails_is_not_the_last(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    write(world, T, "a", "b", "a", "c", "a")
    with monkeypatch.context() as patched:
        patched.setattr(log_cleaner, "choose", fail)
        world.advance(BACKOFF_MS)
    (bug,) = world.bugs
    assert bug.startswith("Looking for logs to compact failed")
    world.bugs.clear()
    world.advance(2 * BACKOFF_MS)
    assert offsets(world) == [1, 3, 4]


@pytest.mark.parametrize("at", ["round", "swap"])
def test_a_disk_that_fails_takes_the_directory_offline(world: World, at: str) -> None:
    held = hold_a_round(world)
    if at == "round":
        world.node.cleaning_ended(held.token, StorageError("It is broken."), world.now)
        world.held_cleaning.clear()
    else:
        world.files.on_call = failing({"rename"}, ".swap")
        world.carry_on_cleaning()
        world.files.on_call = None
    world.turn()
    assert world.directory.offline_reason is not None
    client = world.connect()
    answer = produced(client.ask(produce(batch(b"x", key=b"a"), T), 9))
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_retention_waits_for_a_round_of_the_log(world: World) -> None:
    world = World("log.initial.task.delay.ms=60000")
    world.create_topic(
        T, cleanup_policy="compact,delete", min_cleanable_dirty_ratio="0.01", retention_ms="1000"
    )
    held = hold_a_round(world)
    log = world.replica(T).log
    world.advance(60_000)
    assert log.log_start_offset == 4
    assert len(log.segments) == 2, "its files stay while they are read"
    world.carry_on_cleaning()
    world.advance(300_000)
    assert len(log.segments) == 1
    assert held.plan.topic_partition == TopicPartition(T, 0)


def test_a_restart_goes_on_from_the_checkpoint(world: World) -> None:
    write(world, T, "a", "a", "b")
    world.advance(BACKOFF_MS)
    world.kill_and_restart()
    assert world.directory.cleaner_offsets == {TopicPartition(T, 0): Offset(3)}
    write(world, T, "b")
    world.advance(BACKOFF_MS)
    assert offsets(world) == [1, 3]


def test_the_pace_is_told_when_it_changes() -> None:
    world = World("log.cleaner.io.max.bytes.per.second=1000")
    world.create_topic(T, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
    for _ in range(2):
        write(world, T, "a", "a")
        world.advance(BACKOFF_MS)
    assert world.paces == [1000.0]


def test_settings_that_leave_no_room_for_a_key_are_told_as_the_problem() -> None:
    world = World("log.cleaner.io.buffer.load.factor=0.00000001")
    world.create_topic(T, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
    write(world, T, "a", "a")
    cleaning, replica = world.node.background.cleaning, world.replica(T)
    cleaning.ask(replica, world.now)
    world.advance(1)
    state = compaction_state(cleaning, replica)
    assert state["state"] == "idle"
    problem = str(cleaning.last[replica.log].problem)
    assert "log.cleaner.io.buffer.load.factor lets it fill 1e-08" in problem
    cleaning.ask(replica, world.now)
    assert replica.log not in cleaning.last, "it would be told as the outcome of the new wish"


def test_a_round_whose_result_comes_too_late_is_not_told_as_done(world: World) -> None:
    hold_a_round(world)
    truncate(world, 1)
    world.carry_on_cleaning()
    last = world.node.background.cleaning.last[world.replica(T).log]
    assert last.problem is not None
    assert offsets(world) == [0]
