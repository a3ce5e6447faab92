"""What a round keeps and drops, on every kind of disk."""

from __future__ import annotations

import pickle
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from strandline.errors import StorageError
from strandline.records.batch import BatchHeader, iterate_headers
from strandline.records.codec import Codec
from strandline.records.record import Record
from strandline.storage.compaction.cleaning import Uncleanable, carry_out
from strandline.storage.compaction.dry_run import dry_run
from strandline.storage.compaction.plan import CleanerSettings, CleaningPlan, CleaningResult
from strandline.storage.files import DiskFull, LostWrites
from strandline.storage.log import Log
from strandline.storage.memory_files import MemoryFiles
from strandline.types import Offset, ProducerEpoch, ProducerId
from tests.storage.compaction.conftest import (
    COMPACTED,
    Writer,
    compact,
    end_transaction,
    every_batch,
    map_of,
    plan_all,
    put,
    records_of,
)
from tests.storage.conftest import NOW_MS, Kit, World

RETENTION_MS = COMPACTED.delete_retention_ms
TRANSACTION = {"producer_epoch": ProducerEpoch(0), "is_transactional": True}


def closed(log: Log) -> Log:
    log.roller.roll(NOW_MS)
    return log


def left(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(r.offset, r.key, r.value) for r in records_of(log, committed=False)]


def test_one_round(world: World) -> None:
    log = world.create(COMPACTED)
    for number in range(40):
        put(log, (b"key-%d" % (number % 4), b"%d" % number), (b"other", b"%d" % number))
    put(log, (b"unique", b"1"))
    closed(log)
    size, expected = log.size_bytes, map_of(log)
    end = compact(world.files, log)
    assert end == log.log_end_offset
    assert map_of(log) == expected
    assert len(left(log)) == 6
    assert log.size_bytes < size // 4
    put(log, (b"new", b"1"))
    closed(log)
    assert compact(world.files, log, end) == log.log_end_offset
    expected = map_of(log)
    assert len(log.segments) == 2, "what is left fits into one segment, and there is the active one"
    log = world.reopen(log)
    assert map_of(log) == expected
    assert [o for o, _, _ in left(log)] == [r.offset for r in records_of(log)]
    put(log, (b"unique", b"2"))
    assert map_of(log)[b"unique"] == b"2"


def test_offsets_are_found_in_what_is_left(world: World) -> None:
    log = world.create(replace(COMPACTED, segment_bytes=100_000))
    for number in range(120):
        put(log, (b"key-%d" % (number % 40), b"." * 30), now_ms=NOW_MS + number)
    closed(log)
    compact(world.files, log, settings=CleanerSettings())
    kept = [offset for offset, _, _ in left(log)]
    assert kept == list(range(80, 120))
    segment = log.segments.first
    for offset in range(120):
        part = log.reader.read(Offset(offset), 1, end_offset=Offset(120), at_least_one_batch=True)
        assert part is not None
        assert part.upper_offset > offset
    assert segment.offset_index.entries > 5
    found = log.reader.offset_for_timestamp(NOW_MS + 100)
    assert found is not None
    assert found.offset == 100
    assert segment.largest_timestamp() == (NOW_MS + 119, 119)


def test_r28_a_tombstone_stays_for_its_time_and_then_goes(world: World) -> None:
    log = world.create(COMPACTED)
    put(log, (b"gone", b"1"), (b"stays", b"1"))
    put(log, (b"gone", None))
    put(log, (b"stays", b"2"))
    closed(log)
    end = compact(world.files, log, now_ms=NOW_MS)
    assert left(log) == [(2, b"gone", None), (3, b"stays", b"2")]
    again = [(b"x", NOW_MS + RETENTION_MS - 1), (b"y", NOW_MS + RETENTION_MS)]
    for key, now_ms in again:
        put(log, (key, b"1"))
        closed(log)
        end = compact(world.files, log, end, now_ms=now_ms)
        assert ((2, b"gone", None) in left(log)) == (now_ms < NOW_MS + RETENTION_MS)
    assert map_of(log) == {b"stays": b"2", b"x": b"1", b"y": b"1"}


