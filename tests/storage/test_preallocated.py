"""Segments whose room is claimed when they begin (`preallocate`), and what power failures leave."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from strandline.errors import StorageError
from strandline.storage import real_files
from strandline.storage.files import DiskFull
from strandline.storage.flush_plan import FlushPlan
from strandline.storage.log import Log
from strandline.storage.memory_files import MemoryFiles
from strandline.storage.memory_inodes import CUTS
from strandline.storage.real_files import RealFiles
from strandline.storage.segment import Segment
from strandline.types import Offset
from tests.storage.conftest import SMALL, World

RESERVED = replace(SMALL, preallocate=True)


@pytest.fixture
def world() -> World:
    return World(MemoryFiles(), "/data", "memory")


def flush(world: World, log: Log) -> None:
    done(world, log, planned(log))


def planned(log: Log) -> FlushPlan:
    plan = log.flusher.flush_plan()
    assert plan is not None
    return plan


def done(world: World, log: Log, plan: FlushPlan) -> None:
    plan.carry_out(world.files)
    log.flusher.mark_flushed(plan, 1)


def after_power_cut(world: World, log: Log, recovery_point: int | None = None) -> Log:
    """The log as it is loaded from the least that the disk can have."""
    assert isinstance(world.files, MemoryFiles)
    world.files = world.files.crash_clone()
    return world.load(
        clean=False, recovery_point=log.recovery_point if recovery_point is None else recovery_point
    )


def values(log: Log, kit: Any) -> list[int]:
    return [offset for offset, _ in kit.records(log)]


def test_the_end_of_a_closed_segment_is_durable_with_the_recovery_point(
    world: World, kit: Any
) -> None:
    """What the roll gave back came back with a power failure: below the recovery point no recovery
    takes it away, and readers got zeros."""
    log = world.create(RESERVED)
    kit.fill(log, 3)
    flush(world, log)
    log.roller.roll(kit.now_ms)
    kit.fill(log, 2)
    flush(world, log)
    found = after_power_cut(world, log)
    assert (found.log_end_offset, found.recovery_report.cuts) == (5, ())
    assert values(found, kit) == list(range(5))


def test_a_sync_that_a_roll_overtakes_does_not_vouch_for_the_roll(world: World, kit: Any) -> None:
    log = world.create(RESERVED)
    kit.fill(log, 3)
    plan = planned(log)
    plan.carry_out(world.files)
    log.roller.roll(kit.now_ms)
    log.flusher.mark_flushed(plan, 1)
    kit.fill(log, 2)
    flush(world, log)
    found = after_power_cut(world, log)
    assert values(found, kit) == list(range(5))


def test_the_close_of_a_log_leaves_no_reserved_room(world: World, kit: Any) -> None:
    log = world.create(RESERVED)
    kit.fill(log, 3)
    flush(world, log)
    log.roller.roll(kit.now_ms)
    log.close_clean()
    assert isinstance(world.files, MemoryFiles)
    world.files = world.files.crash_clone()
    found = world.load(clean=True, recovery_point=3)
    assert values(found, kit) == list(range(3))


@pytest.mark.parametrize("recovery_point", [0, 1])
def test_reserved_room_in_front_of_a_segment_is_no_loss(
    world: World, kit: Any, recovery_point: int
) -> None:
    log = world.create(RESERVED)
    kit.fill(log, 3)
    log.roller.roll(kit.now_ms)
    kit.fill(log, 2)
    first = log.segments.first
    first.log.truncate(RESERVED.segment_bytes)  # as before the roll
    flush(world, log)
    found = after_power_cut(world, log, recovery_point)
    assert (found.log_end_offset, found.recovery_report.cuts) == (5, ())
    assert values(found, kit) == list(range(5))
    assert world.files.size_of(first.log.path) == found.segments.first.size
    assert any("reserved" in note for note in found.recovery_report.notes)


@pytest.mark.parametrize("lost", ["the last batch", "a byte behind"])
def test_zeros_in_place_of_records_are_a_loss(world: World, kit: Any, lost: str) -> None:
    log = world.create(RESERVED)
    kit.fill(log, 3)
    log.roller.roll(kit.now_ms)
    kit.fill(log, 2)
    first = log.segments.first
    if lost == "the last batch":
        start = first.size * 2 // 3
        first.log.write_at(start, bytes(first.size - start))
        end = 2
    else:
        first.log.write_at(RESERVED.segment_bytes - 1, b"\1")
        end = 3
    flush(world, log)
    found = after_power_cut(world, log, 0)
    assert found.log_end_offset == end
    assert found.recovery_report.cuts
    assert values(found, kit) == list(range(end))


@pytest.mark.parametrize("mode", CUTS)
def test_whatever_a_power_cut_leaves_what_was_flushed_is_there(
    world: World, kit: Any, mode: Any
) -> None:
    """Rolls and flushes in any order, with a power cut at any operation."""
    for seed in range(40):
        random = Random(f"{mode} {seed}")
        world = World(MemoryFiles(), "/data", "memory")
        log = world.create(RESERVED)
        files = world.files
        assert isinstance(files, MemoryFiles)
        left = random.randrange(200)

        def end(operation: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise StorageError(f"The power went at {operation} {path}.")

        files.on_call = end
        promised, plan = Offset(0), None
        try:
            while True:
                step = random.choice((1, 1, 2, 3, 4))
                if step == 1:
                    kit.append(log, b"x" * random.randrange(150))
                elif step == 2:
                    log.roller.roll(kit.now_ms)
                elif step == 3:
                    plan = log.flusher.flush_plan()
                elif plan is not None and plan.carry_out(files):
                    log.flusher.mark_flushed(plan, 1)
                    promised, plan = log.recovery_point, None
        except StorageError:
            files.on_call = None
        world.files = files.crash_clone(random, mode)
        found = world.load(clean=False, recovery_point=promised)
        assert found.log_end_offset >= promised
        assert values(found, kit) == list(range(found.log_end_offset))
        found.check()


def test_a_segment_whose_room_cannot_be_claimed_keeps_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The room that there was belonged to a file without a name, and all other logs had none."""

    def claim(descriptor: int, start: int, length: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(real_files, "claim_space", claim)
    files = RealFiles()
    with pytest.raises(DiskFull):
        Segment.create(files, str(tmp_path), 0, RESERVED)
    assert (files.open_handles, list(tmp_path.iterdir())) == (0, [])
