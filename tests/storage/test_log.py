"""A log in ordinary life: append, read, roll, truncate, retain, reopen, on three kinds of disk."""

from __future__ import annotations

from typing import Any

import pytest

from strandline.config.topic import TopicConfig
from strandline.errors import (
    CorruptRecords,
    ErrorCode,
    InvariantViolated,
    ProtocolError,
    StorageError,
)
from strandline.records.batch import parse_header
from strandline.records.builder import build_control_batch
from strandline.records.codec import Codec
from strandline.records.control import ControlType, EndTransactionMarker
from strandline.storage import log_appender
from strandline.storage.files import NoRoom, OutOfHandles
from strandline.storage.leader_epochs import LeaderEpochs
from strandline.storage.log import Log
from strandline.storage.log_appender import AppendResult, UnexpectedOffset
from strandline.storage.memory_files import MemoryFiles
from strandline.storage.segment import Segment
from strandline.storage.tail import BATCHES_KEPT, Tail
from strandline.types import LeaderEpoch, Offset, ProducerEpoch, ProducerId
from tests.storage.conftest import World

EPOCH = LeaderEpoch(0)


def test_what_is_appended_is_read_back_with_its_offsets(world: Any, kit: Any) -> None:
    log = world.create()
    assert kit.append(log, b"a", b"b") == 0
    assert kit.append(log, b"c") == 2
    assert kit.records(log) == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert kit.records(log, 1) == [(1, b"b"), (2, b"c")]
    assert log.log_end_offset == 3
    log.check()


def test_the_leader_stamps_its_epoch_and_notes_where_it_starts(world: Any, kit: Any) -> None:
    log = world.create()
    kit.append(log, b"a", epoch=3)
    kit.append(log, b"b", epoch=5)
    assert [tuple(e) for e in log.leader_epochs.entries] == [(3, 0), (5, 1)]
    assert log.reader.end_offset_for_epoch(LeaderEpoch(3)) == (3, 1)
    log = world.reopen(log)
    assert [tuple(e) for e in log.leader_epochs.entries] == [(3, 0), (5, 1)]


def test_a_refused_batch_leaves_the_log_as_it_was(world: Any, kit: Any) -> None:
    log = world.create()
    kit.append(log, b"a")
    bad = kit.batch(b"b")
    bad[-1] ^= 1
    with pytest.raises(ProtocolError) as refused:
        log.appender.append_as_leader(bad, leader_epoch=EPOCH, now_ms=kit.now_ms)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    assert kit.records(log) == [(0, b"a")]


