"""The clocks of one machine: `due_us` is the exact inverse of what the monotonic clock shows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.sim.clock import DRIFT_PPM_MAX, WALL_MS, NodeClock
from strandline.sim.schedule import Schedule

DAY_MS = 86_400_000

ppm = st.integers(-DRIFT_PPM_MAX, DRIFT_PPM_MAX)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.integers(0, 10_000_000)),
        st.tuples(st.just("drift"), ppm),
        st.tuples(st.just("drift_wall"), ppm),
        st.tuples(st.just("jump"), st.integers(-3 * DAY_MS, 3 * DAY_MS)),
        st.tuples(st.just("leap"), st.just(0)),
        st.tuples(st.just("heal"), st.integers(-DAY_MS, DAY_MS)),
    ),
    max_size=12,
)


def carry_out(clock: NodeClock, schedule: Schedule, kind: str, value: int) -> None:
    match kind:
        case "wait":
            schedule.run_until(schedule.now_us + value)
        case "drift":
            clock.drift(value)
        case "drift_wall":
            clock.drift_wall(value)
        case "jump":
            clock.jump_wall(value)
        case "leap":
            clock.leap()
        case "heal":
            clock.heal(wall_offset_ms=value)
        case _:
            raise AssertionError(kind)


def shown_at(schedule: Schedule, clock: NodeClock, at_us: int) -> int:
    """What the monotonic clock shows at another time than now, if nothing happens to it."""
    now_us = schedule.now_us
    schedule.now_us = at_us
    try:
        return clock.now.monotonic_ms
    finally:
        schedule.now_us = now_us


@given(steps=steps, start_ms=st.integers(0, 10**9), first=ppm, ahead_ms=st.integers(-5, 100_000))
def test_due_is_the_least_true_time_at_which_the_clock_shows_it(
    steps: list[tuple[str, int]], start_ms: int, first: int, ahead_ms: int
) -> None:
    schedule = Schedule()
    clock = NodeClock(schedule, monotonic_ms=start_ms, drift_ppm=first)
    for kind, value in steps:
        carry_out(clock, schedule, kind, value)
    now_us, wanted = schedule.now_us, clock.now.monotonic_ms + ahead_ms
    due_us = clock.due_us(wanted)
    assert due_us >= now_us
    assert shown_at(schedule, clock, due_us) >= wanted
    if due_us > now_us:
        assert shown_at(schedule, clock, due_us - 1) < wanted
    else:
        assert clock.now.monotonic_ms >= wanted


@given(steps=steps, first=ppm)
def test_the_monotonic_clock_never_goes_back_and_stays_in_its_bounds(
    steps: list[tuple[str, int]], first: int
) -> None:
    schedule = Schedule()
    clock = NodeClock(schedule, drift_ppm=first)
    begin_us, begin_ms = schedule.now_us, clock.now.monotonic_ms
    before = begin_ms
    for kind, value in steps:
        carry_out(clock, schedule, kind, value)
        shown = clock.now.monotonic_ms
        assert shown >= before
        if kind != "wait":
            assert shown == before, f"{kind} moved the monotonic clock"
        before = shown
        passed_us = schedule.now_us - begin_us
        error_us = abs((shown - begin_ms) * 1000 - passed_us)
        assert error_us <= passed_us * DRIFT_PPM_MAX // 1_000_000 + 1000


@given(steps=steps)
def test_a_rate_adds_up_without_rounding(steps: list[tuple[str, int]]) -> None:
    """Lines that follow one another with one rate are one line, wherever they are broken."""
    schedule = Schedule()
    broken, whole = NodeClock(schedule, drift_ppm=37), NodeClock(schedule, drift_ppm=37)
    for kind, value in steps:
        if kind == "wait":
            schedule.run_until(schedule.now_us + value)
        broken.drift(37)
        broken.jump_wall(value)
        broken.jump_wall(-value)
        assert broken.now == whole.now


def test_a_clock_without_faults_shows_true_time() -> None:
    schedule = Schedule()
    clock = NodeClock(schedule)
    assert clock.now == (1000, WALL_MS + 1000)
    schedule.run_until(5_000_999)
    assert clock.now == (5000, WALL_MS + 5000)
    assert clock.due_us(5000) == 5_000_999
    assert clock.due_us(5001) == 5_001_000


def test_drift_is_felt_by_both_clocks_and_told() -> None:
    schedule = Schedule()
    clock = NodeClock(schedule, monotonic_ms=0)
    told: list[int] = []
    clock.changed = lambda: told.append(clock.due_us(11))
    clock.drift(50_000)
    schedule.run_until(1_000_000 + 10_000_000)
    assert clock.now == (10_500, WALL_MS + 11_500)
    clock.drift(-50_000)
    schedule.run_until(1_000_000 + 20_000_000)
    assert clock.now == (20_000, WALL_MS + 21_000)
    # 11 ms on a clock that runs 5 % too fast: rounded up to a whole microsecond.
    assert told == [1_010_477, 11_000_000]


def test_f56_f57_the_wall_clock_jumps_and_nothing_else_does() -> None:
    schedule = Schedule()
    clock = NodeClock(schedule, wall_offset_ms=250)
    before = clock.now
    clock.jump_wall(3 * DAY_MS)
    assert clock.now == (before.monotonic_ms, before.wall_ms + 3 * DAY_MS)
    clock.jump_wall(-4 * DAY_MS)
    assert clock.now == (before.monotonic_ms, before.wall_ms - DAY_MS)
    clock.heal(wall_offset_ms=250)
    assert clock.now == before
    clock.jump_wall(-(10**13))
    assert clock.now.wall_ms == 0
    schedule.run_until(schedule.now_us + 7000)
    assert clock.now.wall_ms == 7


def test_f58_a_leap_second_is_shown_twice_and_the_wall_clock_may_drift_alone() -> None:
    schedule = Schedule()
    clock = NodeClock(schedule)
    shown = set()
    for step in range(3):
        if step == 2:
            clock.leap()
        shown.add(clock.now.wall_ms)
        schedule.run_until(schedule.now_us + 1_000_000)
    assert len(shown) == 2
    clock.drift_wall(1000)
    monotonic_ms, wall_ms = clock.now
    schedule.run_until(schedule.now_us + 10_000_000)
    assert clock.now == (monotonic_ms + 10_000, wall_ms + 10_010)
    assert clock.due_us(monotonic_ms + 10_001) == schedule.now_us + 1000


def test_after_a_power_cut_the_monotonic_clock_begins_anew() -> None:
    schedule = Schedule()
    clock = NodeClock(schedule)
    schedule.run_until(60_000_000)
    clock.reboot()
    assert clock.now == (0, WALL_MS + 60_000)
    assert clock.due_us(5) == 60_005_000


@pytest.mark.parametrize("ppm", [DRIFT_PPM_MAX + 1, -DRIFT_PPM_MAX - 1])
def test_drift_has_bounds(ppm: int) -> None:
    clock = NodeClock(Schedule())
    for drift in (clock.drift, clock.drift_wall):
        with pytest.raises(ValueError, match="bound"):
            drift(ppm)
    assert clock.due_us(1001) == 1_001_000
