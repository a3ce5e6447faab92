"""Gaps between batches as compaction leaves them, some as wide as the offsets of a segment."""

from __future__ import annotations

from random import Random
from struct import pack_into
from uuid import UUID

import pytest

from strandline.config.topic import TopicConfig
from strandline.errors import StorageError
from strandline.records.batch import set_crc
from strandline.storage.files import DiskFull
from strandline.storage.log import Log
from strandline.storage.log_to_load import LogToLoad
from strandline.storage.memory_files import MemoryFiles
from strandline.storage.memory_inodes import CUTS, PowerCut
from strandline.types import LeaderEpoch, Offset, TopicPartition
from tests.node.followers import from_leader
from tests.node.messages import batch

AT = TopicPartition("c", 0)
PATH = "/d/c-0"
WIDE = 2**31
"""More than the offsets of a segment span."""


def made() -> tuple[MemoryFiles, Log]:
    files = MemoryFiles()
    files.make_directory("/d")
    files.sync_directory("/")
    log = Log.create(files, PATH, AT, TopicConfig(), now_ms=0, random=Random(1))
    log.assign_topic_id(UUID(int=5))
    return files, log


def follow(log: Log, offset: int, count: int = 1) -> None:
    log.appender.append_as_follower(from_leader(offset, *[b"x"] * count, leader_epoch=2), 1)


def after_crash(files: MemoryFiles) -> Log:
    found = LogToLoad(AT, PATH, Offset(0), Offset(0), Offset(0), needs_recovery=True)
    return Log.load(files, found, TopicConfig(), now_ms=2, random=Random(1))


@pytest.mark.parametrize("start", [0, 2**30, 2**30 + 5, WIDE - 3, WIDE, WIDE + 5, 3 * WIDE])
@pytest.mark.parametrize("count", [1, 10])
def test_a_batch_lies_in_a_segment_that_spans_its_offsets(start: int, count: int) -> None:
    """One that began inside the span of an empty segment, and ended outside, was taken into it."""
    _, log = made()
    follow(log, start, count)
    follow(log, start + count)
    log.roller.roll(1)
    follow(log, start + count + 1, count)
    for segment in log.segments.all:
        assert segment.end_offset() - 1 <= segment.last_offset_max
    assert log.log_end_offset == start + 2 * count + 1
    log.check()


@pytest.mark.parametrize("gap", [2**30 + 5, WIDE, WIDE + 5])
@pytest.mark.parametrize("end", ["killed", "flushed"])
def test_no_empty_segment_stays_in_front_of_a_gap(gap: int, end: str) -> None:
    """After a crash it told of records that were lost behind it: all that came was cut."""
    files, log = made()
    follow(log, gap)
    follow(log, gap + 1)
    log.check()
    if end == "flushed":
        plan = log.flusher.flush_plan()
        assert plan is not None
        assert plan.carry_out(files)
        files = files.crash_clone()
    else:
        files = files.kill_clone()
    found = after_crash(files)
    assert (found.log_end_offset, found.recovery_report.cuts) == (gap + 2, ())
    found.check()


def test_a_power_cut_leaves_no_more_than_the_new_segment() -> None:
    files, log = made()
    follow(log, WIDE + 5)
    for seed in range(50):
        found = after_crash(files.crash_clone(Random(seed)))
        assert found.log_end_offset in (0, WIDE + 5, WIDE + 6)
        found.check()


@pytest.mark.parametrize("leads", [False, True])
def test_a_batch_in_front_of_the_segment_that_was_begun_for_another(*, leads: bool) -> None:
    """There was no room for that behind a gap, and the next leader has one in front of it."""
    files, log = made()
    follow(log, 0)

    def fill(operation: str, path: str) -> None:
        if operation == "append" and f"{WIDE + 5:020d}.log" in path:
            raise DiskFull(f"Cannot append to {path}: No space left on device.")

    files.on_call = fill
    with pytest.raises(DiskFull):
        follow(log, WIDE + 5)
    files.on_call = None
    if leads:
        log.appender.append_as_leader(
            bytearray(batch(b"y", timestamp=1)), leader_epoch=LeaderEpoch(2), now_ms=1
        )
    else:
        follow(log, 1)
    assert log.segments.base_offsets[-1] <= 1
    follow(log, WIDE + 5)
    assert log.segments.base_offsets[-1] == WIDE + 5
    assert log.log_end_offset == WIDE + 6
    log.check()
    assert after_crash(files.kill_clone()).log_end_offset in (2, WIDE + 6)


