"""The process or the power ends at any moment of a round: the old segments or the new, never a mix.

I-44, I-46, F-53: whatever happens, a reader of what is left ends with the map that the whole
history gives, as far as the log reaches.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest

from strandline.errors import StorageError
from strandline.records.record import Record
from strandline.storage.compaction.cleaning import CleaningAborted, carry_out
from strandline.storage.compaction.plan import CleanerSettings, CleaningResult
from strandline.storage.log import Log
from strandline.storage.memory_files import MemoryFiles
from strandline.types import Offset
from tests.storage.compaction.conftest import (
    COMPACTED,
    SMALL_BUFFERS,
    Writer,
    compact,
    map_of,
    plan_all,
    put,
    records_of,
)
from tests.storage.conftest import Kit, World
from tests.storage.failing import failing_call

LATER_MS = 20_000


@dataclass(frozen=True)
class History:
    """A log that was written, and everything that was ever in it."""

    world: World
    checkpoint: int
    now_ms: int
    records: list[Record]
    undone: frozenset[int]
    """Offsets of records that aborted transactions wrote."""

    def open(self, files: MemoryFiles, recovery_point: int) -> tuple[World, Log]:
        """The log on another disk, after a crash."""
        world = World(files, "/data", "memory")
        world.config = COMPACTED
        log = world.load(clean=False, recovery_point=recovery_point, now_ms=self.now_ms)
        log.check()
        log.advance_high_watermark_to(log.log_end_offset)
        return world, log

    def map_to(self, end: int) -> dict[bytes, bytes]:
        """The map that a reader has who got to the offset `end`."""
        return _apply([r for r in self.records if r.offset < end], self.undone)

    def verify(self, log: Log) -> None:
        left = list(records_of(log, committed=False))
        assert _apply(left, self.undone) == self.map_to(log.log_end_offset)
        before = {record.offset: record for record in self.records}
        assert [record.offset for record in left] == sorted({r.offset for r in left})
        assert all(before[record.offset] == record for record in left), "offsets keep their records"


def _apply(records: list[Record], undone: frozenset[int]) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for record in records:
        if record.offset in undone:
            continue
        assert record.key is not None
        if record.value is None:
            found.pop(record.key, None)
        else:
            found[record.key] = record.value
    return found


def _history(seed: int, *, steps: int = 70) -> History:
    """Some rounds of compaction lie behind it, and tombstones whose time has come."""
    world = World(MemoryFiles(), "/data", "memory")
    writer = Writer(world.create(COMPACTED), Random(seed))
    records: dict[int, Record] = {}
    undone: set[int] = set()
    checkpoint = None
    for step in range(steps):
        writer.step()
        if step >= steps // 2 and checkpoint is None:
            _remember(writer.log, records, undone)
            checkpoint = compact(world.files, writer.log, checkpoint, now_ms=writer.now_ms)
            writer.now_ms += LATER_MS
    writer.end_all()
    writer.log.roller.roll(writer.now_ms)
    _remember(writer.log, records, undone)
    assert checkpoint is not None
    return History(world, checkpoint, writer.now_ms, list(records.values()), frozenset(undone))


def _remember(log: Log, records: dict[int, Record], undone: set[int]) -> None:
    everything = {record.offset: record for record in records_of(log, committed=False)}
    seen = {record.offset for record in records_of(log)}
    for offset, record in everything.items():
        records.setdefault(offset, record)
    undone.update(everything.keys() - seen)


def _images(history: History, recovery_point: int) -> list[MemoryFiles]:
    """The disk as it is before the first, second ... operation of a round, and after the last."""
    world, log = history.open(_disk(history).kill_clone(), recovery_point)
    plan = plan_all(log, history.checkpoint, now_ms=history.now_ms)
    assert plan is not None
    assert len(plan.segments) > 5
    files, images = _disk(history, world), list[MemoryFiles]()
    files.on_call = lambda operation, path: images.append(files.kill_clone())
    for result in carry_out(plan, files):
        assert log.swap.finish_cleaning(result, history.now_ms)
    files.on_call = None
    assert log.size_bytes < sum(segment.size_bytes for segment in plan.segments)
    return [*images, files]


def _disk(history: History, world: World | None = None) -> MemoryFiles:
    files = (world or history.world).files
    assert isinstance(files, MemoryFiles)
    return files


def _finish(history: History, files: MemoryFiles, recovery_point: int) -> None:
    world, log = history.open(files, recovery_point)
    assert not Kit.names(world, ".cleaned", ".swap")
    history.verify(log)


@pytest.mark.parametrize("seed", range(4))
def test_r40_the_process_ends_at_any_operation(seed: int) -> None:
    history = _history(seed)
    images = _images(history, 0)
    assert len(images) > 100
    for number, files in enumerate(images):
        _finish(history, files, 0)
        if number % 16 == seed:
            # The next round finds all of the work still to be done.
            _, log = history.open(files.next_process(), 0)
            compact(log.files, log, history.checkpoint, now_ms=history.now_ms)
            history.verify(log)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("is_synced", [True, False], ids=["synced", "not synced"])
def test_the_power_goes_at_any_operation(seed: int, is_synced: bool) -> None:
    history = _history(seed)
    recovery_point = 0
    if is_synced:
        world, log = history.open(_disk(history).next_process(), 0)
        plan = log.flusher.flush_plan()
        assert plan is not None
        plan.carry_out(world.files)
        recovery_point = log.log_end_offset
        history = replace(history, world=world)
    random = Random(seed)
    for number, files in enumerate(_images(history, recovery_point)):
        mode: Any = ("none", "any", "hole")[number % 3]
        _finish(history, files.crash_clone(random, mode), recovery_point)


@pytest.mark.parametrize("seed", range(4))
def test_a_second_crash_in_the_recovery_of_a_swap(seed: int) -> None:
    history = _history(seed, steps=50)
    random = Random(seed)
    swaps = [f for f in _images(history, 0) if Kit.names(_at(f), ".swap")]
    for files in random.sample(swaps, 4):
        images: list[MemoryFiles] = []
        files.on_call = lambda _operation, _path, files=files, images=images: images.append(
            files.kill_clone()
        )
        history.open(files, 0)
        files.on_call = None
        for image in images[::3]:
            _finish(history, image.crash_clone(random, "hole"), 0)


def _at(files: MemoryFiles) -> World:
    return World(files, "/data", "memory")


@pytest.mark.parametrize("sticky", [False, True], ids=["once", "from then on"])
def test_each_failing_operation_leaves_the_log_usable_or_failed(sticky: bool) -> None:
    history = _history(1, steps=50)
    before = history.world.files
    assert isinstance(before, MemoryFiles)
    outcomes = set()
    for failing in range(1, 2000, 2):
        world, log = history.open(before.kill_clone(), 0)
        assert isinstance(world.files, MemoryFiles)
        files = world.files
        plan = plan_all(log, history.checkpoint, now_ms=history.now_ms)
        assert plan is not None
        files.on_call = failing_call(failing, sticky=sticky)
        try:
            for result in carry_out(plan, files):
                log.swap.finish_cleaning(result, history.now_ms)
            failed = False
        except StorageError:
            failed = True
        files.on_call = None
        if not failed:
            break
        outcomes.add(log.failure is None)
        if log.failure is None:
            history.verify(log)
            log.check()
            put(log, (b"key-1", b"after the failure"))
            if not sticky:
                assert not Kit.names(world, ".cleaned", ".swap")
        else:
            with pytest.raises(StorageError):
                put(log, (b"key-1", b"refused"))
        recovered = world.kill(log)
        if log.failure is not None:
            history.verify(recovered)
    assert not failed
    assert outcomes == {True, False}


# -- A log that changes during a round -----------------------------------------------------------


class StopAfter:
    """A pace that ends the round after so many bytes."""

    def __init__(self, byte_count: int) -> None:
        self.left = byte_count

    def spend(self, byte_count: int) -> None:
        self.left -= byte_count
        if self.left < 0:
            raise CleaningAborted("It was asked to.")


def test_an_aborted_round_leaves_nothing(world: World) -> None:
    log = world.create(COMPACTED)
    for number in range(60):
        put(log, (b"key-%d" % (number % 7), b"%d" % number * 5))
    expected, names = map_of(log), world.files.list_directory(world.directory)
    plan = plan_all(log)
    assert plan is not None
    for byte_count in range(0, plan.bytes_to_read, 300):
        results: list[CleaningResult] = []
        with pytest.raises(CleaningAborted):
            results.extend(carry_out(plan, world.files, StopAfter(byte_count)))
        for result in results:
            log.swap.discard_cleaning(result)
        assert world.files.list_directory(world.directory) == names
    assert map_of(log) == expected
    rounds = carry_out(plan, world.files)
    log.swap.discard_cleaning(next(rounds))
    rounds.close()
    assert world.files.list_directory(world.directory) == names


def _results(world: World, log: Log, **settings: Any) -> list[CleaningResult]:
    plan = plan_all(log, settings=CleanerSettings(**settings) if settings else SMALL_BUFFERS)
    assert plan is not None
    return list(carry_out(plan, world.files))


@pytest.mark.parametrize("change", ["truncated", "deleted", "emptied", "retention", "closed"])
def test_a_log_that_changed_refuses_the_result(world: World, change: str) -> None:
    log = world.create(replace(COMPACTED, cleanup_policies=frozenset({"compact", "delete"})))
    for number in range(60):
        put(log, (b"key-%d" % (number % 7), b"%d" % number * 5))
    results = _results(world, log)
    assert Kit.names(world, ".cleaned")
    match change:
        case "truncated":
            log.truncation.truncate_to(Offset(59), Kit.now_ms)
        case "deleted":
            log.delete("0" * 32)
        case "emptied":
            log.truncation.truncate_fully_and_start_at(Offset(0), Kit.now_ms)
        case "retention":
            log.retention.delete_records_to(Offset(50))
            assert log.retention.drop_below_start(Kit.now_ms)
        case "closed":
            log.close()
    left = world.files.list_directory(log.directory)
    assert [log.swap.finish_cleaning(result, Kit.now_ms) for result in results] == [False] * len(
        results
    )
    kept = [name for name in left if not name.endswith(".cleaned")]
    assert world.files.list_directory(log.directory) == kept


def test_a_segment_that_vanishes_ends_the_round(world: World) -> None:
    log = world.create(replace(COMPACTED, cleanup_policies=frozenset({"compact", "delete"})))
    for number in range(60):
        put(log, (b"key-%d" % (number % 7), b"%d" % number * 5))
    plan = plan_all(log)
    assert plan is not None
    log.retention.delete_records_to(Offset(50))
    log.retention.drop_below_start(Kit.now_ms)
    with pytest.raises(CleaningAborted, match="changed while it was compacted"):
        list(carry_out(plan, world.files))
    assert not Kit.names(world, ".cleaned")


def test_readers_of_an_old_segment_finish(world: World) -> None:
    log = world.create(COMPACTED)
    for number in range(40):
        put(log, (b"key-%d" % (number % 3), b"%d" % number * 9))
    part = log.reader.read(Offset(0), 4000, end_offset=log.log_end_offset, at_least_one_batch=True)
    assert part is not None
    before = part.file.read_at(part.position, part.length)
    compact(world.files, log)
    assert part.file.read_at(part.position, part.length) == before
    assert Kit.names(world, ".deleted")
    assert log.retention.remove_due_files(Kit.now_ms + COMPACTED.file_delete_delay_ms)
    assert not Kit.names(world, ".deleted")
    assert len(map_of(log)) == 3


def test_producer_snapshots_of_merged_segments_go(world: World) -> None:
    log = world.create(COMPACTED)
    writer = Writer(log, Random(5))
    for _ in range(60):
        writer.step()
    writer.end_all()
    log.roller.roll(writer.now_ms)
    before = Kit.names(world, ".snapshot")
    producers = {i: (e.next_sequence, e.epoch) for i, e in log.producers.active.items()}
    compact(world.files, log, now_ms=writer.now_ms)
    bases = {f"{base:020d}.snapshot" for base in log.segments.base_offsets}
    after = Kit.names(world, ".snapshot")
    assert set(after) == set(before) & bases < set(before)
    log = world.kill(log)
    again = {i: (e.next_sequence, e.epoch) for i, e in log.producers.active.items()}
    assert again == producers
