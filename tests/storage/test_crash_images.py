"""Power loss and failing disks at every moment: what remains is a prefix, and nothing is half done.

I-45: recovering twice, or crashing in a recovery, comes to the same log. I-46: recovery from every
image that a power loss may leave gives a prefix of what was written, at batch granularity, at least
up to the recovery point.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.config.topic import TopicConfig
from strandline.errors import StorageError
from strandline.records.batch import iterate_headers
from strandline.storage.memory_files import MemoryFiles
from strandline.types import Offset
from tests.storage.conftest import Kit, World
from tests.storage.failing import failing_call


class PowerCut(BaseException):
    """The process is gone. No handler may catch it."""


def _batches(data: bytes) -> list[bytes]:
    return [data[p : p + h.size_bytes] for p, h in iterate_headers(data)]


def _write_a_while(world: Any, kit: Any, random: Random) -> tuple[Any, int]:
    """A log with a random past; and the recovery point that is checkpointed."""
    log = world.create()
    checkpointed = 0
    for _ in range(random.randint(1, 60)):
        step = random.random()
        if step < 0.75:
            kit.append(log, *[b"%d" % random.randint(0, 9) * 40] * random.randint(1, 4))
        elif step < 0.85:
            plan = log.flusher.flush_plan_if_due(kit.now_ms) or log.flusher.flush_plan()
            if plan is not None and plan.carry_out(world.files):
                log.flusher.mark_flushed(plan, kit.now_ms)
                checkpointed = log.recovery_point
        elif step < 0.93:
            log.truncation.truncate_to(
                Offset(max(0, log.log_end_offset - random.randint(1, 9))), kit.now_ms
            )
            # The node writes the checkpoint before the next append.
            checkpointed = min(checkpointed, log.recovery_point)
            log.offsets.recovery_point_fell = False
        else:
            log.roller.roll(kit.now_ms)
    return log, checkpointed


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_r16_what_survives_a_power_loss_is_a_prefix(seed: int) -> None:
    random = Random(seed)
    live = MemoryFiles()
    world = World(live, "/data", "memory")
    log, checkpointed = _write_a_while(world, Kit, random)
    written = _batches(Kit.bytes_from(log, log.log_start_offset))
    for _ in range(4):
        image = live.crash_clone(random)
        world.files = image
        recovered = world.load(clean=False, recovery_point=checkpointed)
        recovered.check()
        assert recovered.log_end_offset >= checkpointed, seed
        found = _batches(Kit.bytes_from(recovered, recovered.log_start_offset))
        assert found == written[: len(found)], seed
        for low, high in pairwise(found):
            assert next(iterate_headers(low))[1].next_offset == next(iterate_headers(high))[1][0]
        world.files = image.crash_clone()
        twice = world.load(clean=False, recovery_point=min(checkpointed, recovered.recovery_point))
        assert _batches(Kit.bytes_from(twice, 0)) == found, seed
        Kit.fill(twice, 12)
        assert [o for o, _ in Kit.records(twice)] == list(range(twice.log_end_offset))


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_crash_anywhere_in_a_recovery_changes_nothing(seed: int) -> None:
    random = Random(seed)
    world = World(MemoryFiles(), "/data", "memory")
    log, checkpointed = _write_a_while(world, Kit, random)
    image = log.files.crash_clone(random)

    world.files = image.kill_clone()
    expected = Kit.bytes_from(world.load(clean=False, recovery_point=checkpointed), 0)
    for stop_after in range(1, 200, 1 + random.randint(0, 6)):
        files = image.kill_clone()
        world.files = files
        files.on_call = _stop_after(stop_after, PowerCut())
        try:
            world.load(clean=False, recovery_point=checkpointed)
        except PowerCut:
            world.files = files.crash_clone(random)
            second = world.load(clean=False, recovery_point=checkpointed)
            assert Kit.bytes_from(second, 0) == expected, (seed, stop_after)
        else:
            break


def _stop_after(calls: int, error: BaseException) -> Any:
    left = [calls]

    def on_call(operation: str, path: str) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise error

    return on_call


STEPS = ["append", "roll", "truncate", "retain", "flush", "close"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("sticky", [False, True], ids=["once", "from then on"])
def test_each_failing_call_leaves_a_log_that_can_be_recovered(
    kit: Any, step: str, sticky: bool
) -> None:
    for failing in range(1, 200):
        world = kit.world(MemoryFiles(), "/data", "memory")
        log = world.create()
        kit.fill(log, 14)
        log.advance_high_watermark_to(Offset(14))
        before, end = kit.bytes_from(log, 0), log.log_end_offset
        files = world.files
        files.on_call = failing_call(failing, sticky=sticky)
        failed = True
        try:
            _do(step, world, log, kit)
            failed = False
        except StorageError:
            pass
        files.on_call = lambda operation, path: None
        if failed and log.failure is None:
            log.check()
            assert log.log_end_offset == end
            assert before.endswith(kit.bytes_from(log, log.log_start_offset))
            try:
                kit.append(log, b"after the failure")
                before = kit.bytes_from(log, 0)
            except StorageError:
                # A failed sync fences the file; the first append finds that out.
                assert log.failure is not None
        if log.failure is not None:
            with pytest.raises(StorageError):
                kit.append(log, b"refused")
        if not failed:
            assert failing > 1
            return
        recovered = world.kill(log)
        recovered.check()
        found = kit.bytes_from(recovered, recovered.log_start_offset)
        if step == "truncate":
            assert before.startswith(found), failing
            assert recovered.log_end_offset >= 7
        elif step == "retain":
            assert before.endswith(found), failing
            assert recovered.log_end_offset >= end
        else:
            assert found == before, failing
        kit.fill(recovered, 12)
        recovered.check()
    pytest.fail("the step never came to its end")


def _do(step: str, world: Any, log: Any, kit: Any) -> None:
    match step:
        case "append":
            kit.append(log, b"x" * 50)
        case "roll":
            log.roller.roll(kit.now_ms)
        case "truncate":
            log.truncation.truncate_to(Offset(7), kit.now_ms)
        case "retain":
            log.retention.delete_records_to(Offset(12))
            log.retention.apply_retention(kit.now_ms)
        case "flush":
            plan = log.flusher.flush_plan()
            assert plan is not None
            plan.carry_out(world.files)
        case "close":
            log.close_clean()


def test_a_failed_append_changes_nothing_and_a_failed_cut_fences_the_log(kit: Any) -> None:
    world = kit.world(MemoryFiles(), "/data", "memory")
    log = world.create()
    kit.append(log, b"a")

    def refuse(*operations: str) -> Any:
        def on_call(operation: str, path: str) -> None:
            if operation in operations and path.endswith(".log"):
                raise StorageError("No space left on device.")

        return on_call

    world.files.on_call = refuse("append")
    with pytest.raises(StorageError, match="No space"):
        kit.append(log, b"b")
    assert (log.log_end_offset, log.failure) == (1, None)
    world.files.on_call = refuse()
    assert kit.append(log, b"b") == 1
    world.files.on_call = refuse("append", "cut back")
    with pytest.raises(StorageError, match="cutting it back failed"):
        kit.append(log, b"c")
    world.files.on_call = refuse()
    with pytest.raises(StorageError, match="could not be taken back"):
        kit.append(log, b"c")
    assert kit.records(world.kill(log)) == [(0, b"a"), (1, b"b")]


def test_truncated_segments_do_not_come_back_with_the_power(kit: Any) -> None:
    """In a compacted topic gaps are usual, so only the order of the syncs protects the log."""
    world = kit.world(MemoryFiles(), "/data", "memory")
    log = world.create(TopicConfig(segment_bytes=1000, cleanup_policies=frozenset({"compact"})))
    for offset in range(30):
        batch = kit.batch(b"." * 100, base_offset=offset, leader_epoch=0)
        log.appender.append_as_follower(batch, kit.now_ms)
    plan = log.flusher.flush_plan()
    assert plan is not None
    plan.carry_out(world.files)
    log.flusher.mark_flushed(plan, kit.now_ms)
    synced: list[str] = []

    def cut_the_power_after_the_cut(operation: str, path: str) -> None:
        if synced:
            raise PowerCut
        if operation == "sync" and path.endswith(".log"):
            synced.append(path)

    world.files.on_call = cut_the_power_after_the_cut
    with pytest.raises(PowerCut):
        log.truncation.truncate_to(Offset(7), kit.now_ms)
    world.files = world.files.crash_clone()
    recovered = world.load(clean=False, recovery_point=7)
    assert recovered.log_end_offset == 7
    assert not recovered.recovery_report.cuts