def test_a_roll_that_cannot_remove_the_empty_segment_fails_the_log() -> None:
    files, log = made()

    def fail(operation: str, path: str) -> None:
        if operation == "remove" and path.endswith(f"{0:020d}.log"):
            raise StorageError(f"Cannot remove {path}: Input/output error.")

    files.on_call = fail
    with pytest.raises(StorageError):
        follow(log, WIDE + 5)
    files.on_call = None
    assert log.failure is not None
    assert log.log_end_offset == 0
    assert after_crash(files.kill_clone()).log_end_offset == 0


@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("gap", [2**30 + 5, WIDE, WIDE + 5])
def test_a_segment_behind_a_wide_gap_stays(count: int, gap: int) -> None:
    """After a crash the gap was taken for a loss, and all that came was cut."""
    files, log = made()
    for offset in range(count):
        follow(log, offset)
    follow(log, count + gap)
    follow(log, count + gap + 1)
    found = after_crash(files.kill_clone())
    assert (found.log_end_offset, found.recovery_report.cuts) == (count + gap + 2, ())
    found.check()


def test_a_segment_stays_whose_first_batch_ends_behind_a_wide_gap() -> None:
    files, log = made()
    follow(log, 0)
    sparse = bytearray(from_leader(2, b"x", leader_epoch=2))
    pack_into(">i", sparse, 23, WIDE - 1)  # the last offset, by that of the batch
    set_crc(sparse, 0, len(sparse))
    log.appender.append_as_follower(bytes(sparse), 1)
    assert log.segments.base_offsets == [0, 2]
    found = after_crash(files.kill_clone())
    assert (found.log_end_offset, found.recovery_report.cuts) == (WIDE + 2, ())


@pytest.mark.parametrize("mode", CUTS)
def test_what_a_power_cut_leaves_in_front_of_a_wide_gap_is_whole(mode: PowerCut) -> None:
    """The end of the old segment was lost, and what stood behind the gap was kept."""
    ends = set()
    for seed in range(40):
        files, log = made()
        for offset in range(5):
            follow(log, offset)
        log.location.make_durable()
        follow(log, WIDE + 5)
        found = after_crash(files.crash_clone(Random(seed), mode))
        ends.add(found.log_end_offset)
        found.check()
    assert ends <= {5, WIDE + 6}


@pytest.mark.parametrize("left", ["nothing", "zeros", "another batch"])
def test_a_gap_without_a_batch_that_called_for_it_is_a_loss(left: str) -> None:
    files, log = made()
    follow(log, 0)
    follow(log, WIDE + 5)
    segment = log.active
    if left == "zeros":
        segment.log.write_at(0, bytes(segment.size))
    else:
        segment.log.truncate(0)
    if left == "another batch":
        segment.log.append(from_leader(WIDE + 5 + 2**30, b"x", leader_epoch=2)[:40])
    found = after_crash(files.kill_clone())
    assert found.log_end_offset == 1


@pytest.mark.parametrize("mode", CUTS)
def test_a_gap_in_a_segment_does_not_hide_the_loss_of_its_end(mode: PowerCut) -> None:
    """Compaction writes such segments as a whole, but a follower that copies them does not."""
    for seed in range(60):
        files, log = made()
        follow(log, 0)
        follow(log, 5)
        log.location.make_durable()
        for offset in range(6, 12):
            follow(log, offset)
        log.roller.roll(1)
        follow(log, 12)
        found = after_crash(files.crash_clone(Random(seed), mode))
        ends = [segment.end_offset() for segment in found.segments.all]
        assert ends[:-1] == found.segments.base_offsets[1:]