def test_an_aborted_transaction_leaves_nothing_and_its_keys_count_for_nothing(world: World) -> None:
    log = world.create(COMPACTED)
    put(log, (b"a", b"old"), (b"b", b"old"))
    put(log, (b"a", b"undone"), producer_id=ProducerId(5), base_sequence=0, **TRANSACTION)
    put(log, (b"b", b"done"), producer_id=ProducerId(6), base_sequence=0, **TRANSACTION)
    end_transaction(log, 5, commits=False)
    end_transaction(log, 6, commits=True)
    put(log, (b"c", b"1"))
    closed(log)
    end = compact(world.files, log)
    assert left(log) == [(0, b"a", b"old"), (3, b"b", b"done"), (6, b"c", b"1")]
    # The batch of producer 5 stays without records: its sequence goes on from there.
    empty = [header for header in every_batch(log) if header.record_count == 0]
    assert [(h.producer_id, h.base_offset, h.last_sequence) for h in empty] == [(5, 2, 0)]
    assert [h.base_offset for h in every_batch(log) if h.is_control] == [4, 5]
    assert len(log.reader.aborted_transactions(Offset(0), Offset(7))) == 1
    entry = log.producers.active[ProducerId(5)]
    log = world.reopen(log)
    assert log.producers.active[ProducerId(5)].next_sequence == entry.next_sequence

    # A later transaction of the producer takes over; then batch and marker go, one after the other.
    put(log, (b"d", b"1"), producer_id=ProducerId(5), base_sequence=1, **TRANSACTION)
    end_transaction(log, 5, commits=True)
    closed(log)
    now_ms = NOW_MS
    seen = []
    for _ in range(3):
        end = compact(world.files, log, end, now_ms=now_ms) or end
        markers = [h for h in every_batch(log) if h.is_control and h.base_offset == 4]
        seen.append([h.delete_horizon_ms for h in markers])
        put(log, (b"e", b"."))
        closed(log)
        now_ms += RETENTION_MS
    assert seen == [[None], [NOW_MS + 2 * RETENTION_MS], []]
    assert log.reader.aborted_transactions(Offset(0), log.log_end_offset) == []
    assert map_of(log) == {b"a": b"old", b"b": b"done", b"c": b"1", b"d": b"1", b"e": b"."}


def test_the_marker_may_come_behind_the_cleaned_part(world: World) -> None:
    log = world.create(COMPACTED)
    put(log, (b"a", b"old"))
    put(log, (b"a", b"undone"), producer_id=ProducerId(5), base_sequence=0, **TRANSACTION)
    closed(log)
    end_transaction(log, 5, commits=False)
    put(log, (b"b", b"1"))
    assert compact(world.files, log) == 2
    assert left(log) == [(0, b"a", b"old"), (3, b"b", b"1")]
    assert map_of(log) == {b"a": b"old", b"b": b"1"}


def test_a_marker_that_alone_knows_the_epoch_leaves_its_header(world: World) -> None:
    log = world.create(COMPACTED)
    put(log, (b"a", b"1"), producer_id=ProducerId(5), base_sequence=0, **TRANSACTION)
    end_transaction(log, 5, commits=True, epoch=1)
    end = None
    for number in range(5):
        put(log, (b"a", b"2"))
        closed(log)
        now_ms = NOW_MS + number * RETENTION_MS
        end = compact(world.files, log, end, now_ms=now_ms) or end
    markers = [header for header in every_batch(log) if header.is_control]
    assert [(h.base_offset, h.producer_epoch, h.record_count) for h in markers] == [(1, 1, 0)]


@pytest.mark.parametrize("codec", list(Codec))
def test_batches_keep_their_codec(world: World, codec: Codec) -> None:
    log = world.create(COMPACTED)
    for number in range(10):
        put(
            log,
            *[(b"key-%d" % (i * number % 13), b"%d" % number * 20) for i in range(5)],
            codec=codec,
        )
    closed(log)
    before, expected = {h.base_offset: h for h in every_batch(log)}, map_of(log)
    compact(world.files, log)
    assert map_of(log) == expected
    after = [h for h in every_batch(log) if h.record_count]
    assert {header.codec for header in after} == {codec}
    assert any(h.record_count < before[h.base_offset].record_count for h in after)
    for header in after:
        was = before[header.base_offset]
        assert header[2] == was.leader_epoch
        assert header.last_offset == was.last_offset


@pytest.mark.parametrize("keys", [2, 3, 5, 8])
def test_a_small_map_takes_several_rounds(world: World, keys: int) -> None:
    log = world.create(COMPACTED)
    for number in range(50):
        put(log, *[(b"key-%d" % (i * number % 11), b"%d" % number) for i in range(1, 4)])
    closed(log)
    expected = map_of(log)
    settings = CleanerSettings(dedupe_buffer_bytes=24 * (keys + 1), load_factor=1.0)
    end, rounds = 0, 0
    while (cleaned_to := compact(world.files, log, end, settings=settings)) is not None:
        assert cleaned_to > end
        end, rounds = cleaned_to, rounds + 1
        assert map_of(log) == expected
    assert rounds > 3
    assert end == log.log_end_offset