def test_a_batch_that_cannot_be_checked_for_want_of_memory_leaves_the_log_as_it_was(
    world: Any, kit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = world.create()
    with monkeypatch.context() as patch:
        patch.setattr(log_appender, "validate_client_batch", run_out_of_memory)
        with pytest.raises(NoRoom, match="no memory to check"):
            kit.append(log, b"a")
    assert kit.append(log, b"a") == 0


@pytest.mark.parametrize("role", ["leader", "coordinator", "follower"])
def test_r15_memory_that_runs_out_behind_a_write_fails_the_log_until_it_is_loaded(
    world: Any, kit: Any, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    """What is on disk and what is in memory differ then: another append would repeat an offset."""
    log = world.create()
    kit.append(log, b"a", epoch=1)

    def append(log: Any, value: bytes, offset: int) -> None:
        batch = kit.batch(value)
        if role == "follower":
            batch = kit.batch(value, base_offset=offset, leader_epoch=1)
            log.appender.append_as_follower(batch, kit.now_ms)
        elif role == "leader":
            log.appender.append_as_leader(batch, leader_epoch=LeaderEpoch(1), now_ms=kit.now_ms)
        else:
            log.appender.append_as_coordinator(
                batch, leader_epoch=LeaderEpoch(1), now_ms=kit.now_ms
            )

    with monkeypatch.context() as patch:
        patch.setattr(Tail, "add", run_out_of_memory)
        with pytest.raises(NoRoom, match="to finish an append"):
            append(log, b"b", 1)
    assert log.health.may_reload
    with pytest.raises(StorageError, match="failed"):
        append(log, b"c", 1)
    log = world.kill(log)
    append(log, b"c", log.log_end_offset)
    assert kit.records(log) == [(0, b"a"), (1, b"b"), (2, b"c")]


@pytest.mark.parametrize("is_full", [False, True])
def test_a_truncation_without_memory_leaves_a_log_that_is_loaded_again(
    world: Any, kit: Any, monkeypatch: pytest.MonkeyPatch, *, is_full: bool
) -> None:
    """Its segments are gone, and its offsets and producers do not know."""
    log = world.create()
    kit.fill(log, 30)
    truncation = log.truncation
    patched = "clear" if is_full else "truncate_from_end"
    truncate = truncation.truncate_fully_and_start_at if is_full else truncation.truncate_to
    with monkeypatch.context() as patch:
        patch.setattr(LeaderEpochs, patched, run_out_of_memory)
        with pytest.raises(NoRoom, match="no memory to cut"):
            truncate(Offset(40 if is_full else 7), kit.now_ms)
    assert log.health.may_reload
    log = world.kill(log)
    assert [offset for offset, _ in kit.records(log)] == ([] if is_full else list(range(7)))
    log.check()


def test_a_log_that_could_not_begin_anew_begins_there_when_it_is_loaded_again(
    world: Any, kit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seed 118008656: loaded where it began before, it took offsets that were given already."""
    log = world.create()
    kit.append(log, b"a", b"b", epoch=1)

    def cannot_open(*_: object) -> Segment:
        raise OutOfHandles("Too many open files.")

    monkeypatch.setattr(Segment, "create", cannot_open)
    with pytest.raises(OutOfHandles):
        log.truncation.truncate_fully_and_start_at(Offset(5), kit.now_ms)
    assert log.health.may_reload
    assert log.log_start_offset == 5


def run_out_of_memory(*_: object, **__: object) -> None:
    raise MemoryError


def test_a_log_rolls_by_size_and_reads_across_segments(world: Any, kit: Any) -> None:
    log = world.create()
    kit.fill(log, 30)
    assert len(log.segments) > 3
    assert all(segment.size <= 1000 for segment in log.segments.all)
    assert [offset for offset, _ in kit.records(log)] == list(range(30))
    assert log.flusher.wants_flush
    for name in kit.names(world, ".index", ".timeindex"):
        size = world.files.size_of(f"{world.directory}/{name}")
        is_active = name.startswith(f"{log.active.base_offset:020d}")
        assert size in (4096, 4092) if is_active else size < 200


def test_a_log_rolls_by_the_time_of_its_records(world: Any, kit: Any) -> None:
    log = world.create(TopicConfig(segment_ms=1000))
    kit.append(log, b"a", timestamp=kit.now_ms)
    kit.append(log, b"b", timestamp=kit.now_ms + 1000)
    assert len(log.segments) == 1
    kit.append(log, b"c", timestamp=kit.now_ms + 1001)
    assert list(log.segments.base_offsets) == [0, 2]
    assert not log.roller.roll_if_time_due(kit.now_ms + 2001)
    assert log.roller.roll_if_time_due(kit.now_ms + 2002)
    assert not log.roller.roll_if_time_due(kit.now_ms + 9999), "an empty segment stays"


def test_a_log_that_is_filled_with_old_records_is_not_rolled_at_each_check(
    world: Any, kit: Any
) -> None:
    """As by a backfill: by the time of its first record each new segment is due at once."""
    log = world.create(TopicConfig(segment_ms=1000))
    for ms in range(0, 1000, 100):
        kit.append(log, b"x", timestamp=kit.now_ms - 86_400_000 + ms, now_ms=kit.now_ms + ms)
        assert not log.roller.roll_if_time_due(kit.now_ms + ms)
    assert log.roller.roll_if_time_due(kit.now_ms + 1001)
    kit.append(log, b"x", timestamp=kit.now_ms - 86_400_000, now_ms=kit.now_ms + 1002)
    assert not log.roller.roll_if_time_due(kit.now_ms + 1003)


def test_a_log_that_is_not_written_to_is_rolled_however_often_it_is_loaded(kit: Any) -> None:
    files = MemoryFiles()
    files.now_ms = kit.now_ms
    world = World(files, "/data", "memory")
    log = world.create(TopicConfig(segment_ms=1000))
    kit.append(log, b"x", timestamp=kit.now_ms)
    log.close()
    log = world.load(clean=True, recovery_point=1, now_ms=kit.now_ms + 900)
    assert not log.roller.roll_if_time_due(kit.now_ms + 1000)
    assert log.roller.roll_if_time_due(kit.now_ms + 1001)


def test_r39_a_roll_of_an_empty_active_segment_keeps_it(world: Any, kit: Any) -> None:
    """KAFKA-6388: the new segment would have the files of the one that is there."""
    log = world.create()
    kit.fill(log, 5)
    log.roller.roll(kit.now_ms)
    names = kit.names(world, ".log")
    assert log.roller.roll(kit.now_ms) is log.active
    assert (log.active.base_offset, log.active.size) == (5, 0)
    assert kit.names(world, ".log") == names
    kit.append(log, b"behind")
    log = world.reopen(log)
    assert kit.records(log)[-1] == (5, b"behind")
    log.check()


def test_records_without_a_time_roll_by_the_wall_clock(world: Any, kit: Any) -> None:
    log = world.create(TopicConfig(segment_ms=1000))
    kit.append(log, b"a", timestamp=-1)
    kit.append(log, b"b", timestamp=-1, now_ms=kit.now_ms + 1000)
    assert len(log.segments) == 1
    kit.append(log, b"c", timestamp=-1, now_ms=kit.now_ms + 1001)
    assert len(log.segments) == 2


def test_a_full_index_closes_the_segment(world: Any, kit: Any) -> None:
    log = world.create(TopicConfig(segment_index_bytes=36, index_interval_bytes=1))
    kit.fill(log, 12)
    # 36 bytes are 4 offset entries and 3 time entries, one of them reserved for the closing.
    assert len(log.segments) >= 3
    assert [offset for offset, _ in kit.records(log)] == list(range(12))


def test_an_offset_too_far_for_the_index_closes_the_segment(world: Any, kit: Any) -> None:
    log = world.create()
    log.appender.append_as_follower(kit.batch(b"a", leader_epoch=0), kit.now_ms)
    far = 2**31
    log.appender.append_as_follower(kit.batch(b"b", base_offset=far, leader_epoch=0), kit.now_ms)
    assert list(log.segments.base_offsets) == [0, far]
    assert kit.records(log) == [(0, b"a"), (far, b"b")]
    assert kit.records(world.reopen(log)) == [(0, b"a"), (far, b"b")]


def test_reading_outside_the_log_is_out_of_range(world: Any, kit: Any) -> None:
    log = world.create()
    kit.fill(log, 20)
    log.advance_high_watermark_to(Offset(20))
    log.retention.delete_records_to(Offset(5))
    for offset in (-1, 4, 21):
        with pytest.raises(ProtocolError) as refused:
            log.reader.read(Offset(offset), 100, end_offset=Offset(20), at_least_one_batch=True)
        assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.reader.read(Offset(20), 100, end_offset=Offset(20), at_least_one_batch=True) is None


@pytest.mark.parametrize("drop_tail", [False, True])
def test_every_read_is_whole_batches_below_its_end(world: Any, kit: Any, drop_tail: bool) -> None:
    log = world.create(TopicConfig(segment_bytes=2000, index_interval_bytes=300))
    for index in range(40):
        kit.append(log, *[b"%d" % index] * (index % 3 + 1))
    if drop_tail:
        log = world.reopen(log)
    end = log.log_end_offset
    whole = kit.bytes_from(log, 0)
    for offset in range(end):
        for end_offset in (offset, offset + 1, offset + 7, end):
            for max_bytes in (1, 200, 700, 1 << 20):
                part = log.reader.read(
                    Offset(offset),
                    max_bytes,
                    end_offset=Offset(min(end, end_offset)),
                    at_least_one_batch=True,
                )
                expected = _expected_slice(log, kit, whole, offset, min(end, end_offset), max_bytes)
                found = None if part is None else part.file.read_at(part.position, part.length)
                assert found == expected, (offset, end_offset, max_bytes)
                small = log.reader.read(
                    Offset(offset), 1, end_offset=Offset(end), at_least_one_batch=False
                )
                assert small is None


def _expected_slice(
    log: Any, kit: Any, whole: bytes, offset: int, end_offset: int, max_bytes: int
) -> bytes | None:
    """What a read must give, worked out by a linear scan of the whole log."""
    from strandline.records.batch import iterate_headers

    bases = list(log.segments.base_offsets)
    taken = b""
    segment_of_first = None
    for position, header in iterate_headers(whole):
        if header.last_offset < offset:
            continue
        if header.last_offset >= end_offset:
            break
        segment = max(base for base in bases if base <= header.base_offset)
        if segment_of_first is None:
            segment_of_first = segment
        if segment != segment_of_first or (taken and len(taken) + header.size_bytes > max_bytes):
            break
        taken += whole[position : position + header.size_bytes]
    return taken or None


def test_a_time_finds_the_first_record_as_new_as_it(world: Any, kit: Any) -> None:
    log = world.create()
    times = [10, 20, 20, 15, 40, 30, 50, 50, 45, 60, 5, 70] * 3
    for index, extra in enumerate(times):
        codec = Codec.GZIP if index % 2 else Codec.NONE
        batch = kit.batch(b"x" * 40, b"y", timestamp=kit.now_ms + extra, codec=codec)
        log.appender.append_as_leader(batch, leader_epoch=EPOCH, now_ms=kit.now_ms)
    stamps = [kit.now_ms + extra + i for extra in times for i in (0, 1)]
    for reopened in (False, True):
        current = world.reopen(log) if reopened else log
        for wanted in range(kit.now_ms, kit.now_ms + 80):
            expected = next(((t, o) for o, t in enumerate(stamps) if t >= wanted), None)
            found = current.reader.offset_for_timestamp(wanted)
            assert (None if found is None else (found.timestamp, found.offset)) == expected
        newest = current.reader.max_timestamp_offset()
        assert newest is not None
        assert (newest.timestamp, newest.offset) == (max(stamps), stamps.index(max(stamps)))


def test_the_newest_record_is_one_that_was_not_deleted(world: Any, kit: Any) -> None:
    log = world.create(TopicConfig())
    for extra in (9, 3, 7, 5):
        batch = kit.batch(b"x", b"y", timestamp=kit.now_ms + 10 * extra)
        log.appender.append_as_leader(batch, leader_epoch=EPOCH, now_ms=kit.now_ms)
    log.advance_high_watermark_to(log.log_end_offset)
    for log_start, newest in ((1, 1), (2, 5), (5, 5), (6, 7), (7, 7), (8, None)):
        log.retention.delete_records_to(Offset(log_start))
        found = log.reader.max_timestamp_offset()
        assert (None if found is None else found.offset) == newest


def test_to_find_a_time_in_a_large_segment_a_small_part_of_it_is_read(kit: Any) -> None:
    files = MemoryFiles()
    log = World(files, "/data", "memory").create(TopicConfig())
    for index in range(500):
        kit.append(log, b"x" * 5000, timestamp=kit.now_ms + index // 2)
    reads: list[str] = []
    files.on_call = lambda operation, path: reads.append(path) if operation == "read" else None
    newest = log.reader.max_timestamp_offset()
    assert newest is not None
    assert newest.offset == 498
    exact = log.reader.offset_for_timestamp(kit.now_ms + 200)
    assert exact is not None
    assert exact.offset == 400
    assert len(reads) < 40


def test_log_append_time_is_the_time_of_every_record(world: Any, kit: Any) -> None:
    log = world.create(TopicConfig(message_timestamp_type="LogAppendTime"))
    result = log.appender.append_as_leader(
        kit.batch(b"a"), leader_epoch=EPOCH, now_ms=kit.now_ms + 77
    )
    assert result.log_append_time_ms == kit.now_ms + 77
    found = log.reader.offset_for_timestamp(kit.now_ms + 1)
    assert found is not None
    assert (found.timestamp, found.offset) == (kit.now_ms + 77, 0)


def test_a_duplicate_is_answered_with_its_first_append(world: Any, kit: Any) -> None:
    log = world.create()
    first = kit.batch(b"a", b"b", producer_id=9, epoch=0, sequence=0)
    again = bytearray(first)
    result = log.appender.append_as_leader(first, leader_epoch=EPOCH, now_ms=kit.now_ms)
    duplicate = log.appender.append_as_leader(again, leader_epoch=EPOCH, now_ms=kit.now_ms)
    assert duplicate.is_duplicate
    assert duplicate[:2] == result[:2]
    assert log.log_end_offset == 2
    gap = kit.batch(b"c", producer_id=9, epoch=0, sequence=5)
    with pytest.raises(ProtocolError) as refused:
        log.appender.append_as_leader(gap, leader_epoch=EPOCH, now_ms=kit.now_ms)
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    log = world.reopen(log)
    again = kit.batch(b"a", b"b", producer_id=9, epoch=0, sequence=0)
    assert log.appender.append_as_leader(again, leader_epoch=EPOCH, now_ms=kit.now_ms).is_duplicate


def _end(log: Any, kit: Any, *, commits: bool, producer_id: int = 9) -> None:
    marker = build_control_batch(
        EndTransactionMarker(ControlType.COMMIT if commits else ControlType.ABORT, 1),
        timestamp=kit.now_ms,
        producer_id=ProducerId(producer_id),
        producer_epoch=ProducerEpoch(0),
    )
    log.appender.append_as_coordinator(bytearray(marker), leader_epoch=EPOCH, now_ms=kit.now_ms)


def test_an_open_transaction_holds_the_last_stable_offset(world: Any, kit: Any) -> None:
    log = world.create()
    kit.append(log, b"plain")
    batch = kit.batch(b"a", producer_id=9, epoch=0, sequence=0, transactional=True)
    log.appender.append_as_leader(batch, leader_epoch=EPOCH, now_ms=kit.now_ms)
    kit.append(log, b"plain")
    log.advance_high_watermark_to(Offset(3))
    assert log.last_stable_offset == 1
    _end(log, kit, commits=False)
    assert log.last_stable_offset == 1, "the marker is not replicated yet"
    log.advance_high_watermark_to(Offset(4))
    assert log.last_stable_offset == 4
    for step in range(3):
        if step:
            log = world.reopen(log) if step == 1 else world.kill(log)
        aborted = log.reader.aborted_transactions(Offset(0), Offset(4))
        assert [(a.producer_id, a.first_offset, a.last_offset) for a in aborted] == [(9, 1, 3)]


def test_segments_with_aborts_are_found_among_many_without(world: Any, kit: Any) -> None:
    log = world.create()
    expected: list[int] = []
    for round_number in range(4):
        kit.fill(log, 30)  # over several segments, which have no aborts
        assert [a.last_offset for a in _aborted(log, 0)] == expected
        batch = kit.batch(b"a", producer_id=9, epoch=0, sequence=round_number, transactional=True)
        log.appender.append_as_leader(batch, leader_epoch=EPOCH, now_ms=kit.now_ms)
        assert [a.last_offset for a in _aborted(log, 0)] == expected
        _end(log, kit, commits=False)
        expected.append(log.log_end_offset - 1)
        assert [a.last_offset for a in _aborted(log, 0)] == expected
    assert len(log.segments) > 8
    for index, last in enumerate(expected):
        assert [a.last_offset for a in _aborted(log, last)] == expected[index:]
    assert log.truncation.truncate_to(Offset(expected[2]), kit.now_ms)
    assert [a.last_offset for a in _aborted(log, 0)] == expected[:2]


def _aborted(log: Any, since: int) -> list[Any]:
    found = log.reader.aborted_transactions(Offset(since), log.log_end_offset)
    return list(found)


def test_a_follower_takes_batches_as_they_are(world: Any, kit: Any) -> None:
    log = world.create()
    data = kit.batch(b"a", b"b", leader_epoch=2) + kit.batch(b"c", base_offset=2, leader_epoch=4)
    result = log.appender.append_as_follower(data + data[:30], kit.now_ms)
    assert (result.base_offset, result.last_offset, result.size_bytes) == (0, 2, len(data))
    assert kit.bytes_from(log, 0) == bytes(data)
    assert [tuple(e) for e in log.leader_epochs.entries] == [(2, 0), (4, 2)]


def test_a_follower_takes_more_than_one_segment_at_once(world: Any, kit: Any) -> None:
    leader, log = world.create(), None
    kit.fill(leader, 30)
    data = kit.bytes_from(leader, 0)
    world.directory += "-follower"
    log = world.create()
    log.appender.append_as_follower(data, kit.now_ms)
    assert len(log.segments) > 3
    assert kit.bytes_from(log, 0) == data


def test_a_follower_refuses_what_does_not_continue_its_log(world: Any, kit: Any) -> None:
    log = world.create()
    log.appender.append_as_follower(kit.batch(b"a", b"b", leader_epoch=2), kit.now_ms)
    good = kit.batch(b"c", base_offset=2, leader_epoch=2)
    with pytest.raises(UnexpectedOffset, match="must start at 2"):
        log.appender.append_as_follower(kit.batch(b"x", base_offset=1, leader_epoch=2), kit.now_ms)
    with pytest.raises(UnexpectedOffset, match="leader epoch 1"):
        log.appender.append_as_follower(kit.batch(b"x", base_offset=2, leader_epoch=1), kit.now_ms)
    bad = kit.batch(b"d", base_offset=3, leader_epoch=2)
    bad[-1] ^= 1
    with pytest.raises(CorruptRecords, match="checksum"):
        log.appender.append_as_follower(good + bad, kit.now_ms)
    assert log.log_end_offset == 2, "nothing is written when a part is bad"


def test_a_follower_leaves_batches_of_a_leader_it_does_not_know(world: Any, kit: Any) -> None:
    log = world.create()
    data = kit.batch(b"a", leader_epoch=2) + kit.batch(b"b", base_offset=1, leader_epoch=3)
    result = log.appender.append_as_follower(data, kit.now_ms, leader_epoch=LeaderEpoch(2))
    assert (result.last_offset, log.log_end_offset) == (0, 1)
    nothing = log.appender.append_as_follower(b"", kit.now_ms)
    assert (nothing.base_offset, nothing.size_bytes) == (-1, 0)


def test_r14_truncation_cuts_at_batches_and_everything_follows(world: Any, kit: Any) -> None:
    log = world.create()
    for index in range(40):
        kit.append(log, b"%d" % index, b"+" * 60, epoch=index // 10)
    log.advance_high_watermark_to(Offset(70))
    plan = log.flusher.flush_plan()
    assert plan is not None
    assert plan.carry_out(world.files)
    assert log.flusher.mark_flushed(plan, kit.now_ms)
    for target, end in ((61, 60), (40, 40), (3, 2)):
        assert log.truncation.truncate_to(Offset(target), kit.now_ms)
        assert log.log_end_offset == log.recovery_point == log.high_watermark == end
        assert log.offsets.recovery_point_fell
        assert [offset for offset, _ in kit.records(log)] == list(range(end))
        assert all(entry.start_offset < end for entry in log.leader_epochs.entries)
        log.check()
    kit.append(log, b"new", epoch=9)
    assert kit.records(world.kill(log))[-1] == (2, b"new")


def test_r14_producers_are_those_of_what_a_truncation_leaves(world: Any, kit: Any) -> None:
    log = world.create()
    for sequence in range(4):
        _append(log, kit.batch(b"a", producer_id=9, epoch=0, sequence=sequence), kit)
    log.truncation.truncate_to(Offset(2), kit.now_ms)
    again = _append(log, kit.batch(b"a", producer_id=9, epoch=0, sequence=1), kit)
    assert (again.is_duplicate, again.base_offset) == (True, 1)
    new = _append(log, kit.batch(b"b", producer_id=9, epoch=0, sequence=2), kit)
    assert (new.is_duplicate, new.base_offset) == (False, 2)
    log.check()


def _append(log: Log, batch: bytearray, kit: Any) -> AppendResult:
    return log.appender.append_as_leader(batch, leader_epoch=LeaderEpoch(0), now_ms=kit.now_ms)


def test_r36_a_truncation_below_the_first_segment_leaves_an_empty_log(world: Any, kit: Any) -> None:
    log = world.create()
    log.truncation.truncate_fully_and_start_at(Offset(5), kit.now_ms)
    kit.append(log, b"a")
    assert log.truncation.truncate_to(Offset(3), kit.now_ms)
    assert log.log_start_offset == log.log_end_offset == 3
    kit.append(log, b"b")
    assert kit.records(world.kill(log)) == [(3, b"b")]


def test_truncation_beyond_the_end_still_trims_epochs(world: Any, kit: Any) -> None:
    log = world.create()
    kit.append(log, b"a")
    log.leader_epochs.assign(LeaderEpoch(4), Offset(1))
    assert not log.truncation.truncate_to(Offset(9), kit.now_ms)
    assert log.leader_epochs.latest == 0


def test_a_plan_from_before_a_truncation_is_void(world: Any, kit: Any) -> None:
    log = world.create()
    kit.fill(log, 20)
    plan = log.flusher.flush_plan()
    assert plan is not None
    log.truncation.truncate_to(Offset(10), kit.now_ms)
    kit.fill(log, 10)
    plan.carry_out(world.files)
    assert not log.flusher.mark_flushed(plan, kit.now_ms)
    assert log.recovery_point == 0


def test_truncation_below_the_first_segment_starts_anew(world: Any, kit: Any) -> None:
    log = world.create()
    log.truncation.truncate_fully_and_start_at(Offset(100), kit.now_ms)
    kit.append(log, b"a")
    assert log.truncation.truncate_to(Offset(50), kit.now_ms)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (50, 50, 50)
    assert kit.append(log, b"b") == 50
    assert kit.records(world.reopen(log)) == [(50, b"b")]


def test_retention_by_size_keeps_at_least_what_it_must(world: Any, kit: Any) -> None:
    log = world.create()
    kit.fill(log, 40)
    config = TopicConfig(segment_bytes=1000, retention_bytes=2500, file_delete_delay_ms=1000)
    log.update_config(config)
    assert log.retention.apply_retention(kit.now_ms) == 0, "nothing is replicated yet"
    log.advance_high_watermark_to(log.log_end_offset)
    before = log.size_bytes
    assert log.retention.apply_retention(kit.now_ms) > 0
    assert 2500 <= log.size_bytes < 2500 + 1000 < before
    assert log.log_start_offset == log.segments.first.base_offset > 0
    assert kit.names(world, ".deleted")
    assert log.retention.remove_due_files(kit.now_ms + 999) == 0
    assert log.retention.remove_due_files(kit.now_ms + 1000) > 0
    assert not kit.names(world, ".deleted")
    expected = list(range(log.log_start_offset, 40))
    assert [offset for offset, _ in kit.records(log)] == expected
    log = world.reopen(log)
    assert [offset for offset, _ in kit.records(log)] == expected


def test_retention_by_age_goes_by_the_newest_record(world: Any, kit: Any) -> None:
    log = world.create(TopicConfig(segment_bytes=1000, retention_ms=1000))
    kit.fill(log, 10)
    kit.append(log, b"from the future" + b"." * 100, timestamp=kit.now_ms + 5000)
    kit.fill(log, 20)
    log.advance_high_watermark_to(log.log_end_offset)
    assert log.retention.apply_retention(kit.now_ms + 1000) == 0
    assert log.retention.apply_retention(kit.now_ms + 1001) == 2
    pinned = log.log_start_offset
    assert pinned <= 10
    assert log.retention.apply_retention(kit.now_ms + 6000) == 0
    assert log.retention.apply_retention(kit.now_ms + 6001) > 0
    assert log.log_start_offset == log.log_end_offset == 31, "the last segment was rolled and went"
    assert kit.append(log, b"next") == 31


def test_deleted_records_go_with_their_segments(world: Any, kit: Any) -> None:
    log = world.create(TopicConfig(segment_bytes=1000, cleanup_policies=frozenset({"compact"})))
    for index in range(20):
        batch = kit.batch(b"." * 100, base_offset=index, leader_epoch=0)
        log.appender.append_as_follower(batch, kit.now_ms)
    with pytest.raises(ProtocolError):
        log.retention.delete_records_to(Offset(1))
    log.advance_high_watermark_to(Offset(20))
    assert log.retention.delete_records_to(Offset(12))
    assert not log.retention.delete_records_to(Offset(11))
    assert log.retention.apply_retention(kit.now_ms) > 0
    assert log.segments.first.base_offset <= log.log_start_offset == 12
    log = world.reopen(log)
    assert [offset for offset, _ in kit.records(log)] == list(range(12, 20))


def test_the_high_watermark_only_rises_and_never_above_the_end(world: Any, kit: Any) -> None:
    log = world.create()
    kit.fill(log, 3)
    assert log.advance_high_watermark_to(Offset(2))
    assert not log.advance_high_watermark_to(Offset(1))
    with pytest.raises(InvariantViolated):
        log.advance_high_watermark_to(Offset(4))
    assert log.restore_high_watermark(Offset(99)) == 3


def test_flush_settings_say_when_a_flush_is_due(world: Any, kit: Any) -> None:
    log = world.create(TopicConfig(flush_messages=3, flush_ms=1000))
    kit.append(log, b"a", b"b")
    assert log.flusher.flush_plan_if_due(kit.now_ms) is None
    kit.append(log, b"c")
    plan = log.flusher.flush_plan_if_due(kit.now_ms)
    assert plan is not None
    assert plan.directories
    assert plan.carry_out(world.files)
    assert log.flusher.mark_flushed(plan, kit.now_ms)
    assert log.recovery_point == 3
    kit.append(log, b"d")
    assert log.flusher.flush_plan_if_due(kit.now_ms + 999) is None
    plan = log.flusher.flush_plan_if_due(kit.now_ms + 1000)
    assert plan is not None
    assert not plan.directories, "the names are durable already"


def test_a_closed_segment_asks_to_be_flushed(world: Any, kit: Any) -> None:
    log = world.create()
    kit.fill(log, 9)
    plan = log.flusher.flush_plan_if_due(kit.now_ms)
    assert plan is not None
    assert plan.up_to == log.active.base_offset
    plan.carry_out(world.files)
    log.flusher.mark_flushed(plan, kit.now_ms)
    assert log.recovery_point == log.active.base_offset
    assert log.flusher.flush_plan_if_due(kit.now_ms) is None


def test_a_deleted_log_leaves_a_directory_for_later(world: Any, kit: Any) -> None:
    log = world.create()
    kit.fill(log, 20)
    path = log.delete("0" * 32)
    assert path.endswith(f"/orders-0.{'0' * 32}-delete")
    assert not world.files.exists(world.directory)
    assert world.files.list_directory(path)
    with pytest.raises(Exception, match="closed"):
        kit.append(log, b"late")


def test_settings_change_while_the_log_is_open(world: Any, kit: Any) -> None:
    log = world.create(TopicConfig(segment_ms=10**9))
    kit.append(log, b"a")
    log.update_config(TopicConfig(segment_ms=10))
    kit.append(log, b"b", timestamp=kit.now_ms + 11)
    assert len(log.segments) == 2


def test_jitter_makes_segments_close_earlier_and_is_reproducible(world: Any, kit: Any) -> None:
    log = world.create(TopicConfig(segment_ms=1000, segment_jitter_ms=500))
    kit.append(log, b"a")
    due = log.active.roll_at_timestamp - kit.now_ms
    assert 500 < due <= 1000
    world.directory += "-twin"
    twin = world.create(TopicConfig(segment_ms=1000, segment_jitter_ms=500))
    kit.append(twin, b"a")
    assert twin.active.roll_at_timestamp - kit.now_ms == due


def test_the_memory_of_newest_batches_is_bounded(world: Any, kit: Any) -> None:
    log = world.create(TopicConfig())
    for _ in range(2 * BATCHES_KEPT + 50):
        kit.append(log, b"x")
    tail = log.active.tail
    assert len(tail.positions) == len(tail.last_offsets) < 2 * BATCHES_KEPT
    assert tail.start_offset == BATCHES_KEPT
    for offset in (0, 5, BATCHES_KEPT - 1, BATCHES_KEPT, BATCHES_KEPT + 1, 2 * BATCHES_KEPT + 49):
        found = kit.records(log, offset)
        assert [found[0][0], found[-1][0]] == [offset, 2 * BATCHES_KEPT + 49]


def test_a_sequential_reader_gets_every_batch_once_whatever_its_steps(world: Any, kit: Any) -> None:
    log = world.create(kit.small)
    kit.fill(log, 6000, size=30)  # more than the dense tail holds, in several segments
    whole = kit.bytes_from(log, 0)
    for step in (1, 150, 1000, 5000, 1 << 20):
        assert kit.bytes_from(log, 0, step) == whole
        assert kit.bytes_from(log, 2500, step) == kit.bytes_from(log, 2500)


def test_a_bookmark_does_not_survive_a_truncation(world: Any, kit: Any) -> None:
    log = world.create()
    kit.fill(log, 3000, size=30)
    part = log.reader.read(Offset(0), 500, end_offset=log.log_end_offset, at_least_one_batch=True)
    assert part is not None
    log.truncation.truncate_to(Offset(part.upper_offset - 1), kit.now_ms)
    kit.append(log, b"longer than what was there before" * 10)
    kit.fill(log, 3000, size=40)
    found = kit.bytes_from(log, part.upper_offset)
    assert parse_header(found).base_offset == part.upper_offset
