"""Virtual time: order, simultaneous events, pipes."""

from __future__ import annotations

from functools import partial
from random import Random

import pytest

from strandline.sim.schedule import START_US, Pipe, Schedule
from strandline.sim.streams import Streams
from tests.current import current


def test_time_passes_from_one_event_to_the_next() -> None:
    schedule = Schedule()
    seen: list[tuple[str, int]] = []
    schedule.after(300, lambda: seen.append(("late", schedule.now_us)))
    schedule.at(START_US + 100, lambda: seen.append(("early", schedule.now_us)))
    assert current(schedule.next_us) == START_US + 100
    schedule.step()
    assert seen == [("early", START_US + 100)]
    schedule.run_until(START_US + 1_000)
    assert seen[1:] == [("late", START_US + 300)]
    assert (schedule.now_us, schedule.now_ms) == (START_US + 1_000, START_US // 1000 + 1)
    assert (schedule.events, schedule.next_us, len(schedule)) == (2, None, 0)


def test_what_is_due_already_happens_now_and_not_in_the_past() -> None:
    schedule = Schedule()
    times: list[int] = []
    schedule.run_until(START_US + 50)
    schedule.at(START_US, lambda: times.append(schedule.now_us))
    schedule.step()
    assert times == [START_US + 50]


def test_time_never_goes_back_when_a_run_ends_in_the_past() -> None:
    schedule = Schedule()
    schedule.run_until(START_US - 5)
    assert schedule.now_us == START_US


def test_without_a_generator_simultaneous_events_come_in_the_order_of_planning() -> None:
    assert _order_of_simultaneous(Schedule()) == list(range(20))


def test_a_generator_permutes_simultaneous_events_and_nothing_else() -> None:
    orders = [_order_of_simultaneous(Schedule(Random(seed))) for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == list(range(20)) != orders[0]
    schedule = Schedule(Random(3))
    seen: list[int] = []
    for delay_us in (5, 3, 4, 1, 2):
        schedule.after(delay_us, lambda delay_us=delay_us: seen.append(delay_us))  # type: ignore[misc]
    schedule.run_until(START_US + 10)
    assert seen == [1, 2, 3, 4, 5]


def _order_of_simultaneous(schedule: Schedule) -> list[int]:
    seen: list[int] = []
    for number in range(20):
        schedule.after(7, lambda number=number: seen.append(number))  # type: ignore[misc]
    schedule.run_until(START_US + 7)
    return seen


def test_nothing_happens_after_clear() -> None:
    schedule = Schedule()
    schedule.after(1, lambda: pytest.fail("It happens all the same."))
    schedule.clear()
    schedule.run_until(START_US + 10)
    assert schedule.events == 0


def test_a_pipe_keeps_its_order_however_long_each_item_takes() -> None:
    for seed in range(20):
        schedule = Schedule(Random(seed))
        seen: list[int] = []
        delays = Random(seed)
        pipe: Pipe[int] = Pipe(schedule, partial(delays.choice, (0, 0, 90)), seen.append)
        for item in range(30):
            pipe.send(item)
        assert seen == []
        schedule.run_until(START_US + 90)
        assert seen == list(range(30))


def test_a_held_pipe_delivers_when_it_is_released_or_item_by_item() -> None:
    schedule = Schedule()
    seen: list[int] = []
    pipe: Pipe[int] = Pipe(schedule, lambda: 10, seen.append)
    pipe.hold()
    for item in range(4):
        pipe.send(item)
    assert (len(pipe), pipe.waiting) == (4, 0)
    schedule.run_until(START_US + 10)
    assert (seen, pipe.waiting) == ([], 4)
    pipe.let_through()
    assert (seen, pipe.waiting) == ([0], 3)
    assert pipe.change(lambda item: item * 10)
    pipe.release()
    assert (seen, pipe.waiting, len(pipe)) == ([0, 10, 20, 30], 0, 0)
    pipe.send(5)
    schedule.run_until(START_US + 20)
    assert seen[-1] == 5


def test_what_was_taken_out_of_a_pipe_never_arrives() -> None:
    schedule = Schedule()
    seen: list[int] = []
    pipe: Pipe[int] = Pipe(schedule, lambda: 10, seen.append)
    pipe.send(1)
    assert pipe.take() == [1]
    pipe.send(2)
    schedule.run_until(START_US + 10)
    assert seen == [2]


def test_a_receiver_may_hold_the_pipe_in_the_middle_of_a_release() -> None:
    schedule = Schedule()
    seen: list[int] = []

    def take(item: int) -> None:
        seen.append(item)
        pipe.hold()

    pipe: Pipe[int] = Pipe(schedule, lambda: 0, take)
    pipe.hold()
    pipe.send(1)
    pipe.send(2)
    schedule.run_until(START_US)
    pipe.release()
    assert (seen, pipe.waiting) == ([1], 1)


def test_a_draw_from_one_stream_does_not_shift_another() -> None:
    some, others = Streams(7), Streams(7)
    some("a").random()
    assert [some("b").random() for _ in range(3)] == [others("b").random() for _ in range(3)]
    assert some("b") is some("b")
    assert Streams(7)("a").random() != Streams(8)("a").random() != Streams(8)("b").random()
