"""Which log is compacted, how far, and what is said about it."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import InvalidSetting
from strandline.records.builder import build_batch
from strandline.records.record import Record
from strandline.storage.compaction.bounds import Bound, cleanable_range
from strandline.storage.compaction.choice import Candidate, choose
from strandline.storage.compaction.facts import State, compaction_facts
from strandline.storage.compaction.grouping import SPAN_MAX, SegmentSizes, group_segments
from strandline.storage.compaction.plan import CleanerSettings
from strandline.storage.compaction.throttle import Throttle
from strandline.storage.log import Log
from strandline.storage.memory_files import MemoryFiles
from strandline.types import LeaderEpoch, Offset, ProducerEpoch, ProducerId
from tests.storage.compaction.conftest import COMPACTED, compact, plan_all, put
from tests.storage.conftest import NOW_MS, World


@pytest.fixture
def world() -> World:
    return World(MemoryFiles(), "/data", "memory")


def filled(world: World, segments: int, *, gap_ms: int = 100, **settings: Any) -> Log:
    """A log with so many closed segments of two batches each, `gap_ms` apart, and an empty one."""
    log = world.create(replace(COMPACTED, **settings))
    for segment in range(segments):
        for _ in range(2):
            put(log, (b"key", b"." * 200), now_ms=NOW_MS + segment * gap_ms)
        log.roller.roll(NOW_MS)
    return log


def test_records_without_a_time_wait_as_long_as_their_file_is_young(world: World) -> None:
    assert isinstance(world.files, MemoryFiles)
    world.files.now_ms = NOW_MS
    log = world.create(replace(COMPACTED, min_compaction_lag_ms=60_000))
    for value in (b"1", b"2"):
        put(log, (b"key", value), now_ms=-1)
    log.roller.roll(NOW_MS)
    found = cleanable_range(log, None, NOW_MS + 59_999)
    assert (found.first_uncleanable, found.bound) == (0, Bound.MIN_COMPACTION_LAG)
    found = cleanable_range(log, None, NOW_MS + 60_000)
    assert (found.first_uncleanable, found.bound) == (2, Bound.ACTIVE_SEGMENT)


def test_everything_below_the_active_segment_is_cleanable(world: World) -> None:
    log = filled(world, 4)
    put(log, (b"key", b"active"))
    found = cleanable_range(log, None, NOW_MS)
    assert (found.first_dirty, found.first_uncleanable, found.bound) == (0, 8, Bound.ACTIVE_SEGMENT)
    assert found.cleanable_bytes == log.size_bytes - log.active.size
    assert (found.clean_bytes, found.ratio, found.checkpoint_is_off) == (0, 1.0, False)
    half = cleanable_range(log, Offset(4), NOW_MS)
    assert (half.clean_bytes, half.ratio) == (found.cleanable_bytes // 2, 0.5)
    assert not half.due(log.config).is_now, "the share must be greater than the setting, not equal"
    assert half.due(replace(log.config, min_cleanable_dirty_ratio=0.49)).is_now
    nothing = cleanable_range(log, Offset(8), NOW_MS)
    assert (nothing.cleanable_bytes, nothing.ratio) == (0, 0.0)
    assert not nothing.due(replace(log.config, min_cleanable_dirty_ratio=0.0)).is_now
    assert plan_all(log, 8) is None


def test_a_round_that_ended_inside_a_segment_counts_it_twice(world: World) -> None:
    """As in Kafka, whose sizes are those of whole segments."""
    log = filled(world, 2)
    found = cleanable_range(log, Offset(1), NOW_MS)
    assert found.clean_bytes == log.segments.first.size
    assert found.cleanable_bytes == log.size_bytes


@pytest.mark.parametrize("checkpoint", [3, 100])
def test_a_checkpoint_outside_the_log_counts_for_nothing(world: World, checkpoint: int) -> None:
    log = filled(world, 4)
    log.retention.delete_records_to(Offset(4))
    found = cleanable_range(log, Offset(checkpoint), NOW_MS)
    assert (found.first_dirty, found.checkpoint_is_off) == (4, True)


def test_r24_a_log_start_inside_the_active_segment_leaves_nothing_to_compact(
    world: World,
) -> None:
    """KAFKA-9133: the first dirty offset lies above the base of the active segment."""
    log = filled(world, 2)
    for value in (b"1", b"2", b"3"):
        put(log, (b"key", value))
    log.retention.delete_records_to(Offset(6))
    assert log.active.base_offset < log.log_start_offset
    for checkpoint in (None, Offset(2), Offset(6)):
        found = cleanable_range(log, checkpoint, NOW_MS)
        assert (found.first_dirty, found.cleanable_bytes) == (6, 0)
        assert not found.due(log.config).is_now
    assert plan_all(log, 6) is None


def test_r21_what_is_not_committed_is_not_compacted(world: World) -> None:
    log = filled(world, 4)
    log.offsets.high_watermark = Offset(5)
    found = cleanable_range(log, None, NOW_MS)
    assert (found.bound, found.bound_offset) == (Bound.HIGH_WATERMARK, 5)
    assert found.first_uncleanable == 4, "the base of the segment that holds the bound"


def test_an_open_transaction_is_a_bound(world: World) -> None:
    log = filled(world, 2)
    batch = build_batch(
        [Record(timestamp=NOW_MS, key=b"k", value=b"." * 200)],
        producer_id=ProducerId(7),
        producer_epoch=ProducerEpoch(0),
        base_sequence=0,
        is_transactional=True,
    )
    log.appender.append_as_leader(bytearray(batch), leader_epoch=LeaderEpoch(0), now_ms=NOW_MS)
    log.roller.roll(NOW_MS)
    put(log, (b"key", b"1"))
    log.roller.roll(NOW_MS)
    found = cleanable_range(log, None, NOW_MS)
    assert (found.first_uncleanable, found.bound) == (4, Bound.LAST_STABLE_OFFSET)


def test_young_records_are_left_alone(world: World) -> None:
    log = filled(world, 4, min_compaction_lag_ms=150)
    times = {150: 0, 151: 2, 250: 2, 251: 4, 351: 6, 451: 8}
    for after_ms, expected in times.items():
        found = cleanable_range(log, None, NOW_MS + after_ms - 1)
        assert found.first_uncleanable == expected
        assert (found.bound is Bound.MIN_COMPACTION_LAG) == (expected < 8)


def test_old_records_make_a_clean_log_due(world: World) -> None:
    log = filled(world, 4, max_compaction_lag_ms=1000)
    for now_ms, overdue_ms in {NOW_MS + 1299: 0, NOW_MS + 1300: 0, NOW_MS + 1301: 1}.items():
        found = cleanable_range(log, Offset(6), now_ms)
        assert found.ratio == 0.25
        assert found.overdue_ms == overdue_ms
        assert found.due(log.config).is_now == (overdue_ms > 0)


def test_the_dirtiest_log_comes_first() -> None:
    logs = []
    for partition in range(4):
        world = World(MemoryFiles(), "/data", "memory")
        log = filled(world, 4)
        log.location.topic_partition = log.topic_partition._replace(partition=partition)
        logs.append(log)
    marks = (6, 2, None, None)
    candidates = [
        Candidate(log, None if mark is None else Offset(mark))
        for log, mark in zip(logs, marks, strict=True)
    ]
    for order in (candidates, candidates[::-1]):
        chosen = choose(order, NOW_MS)
        assert chosen is not None
        assert chosen.log is logs[2]
    first = choose(candidates[:2], NOW_MS)
    assert first is not None
    assert (first.log, first.range.first_dirty) == (logs[1], 2)
    assert choose(candidates[:1], NOW_MS) is None
    assert choose([], NOW_MS) is None


# -- Facts ---------------------------------------------------------------------------------------


def test_facts_of_a_log_that_is_due(world: World) -> None:
    log = filled(world, 4)
    put(log, (b"key", b"active"))
    facts = compaction_facts(log, Offset(2), NOW_MS)
    assert [s.state for s in facts.segments] == [State.CLEAN, *[State.DIRTY] * 3, State.ACTIVE]
    assert (facts.is_due, facts.due_at_ms) == (True, None)
    assert facts.why_due == "The dirty ratio 0.750 exceeds min.cleanable.dirty.ratio=0.5."
    assert facts.why_bound == "The active segment begins at offset 8."
    document = json.loads(json.dumps(facts.to_json()))
    assert document["segments"][1]["state"] == "dirty"
    assert (document["first_dirty_offset"], document["first_uncleanable_offset"]) == (2, 8)
    assert [s["end_offset"] for s in document["segments"]] == [2, 4, 6, 8, 9]


@pytest.mark.parametrize(
    ("settings", "checkpoint"),
    [
        ({"min_compaction_lag_ms": 1000}, 0),
        ({"min_compaction_lag_ms": 1000}, 2),
        ({"max_compaction_lag_ms": 1000}, 6),
        ({"max_compaction_lag_ms": 1000, "min_compaction_lag_ms": 50}, 4),
    ],
)
def test_facts_say_when_a_log_becomes_due(
    world: World, settings: dict[str, int], checkpoint: int
) -> None:
    log = filled(world, 4, **settings)
    now_ms = NOW_MS + 350
    facts = compaction_facts(log, Offset(checkpoint), now_ms)
    assert not facts.is_due
    due_ms = facts.due_at_ms
    assert due_ms is not None
    assert not cleanable_range(log, Offset(checkpoint), due_ms - 1).due(log.config).is_now
    assert cleanable_range(log, Offset(checkpoint), due_ms).due(log.config).is_now
    for segment in facts.segments:
        if segment.until_ms is not None:
            at = cleanable_range(log, Offset(checkpoint), segment.until_ms)
            assert at.first_uncleanable > segment.base_offset


def test_facts_of_a_log_that_time_does_not_help(world: World) -> None:
    log = filled(world, 4)
    assert compaction_facts(log, Offset(6), NOW_MS).due_at_ms is None
    log.offsets.high_watermark = Offset(0)
    facts = compaction_facts(log, Offset(0), NOW_MS)
    assert facts.why_due == "Nothing is cleanable."
    assert facts.why_bound.startswith("The high watermark is 0")
    log.update_config(replace(log.config, cleanup_policies=frozenset({"delete"})))
    facts = compaction_facts(log, Offset(0), NOW_MS)
    assert (facts.is_due, facts.why_due) == (False, "cleanup.policy has no compact.")


def test_facts_after_a_round(world: World) -> None:
    log = filled(world, 4)
    cleaned_to = compact(world.files, log)
    assert cleaned_to == 8
    facts = compaction_facts(log, Offset(8), NOW_MS)
    assert facts.segments[0].state is State.CLEAN
    assert facts.why_due == "Nothing is cleanable."


# -- Grouping, settings, throttle ------------------------------------------------------------------


@given(
    sizes=st.lists(
        st.tuples(
            st.integers(1, 2**32), st.integers(0, 60), st.integers(0, 20), st.integers(0, 20)
        ),
        min_size=1,
        max_size=20,
    ),
    limit=st.integers(1, 150),
)
def test_groups_fit_and_are_as_large_as_they_can_be(
    sizes: list[tuple[int, int, int, int]], limit: int
) -> None:
    segments, base = [], 0
    for span, *rest in sizes:
        segments.append(SegmentSizes(base, *rest))
        base += span
    groups = group_segments(segments, segment_bytes_max=limit, index_bytes_max=30, upper_bound=base)
    assert [segment for group in groups for segment in group] == segments
    ends = [segment.base_offset for segment in segments[1:]] + [base]

    def fits(group: list[SegmentSizes]) -> bool:
        end = ends[segments.index(group[-1])]
        return (
            sum(s.log for s in group) <= limit
            and sum(s.offset_index for s in group) <= 30
            and sum(s.time_index for s in group) <= 30
            and (group[-1].log == 0 or end - 1 - group[0].base_offset <= SPAN_MAX)
        )

    assert all(len(group) == 1 or fits(group) for group in groups)
    for group, following in pairwise(groups):
        assert not fits([*group, following[0]])


def test_a_map_without_room_is_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"log\.cleaner\.dedupe\.buffer\.size"):
        CleanerSettings(dedupe_buffer_bytes=24)
    CleanerSettings(dedupe_buffer_bytes=24 * 3)


def test_the_throttle_keeps_to_its_rate_and_saves_nothing_up() -> None:
    throttle = Throttle(1000.0)
    now_ms, waited = 50, 0
    for _ in range(20):
        delay = throttle.delay_ms(100, now_ms)
        now_ms, waited = now_ms + delay, waited + delay
    assert waited == 2000
    assert throttle.delay_ms(500, now_ms + 60_000) == 500
    unlimited = Throttle(1.7976931348623157e308)
    assert all(unlimited.delay_ms(1 << 30, 7) == 0 for _ in range(100))
