"""Keyed timers against a plain model."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.groups.timers import Timers
from strandline.types import Instant

KEYS = st.integers(0, 4)
STEPS = st.lists(
    st.tuples(st.just("schedule"), KEYS, st.integers(0, 20))
    | st.tuples(st.just("cancel"), KEYS)
    | st.tuples(st.just("advance"), st.integers(0, 10)),
    max_size=60,
)

Step = tuple[Any, ...]
"""What happens, and to which timer or for how long."""


def fire_due(timers: Timers, now_ms: int) -> None:
    """Do everything that is due, one thing after the other."""
    while (deadline_ms := timers.next_deadline()) is not None and deadline_ms <= now_ms:
        timers.fire_first(Instant(now_ms, 0))


@given(STEPS, st.sampled_from([3, 1024]))
def test_everything_fires_once_and_in_time(steps: list[Step], sweep_at_least: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("strandline.groups.timers._SWEEP_AT_LEAST", sweep_at_least)
        check_against_model(steps)


def check_against_model(steps: list[Step]) -> None:
    timers, model, now_ms = Timers(), {}, 0
    fired = []
    for step in steps:
        match step:
            case ("schedule", key, delay_ms):
                deadline_ms = now_ms + delay_ms
                model[key] = deadline_ms
                timers.schedule(key, deadline_ms, partial(lambda k, _now: fired.append(k), key))
            case ("cancel", key):
                model.pop(key, None)
                timers.cancel(key)
            case ("advance", delay_ms):
                now_ms += delay_ms
                fire_due(timers, now_ms)
                due = {key: at for key, at in model.items() if at <= now_ms}
                assert sorted(fired) == sorted(due)
                assert [due[key] for key in fired] == sorted(due.values())
                model = {key: at for key, at in model.items() if key not in due}
                fired.clear()
        assert timers.next_deadline() == min(model.values(), default=None)
        assert len(timers) == len(model)
        assert set(timers) == set(model)


def test_heartbeats_do_not_grow_the_heap() -> None:
    timers = Timers()
    for now_ms in range(10_000):
        timers.schedule("session", now_ms + 10_000, lambda _now: None)
    assert len(timers._heap) == 1


def test_an_action_may_schedule_what_is_due_at_once() -> None:
    timers, seen = Timers(), []

    def again(now: Instant) -> None:
        seen.append(now.monotonic_ms)
        if len(seen) < 3:
            timers.schedule("again", now.monotonic_ms, again)

    timers.schedule("again", 5, again)
    fire_due(timers, 7)
    assert seen == [7, 7, 7]
    assert timers.next_deadline() is None


def test_timers_that_are_called_off_take_no_room() -> None:
    """A client that came and went filled the memory until the sessions would have been over."""
    timers = Timers()
    fired: list[int] = []
    for number in range(10_000):
        timers.schedule(("session", number), 1_800_000, lambda _: None)
        timers.cancel(("session", number))
        if number % 100 == 0:
            timers.schedule(number, number, partial(lambda n, _now: fired.append(n), number))
    assert len(timers._heap) < 3_000
    while timers.next_deadline() is not None:
        timers.fire_first(Instant(10_000, 10_000))
    assert fired == list(range(0, 10_000, 100))
