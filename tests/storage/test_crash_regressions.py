"""Accidents of logs and disks that random histories have found, each in its shortest form.

Found by tests/sim/test_disk_recovery.py and tests/sim/test_disk_damage.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from strandline.records.builder import build_control_batch
from strandline.records.control import ControlType, EndTransactionMarker
from strandline.storage.batch_scan import DamagedSegment
from strandline.storage.files import DiskFull
from strandline.storage.log import Log
from strandline.storage.log_directory import LogDirectory
from strandline.storage.log_to_load import LogToLoad
from strandline.storage.memory_files import MemoryFiles
from strandline.storage.segment import Segment
from strandline.storage.segment_names import OFFSET_INDEX, REBUILT, TIME_INDEX
from strandline.types import (
    BrokerId,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)
from tests.storage.conftest import SMALL, TOPIC_ID, World


@pytest.fixture
def world() -> World:
    return World(MemoryFiles(), "/data", "memory")


def _flush(world: World, log: Log, now_ms: int) -> None:
    plan = log.flusher.flush_plan()
    assert plan is not None
    plan.carry_out(world.files)
    log.flusher.mark_flushed(plan, now_ms)


def _follow(log: Log, kit: Any, *values: bytes, epoch: int) -> None:
    batch = kit.batch(*values, base_offset=log.log_end_offset, leader_epoch=epoch)
    log.appender.append_as_follower(batch, kit.now_ms)


def _memory(world: World) -> MemoryFiles:
    assert isinstance(world.files, MemoryFiles)
    return world.files


def test_a_log_start_that_falls_back_knows_the_epochs_there(world: World, kit: Any) -> None:
    """The table was cut at a log start that no checkpoint had; the log answered for epoch 0 with
    the start of epoch 2, and a diverged follower kept what it had of epoch 0."""
    log = world.create()
    for epoch, count in ((0, 4), (1, 6), (2, 3)):
        for _ in range(count):
            kit.append(log, b"x", epoch=epoch)
    log.advance_high_watermark_to(Offset(10))
    log.retention.delete_records_to(Offset(10))
    log.leader_epochs.assign(LeaderEpoch(3), log.log_end_offset)
    found = world.kill(log)
    assert found.log_start_offset == 0
    assert found.reader.end_offset_for_epoch(LeaderEpoch(0)) == (0, 4)
    assert found.reader.end_offset_for_epoch(LeaderEpoch(1)) == (1, 10)


def test_r13_a_lost_epoch_table_is_made_from_the_batches(world: World, kit: Any) -> None:
    log = world.create()
    for epoch in (0, 0, 3, 3, 7):
        kit.append(log, b"x", epoch=epoch)
    expected = log.leader_epochs.entries
    log.close_clean()
    world.files.remove(f"{world.directory}/leader-epoch-checkpoint")
    assert world.load(clean=True).leader_epochs.entries == expected


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_without_one_of_its_segments_is_refused(world: World, kit: Any, clean: bool) -> None:
    """F-55: readers and followers passed over the hole without a word."""
    log = world.create()
    kit.fill(log, 30)
    bases = list(log.segments.base_offsets)
    log.close_clean()
    world.files.remove(f"{world.directory}/{bases[1]:020d}.log")
    with pytest.raises(DamagedSegment, match=f"{bases[1]:020d}.log is gone"):
        world.load(clean=clean, recovery_point=30)
    # Above the recovery point that is what a power failure does: the log ends there.
    assert world.load(clean=False, recovery_point=0).log_end_offset == bases[1]


def test_a_recovery_point_above_the_log_is_not_left_on_disk(world: World, kit: Any) -> None:
    """A process that dies in a truncation leaves a recovery point of batches that are gone; the
    next ones at these offsets were taken for synced, and not looked at after a power failure."""
    directory: LogDirectory[Log] = LogDirectory(world.files, "/data")
    directory.open(BrokerId(1), "c")
    log = world.create()
    directory.add(log)
    directory.load_logs(_never)
    kit.fill(log, 12)
    _flush(world, log, kit.now_ms)
    directory.write_recovery_points()
    log.truncation.truncate_to(Offset(5), kit.now_ms)
    # The process is killed here, before it writes the recovery point.
    following: LogDirectory[Log] = LogDirectory(_memory(world).next_process(), "/data")
    following.open(BrokerId(1), "c")

    def load(found: LogToLoad) -> Log:
        assert found.recovery_point == 12
        return Log.load(following._files, found, SMALL, now_ms=kit.now_ms, random=Random(7))

    following.load_logs(load)
    assert following._recovery_points.read() == {log.topic_partition: 5}


def test_i22_a_high_watermark_above_the_log_is_not_left_on_disk(world: World, kit: Any) -> None:
    """What a power failure took was committed; other records that come there need not be."""
    directory: LogDirectory[Log] = LogDirectory(world.files, "/data")
    directory.open(BrokerId(1), "c")
    log = world.create()
    directory.add(log)
    directory.load_logs(_never)
    kit.fill(log, 5)
    _flush(world, log, kit.now_ms)
    kit.fill(log, 7)
    log.advance_high_watermark_to(Offset(12))
    directory.write_recovery_points()
    directory.write_high_watermarks()
    following: LogDirectory[Log] = LogDirectory(_memory(world).crash_clone(), "/data")
    following.open(BrokerId(1), "c")

    def load(found: LogToLoad) -> Log:
        assert found.high_watermark == 12
        return Log.load(following._files, found, SMALL, now_ms=kit.now_ms, random=Random(7))

    following.load_logs(load)
    assert following.logs[log.topic_partition].log_end_offset == 5
    assert following._high_watermarks.read() == {log.topic_partition: 5}


def _never(found: LogToLoad) -> Log:
    raise AssertionError(found)


def _cut_without_syncing(world: World, kit: Any) -> None:
    """A process dies between cutting the second of two batches, which are synced, and syncing the
    cut; `world` is that of the next process."""
    log = world.create()
    _follow(log, kit, b"kept", epoch=1)
    _follow(log, kit, b"old", epoch=1)
    _flush(world, log, kit.now_ms)
    files = _memory(world)

    class Killed(BaseException):
        pass

    def die(operation: str, path: str) -> None:
        if operation == "sync":
            raise Killed

    files.on_call = die
    with pytest.raises(Killed):
        log.truncation.truncate_to(Offset(1), kit.now_ms)
    world.files = files.next_process()


def test_a_truncated_batch_does_not_come_back_under_a_newer_leader(world: World, kit: Any) -> None:
    """The next process writes in its place, and then the power fails (I-21)."""
    _cut_without_syncing(world, kit)
    again = world.load(clean=False, recovery_point=1)
    assert again.log_end_offset == 1
    again.flusher.begin_epoch(LeaderEpoch(2), again.log_end_offset)
    _follow(again, kit, b"new", epoch=2)
    world.files = _memory(world).crash_clone()
    found = world.load(clean=False, recovery_point=1)
    assert kit.values(kit.records(found)) == [b"kept"]
    assert [tuple(each) for each in found.leader_epochs.entries] == [(1, 0)]
    assert not found.recovery_report.cuts, "the start after the kill has synced the cut"


def test_a_truncated_batch_does_not_come_back_below_newer_segments(world: World, kit: Any) -> None:
    """The next process writes and syncs a new segment, and then the power fails (I-02)."""
    _cut_without_syncing(world, kit)
    again = world.load(clean=False, recovery_point=2)
    again.roller.roll(kit.now_ms)
    again.leader_epochs.assign(LeaderEpoch(2), again.log_end_offset)
    _follow(again, kit, b"new", epoch=2)
    _flush(world, again, kit.now_ms)
    world.files = _memory(world).crash_clone()
    found = world.load(clean=False, recovery_point=again.recovery_point)
    assert kit.values(kit.records(found)) == [b"kept", b"new"]
    assert found.segments.first.size == again.segments.first.size


def test_deleting_old_segments_can_be_interrupted_anywhere(world: World, kit: Any) -> None:
    """F-52: a later rename may reach the disk before an earlier one."""
    log = world.create()
    kit.fill(log, 40)
    _flush(world, log, kit.now_ms)
    log.advance_high_watermark_to(Offset(40))
    start = log.segments.base_offsets[3]
    log.retention.delete_records_to(Offset(start))
    assert log.retention.drop_below_start(kit.now_ms) == 3
    expected = kit.records(log)
    for seed in range(60):
        world.files = _memory_of(log).crash_clone(Random(seed), "hole")
        found = world.load(clean=False, recovery_point=40, log_start_offset=start)
        assert (found.log_start_offset, kit.records(found)) == (start, expected)


def _memory_of(log: Log) -> MemoryFiles:
    assert isinstance(log.files, MemoryFiles)
    return log.files


def _images(log: Log, work: Callable[[], object]) -> list[MemoryFiles]:
    """What power failures in front of each operation leave, names in no order."""
    files, random = _memory_of(log), Random(5)
    images: list[MemoryFiles] = []

    def on_call(operation: str, path: str) -> None:
        images.extend(files.crash_clone(random, "hole") for _ in range(5))

    files.on_call = on_call
    work()
    files.on_call = None
    return images


def test_r16_a_new_segment_is_not_there_without_the_one_before(world: World, kit: Any) -> None:
    """F-52: the log began with a newer segment, and recovery did not miss the one before."""
    log = world.create()
    kit.fill(log, 3)
    log.roller.roll(kit.now_ms)
    kit.fill(log, 3)
    log.advance_high_watermark_to(Offset(4))
    log.retention.delete_records_to(Offset(4))
    log.retention.apply_retention(kit.now_ms)

    def work() -> None:
        log.roller.roll(kit.now_ms)
        kit.fill(log, 3)

    for image in _images(log, work):
        world.files = image
        found = world.load(clean=False, log_start_offset=4)
        assert found.log_start_offset == 4


def test_truncated_segments_go_one_after_another(world: World, kit: Any) -> None:
    """F-52: one in the middle was gone, and the last one still there."""
    log = world.create()
    kit.fill(log, 40)
    _flush(world, log, kit.now_ms)
    for image in _images(log, lambda: log.truncation.truncate_to(Offset(9), kit.now_ms)):
        world.files = image
        found = world.load(clean=False, recovery_point=40)
        assert [offset for offset, _ in kit.records(found)] == list(range(found.log_end_offset))


def test_a_log_that_begins_anew_below_its_start_says_so(world: World, kit: Any) -> None:
    """The old start in the checkpoint took all new records with it at the next crash."""
    log = world.create()
    kit.fill(log, 20)
    log.advance_high_watermark_to(Offset(20))
    log.retention.delete_records_to(Offset(15))
    assert not log.offsets.log_start_fell
    log.truncation.truncate_fully_and_start_at(Offset(3), kit.now_ms)
    assert log.offsets.log_start_fell


def test_an_abort_that_was_truncated_does_not_come_back(world: World, kit: Any) -> None:
    """Its entry in the index came back with the power and hid records that were committed."""
    log = world.create()
    kit.append(log, b"before")
    batch = kit.batch(b"in", producer_id=5, epoch=0, sequence=0, transactional=True)
    log.appender.append_as_leader(batch, leader_epoch=LeaderEpoch(0), now_ms=kit.now_ms)
    marker = build_control_batch(
        EndTransactionMarker(ControlType.ABORT, coordinator_epoch=1),
        timestamp=kit.now_ms,
        producer_id=ProducerId(5),
        producer_epoch=ProducerEpoch(0),
    )
    log.appender.append_as_coordinator(
        bytearray(marker), leader_epoch=LeaderEpoch(0), now_ms=kit.now_ms
    )
    _flush(world, log, kit.now_ms)
    assert log.reader.aborted_transactions(Offset(0), Offset(3))
    log.truncation.truncate_to(Offset(2), kit.now_ms)
    log.roller.roll(kit.now_ms)
    kit.fill(log, 3)
    _flush(world, log, kit.now_ms)
    world.files = _memory_of(log).crash_clone()
    found = world.load(clean=False, recovery_point=5)
    assert found.reader.aborted_transactions(Offset(0), found.log_end_offset) == []


def test_an_abort_that_was_flushed_is_known_after_a_power_cut(kit: Any) -> None:
    """The first abort of a segment makes the file of its index, after a flush of the segment."""
    for seed in range(60):
        world = World(MemoryFiles(), "/data", "memory")
        log = world.create(replace(SMALL, segment_bytes=10_000))
        batch = kit.batch(b"x", producer_id=7, epoch=0, sequence=0, transactional=True)
        log.appender.append_as_leader(batch, leader_epoch=LeaderEpoch(0), now_ms=kit.now_ms)
        _flush(world, log, kit.now_ms)
        marker = bytearray(
            build_control_batch(
                EndTransactionMarker(ControlType.ABORT, 0),
                timestamp=kit.now_ms,
                producer_id=ProducerId(7),
                producer_epoch=ProducerEpoch(0),
            )
        )
        log.appender.append_as_coordinator(marker, leader_epoch=LeaderEpoch(0), now_ms=kit.now_ms)
        _flush(world, log, kit.now_ms)
        assert log.recovery_point == 2
        log.roller.roll(kit.now_ms)
        assert isinstance(world.files, MemoryFiles)
        world.files = world.files.crash_clone(Random(seed), "hole")
        log = world.load(clean=False, recovery_point=2, high_watermark=2)
        assert log.reader.aborted_transactions(Offset(0), Offset(2)), seed


def test_i44_what_takes_the_place_of_what_was_cut_is_compacted(kit: Any) -> None:
    """The process ends between a truncation and the note that the log is dirty from there on."""
    files, at = MemoryFiles(), TopicPartition("orders", 0)

    def load(found: LogToLoad) -> Log:
        return Log.load(files, found, SMALL, now_ms=kit.now_ms, random=Random(1))

    def opened() -> LogDirectory[Log]:
        directory: LogDirectory[Log] = LogDirectory(files, "/data")
        assert directory.open(BrokerId(1), "cluster")
        assert directory.load_logs(load)
        return directory

    directory = opened()
    log = Log.create(files, "/data/orders-0", at, SMALL, now_ms=kit.now_ms, random=Random(1))
    log.assign_topic_id(TOPIC_ID)
    log.location.make_durable()
    directory.add(log)
    kit.fill(log, 20)
    directory.set_cleaner_offset(at, Offset(15))
    log.truncation.truncate_to(Offset(10), kit.now_ms)
    files = files.kill_clone()
    directory = opened()
    assert directory.logs[at].log_end_offset == 10
    assert directory.cleaner_offsets[at] == 10
    assert files.read_bytes("/data/cleaner-offset-checkpoint") == b"0\n1\norders 0 10\n"


def test_a_start_stays_in_the_table_when_its_segment_begins_there(world: World, kit: Any) -> None:
    """Retention dropped everything, the table forgot the start, and the power failure kept the
    renames but not the name of the new segment, or none of both: the log began at 0 again."""
    directory: LogDirectory[Log] = LogDirectory(world.files, "/data")
    directory.open(BrokerId(1), "c")
    log = world.create()
    directory.add(log)
    directory.load_logs(_never)
    kit.fill(log, 20)
    _flush(world, log, kit.now_ms)
    directory.write_recovery_points()
    log.advance_high_watermark_to(Offset(20))
    log.roller.roll(kit.now_ms)
    log.retention.delete_records_to(Offset(20))
    directory.write_log_starts()
    assert log.retention.drop_below_start(kit.now_ms) > 2
    directory.write_log_starts()
    directory.write_recovery_points()
    for seed in range(40):
        image = _memory_of(log).crash_clone(Random(seed), "hole")
        following: LogDirectory[Log] = LogDirectory(image, "/data")
        following.open(BrokerId(1), "c")

        def load(found: LogToLoad, files: MemoryFiles = image) -> Log:
            return Log.load(files, found, SMALL, now_ms=kit.now_ms, random=Random(7))

        assert following.load_logs(load), following.offline_reason
        (again,) = following.logs.values()
        assert (again.log_start_offset, again.log_end_offset) == (20, 20)


def test_i46_an_epoch_that_could_not_be_cut_is_not_followed(world: World, kit: Any) -> None:
    """An empty epoch was cut in memory, on a full disk. What the follower fetched since, in an
    older epoch, was taken for truncated records after a crash, and given up."""
    log = world.create()
    _follow(log, kit, b"first", epoch=1)
    log.leader_epochs.assign(LeaderEpoch(5), log.log_end_offset)

    def is_full(operation: str, path: str) -> None:
        if "leader-epoch" in path:
            raise DiskFull(f"Cannot {operation} {path}: it is a test.")

    _memory(world).on_call = is_full
    with pytest.raises(DiskFull):
        log.truncation.truncate_to(Offset(1), kit.now_ms)
    assert log.leader_epochs.latest == 5, "else it goes on to fetch records of epoch 1"
    _memory(world).on_call = None
    log.truncation.truncate_to(Offset(1), kit.now_ms)
    _follow(log, kit, b"second", epoch=1)
    found = world.kill(log)
    assert kit.values(kit.records(found)) == [b"first", b"second"]


def test_i04_an_index_made_anew_is_whole_or_not_there(world: World, kit: Any) -> None:
    """A reader that finds a closed segment without its index makes it anew. Half of it survived a
    power failure, and recovery, which trusts what lies below the recovery point, took it as it was.
    """
    log = world.create(replace(SMALL, index_interval_bytes=1))
    while len(log.segments) < 3:
        kit.append(log, b"x" * 20, timestamp=kit.now_ms + log.log_end_offset)
    _flush(world, log, kit.now_ms)
    segment = log.segments.all[1]
    paths = [segment.path(OFFSET_INDEX), segment.path(TIME_INDEX)]
    whole = [world.files.read_bytes(path) for path in paths]

    def read_without_indexes(crash_at: int) -> tuple[bool, MemoryFiles]:
        """A disk without the indexes, after a read of the segment until the n-th operation."""
        world.files = _memory(world).kill_clone()
        for path in paths:
            world.files.remove(path)
        world.files.sync_directory(world.directory)
        left = crash_at

        def crash(operation: str, path: str) -> None:
            nonlocal left
            left -= 1
            if not left:
                raise _Crash

        found = Segment.existing(world.files, world.directory, segment.base_offset)
        found.index_interval_bytes = 1
        _memory(world).on_call = crash
        try:
            found.find(segment.base_offset)
        except _Crash:
            return False, _memory(world)
        finally:
            _memory(world).on_call = None
        return True, _memory(world)

    is_done, crash_at = False, 0
    while not is_done:
        crash_at += 1
        is_done, left = read_without_indexes(crash_at)
        for number in range(20):
            clone = left.crash_clone(Random(number))
            found = [clone.read_bytes(path) if clone.exists(path) else None for path in paths]
            for seen, expected in zip(found, whole, strict=True):
                assert seen in (None, expected), (crash_at, number)
            if is_done:
                assert found == whole, "it is durable before any reader uses it"
    assert crash_at > 5


def test_i04_an_index_half_made_is_gone_after_a_start(world: World, kit: Any) -> None:
    log = world.create()
    while len(log.segments) < 3:
        kit.append(log, b"x" * 20)
    _flush(world, log, kit.now_ms)
    path = log.segments.first.path(OFFSET_INDEX) + REBUILT
    world.files.open(path, create=True).append(b"half")
    found = world.kill(log, recovery_point=log.recovery_point)
    assert not world.files.exists(path)
    assert any(path in note for note in found.recovery_report.notes)


class _Crash(BaseException):
    """The process ends here."""