def test_what_is_damaged_is_not_compacted(world: World) -> None:
    log = world.create(COMPACTED)
    for number in range(40):
        put(log, (b"key-%d" % (number % 4), b"%d" % number * 5), codec=Codec(number % 5))
    closed(log)
    segment = log.segments.all[2]
    segment.log.write_at(segment.size - 1, b"\xff")
    names = world.files.list_directory(world.directory)
    plan = plan_all(log)
    assert plan is not None
    with pytest.raises(Uncleanable, match="does not match its checksum"):
        list(carry_out(plan, world.files))
    assert world.files.list_directory(world.directory) == names


def test_a_full_disk_ends_the_round_and_harms_nothing() -> None:
    world = World(MemoryFiles(), "/data", "memory")
    log = world.create(COMPACTED)
    for number in range(60):
        put(log, (b"key-%d" % number, b"." * 40))
    closed(log)
    files = world.files
    assert isinstance(files, MemoryFiles)
    expected, names = map_of(log), files.list_directory(world.directory)
    plan = plan_all(log)
    assert plan is not None
    files.capacity_bytes = files.used_bytes + 1000
    results: list[CleaningResult] = []
    with pytest.raises(DiskFull):
        results.extend(carry_out(plan, files))
    for result in results:
        log.swap.discard_cleaning(result)
    assert (files.list_directory(world.directory), map_of(log)) == (names, expected)
    files.capacity_bytes = 1 << 40
    compact(files, log)
    assert map_of(log) == expected


@pytest.mark.parametrize(("suffix", "raised"), [(".log", LostWrites), (".cleaned", DiskFull)])
def test_only_what_is_made_anew_may_find_no_room_when_it_is_synced(
    suffix: str, raised: type[StorageError]
) -> None:
    """Of a segment that is there, the kernel calls the lost pages clean: the next round, with
    handles of its own, would find that all is well."""
    world = World(MemoryFiles(), "/data", "memory")
    log = world.create(COMPACTED)
    for number in range(60):
        put(log, (b"key-%d" % (number % 7), b"." * 40))
    closed(log)
    files = world.files
    assert isinstance(files, MemoryFiles)
    plan = plan_all(log)
    assert plan is not None
    assert plan.unsynced

    def fill(operation: str, path: str) -> None:
        if operation == "sync" and path.endswith(suffix):
            raise DiskFull(f"Cannot {operation} {path}: No space left on device.")

    names, files.on_call = files.list_directory(world.directory), fill
    with pytest.raises(raised):
        list(carry_out(plan, files))
    files.on_call = None
    assert files.list_directory(world.directory) == names


def test_a_dry_run_says_what_a_round_does(world: World) -> None:
    log = world.create(COMPACTED)
    writer = Writer(log, Random(11))
    for _ in range(80):
        writer.step()
    writer.end_all()
    log.roller.roll(writer.now_ms)
    names = world.files.list_directory(world.directory)
    before = {r.offset for r in records_of(log, committed=False)}
    plan = plan_all(log, now_ms=writer.now_ms)
    assert plan is not None
    outlook = dry_run(plan, world.files)
    assert world.files.list_directory(world.directory) == names
    results = list(carry_out(plan, world.files))
    assert outlook.cleaned_to == results[-1].cleaned_to
    for group, result in zip(outlook.groups, results, strict=True):
        assert (group.segments, group.bytes_after) == (result.replaced, result.size_bytes)
        assert log.swap.finish_cleaning(result, writer.now_ms)
    gone = {o for g in outlook.groups for low, high in g.gone for o in range(low, high + 1)}
    after = {r.offset for r in records_of(log, committed=False)}
    assert gone & before == before - after
    document = outlook.to_json()
    assert document["records_after"] == results[-1].stats.records_kept
    assert document["records_before"] == results[-1].stats.records_read


def test_progress_adds_up(world: World) -> None:
    log = world.create(COMPACTED)
    for number in range(60):
        put(log, (b"key-%d" % (number % 9), b"." * 40), codec=Codec(number % 5))
    closed(log)
    spent = []

    class Counting:
        def spend(self, byte_count: int) -> None:
            assert byte_count <= 1000
            spent.append(byte_count)

    plan = plan_all(log, 30)
    assert plan is not None
    results = list(carry_out(plan, world.files, Counting()))
    stats = results[-1].stats
    assert stats.bytes_read == sum(segment.size_bytes for segment in plan.segments)
    assert stats.bytes_written == sum(result.size_bytes for result in results)
    assert sum(spent) >= plan.bytes_to_read + stats.bytes_written
    assert (stats.keys, stats.records_read, stats.records_kept) == (9, 60, 9)


def test_a_plan_can_be_sent_to_another_process(world: World) -> None:
    log = world.create(COMPACTED)
    for number in range(60):
        put(log, (b"key-%d" % (number % 9), b"." * 40))
    plan = plan_all(log)
    assert plan is not None
    copy: CleaningPlan = pickle.loads(pickle.dumps(plan))
    assert copy == plan
    results = [pickle.loads(pickle.dumps(result)) for result in carry_out(copy, world.files)]
    assert all(log.swap.finish_cleaning(result, NOW_MS) for result in results)


@pytest.mark.parametrize("seed", range(6))
def test_random_histories_keep_their_maps(world: World, seed: int) -> None:
    random = Random(seed)
    writer = Writer(world.create(COMPACTED), random)
    history: dict[int, Record] = {}
    checkpoint: int | None = None
    rounds = 0
    for _ in range(150):
        writer.step()
        if random.random() > 0.08:
            continue
        log = writer.log
        history.update((r.offset, r) for r in records_of(log, committed=False))
        before: Any = map_of(log)
        settings = CleanerSettings(
            dedupe_buffer_bytes=24 * random.choice([4, 9, 100]),
            io_buffer_bytes=random.choice([100, 600, 10_000]),
        )
        done = compact(world.files, log, checkpoint, now_ms=writer.now_ms, settings=settings)
        rounds += done is not None
        checkpoint = checkpoint if done is None else done
        writer.now_ms += random.choice([0, 2 * RETENTION_MS])
        if random.random() < 0.5:
            log = world.reopen(log) if random.random() < 0.5 else world.kill(log)
            log.advance_high_watermark_to(log.log_end_offset)
            writer.log = log
        assert map_of(log) == before
        assert all(history[r.offset] == r for r in records_of(log, committed=False))
    assert rounds > 3


def test_a_follower_takes_over_what_is_left_and_keeps_it_in_a_crash(world: World) -> None:
    """Also where all is there up to the end of a segment, and the gap is behind it."""
    leader = World(MemoryFiles(), "/data", "memory").create(COMPACTED)
    for number in range(40):
        put(leader, (b"key-%d" % number, b"." * 150))
        if number % 6 == 5:
            for _ in range(5):
                put(leader, (b"again", b"." * 150))
    closed(leader)
    compact(leader.files, leader)
    gaps = [
        low for low, high in pairwise(every_batch(leader)) if low.next_offset < high.base_offset
    ]
    assert gaps
    follower = world.create(COMPACTED)
    for header, batch in _batches_of(leader):
        follower.appender.append_as_follower(batch, NOW_MS)
        assert follower.log_end_offset == header.next_offset
    assert len(follower.segments) > 5
    bases = follower.segments.base_offsets
    ends = [segment.end_offset() for segment in follower.segments.all]
    assert ends[:-1] == bases[1:]
    expected = map_of(leader)
    follower = world.kill(follower)
    follower.check()
    assert map_of(follower) == expected
    assert follower.recovery_report.cuts == ()


def _batches_of(log: Log) -> list[tuple[BatchHeader, bytes]]:
    data = Kit.bytes_from(log, 0)
    return [(h, data[p : p + h.size_bytes]) for p, h in iterate_headers(data)]


def test_the_newest_record_is_one_that_is_left(world: World) -> None:
    """The newest batch is empty, and stays for its producer's sake (seed 120007416)."""
    log = world.create(replace(COMPACTED, segment_bytes=100_000))
    put(log, (b"old", b"1"), now_ms=NOW_MS + 100)
    closed(log)
    numbered = {"producer_epoch": ProducerEpoch(0), "base_sequence": 0}
    put(log, (b"a", b"1"), now_ms=NOW_MS + 900, producer_id=ProducerId(7), **numbered)
    newest = put(log, (b"b", b"1"), now_ms=NOW_MS + 500)
    put(log, (b"a", b"2"), now_ms=NOW_MS + 300)
    closed(log)
    put(log, (b"c", b"1"), now_ms=NOW_MS + 200)
    compact(world.files, log)
    empty = [batch for batch in every_batch(log) if not batch.record_count]
    assert [batch.max_timestamp for batch in empty] == [NOW_MS + 900]
    for reopened in (False, True):
        current = world.reopen(log) if reopened else log
        found = current.reader.max_timestamp_offset()
        assert found is not None
        assert (found.timestamp, found.offset) == (NOW_MS + 500, newest)
