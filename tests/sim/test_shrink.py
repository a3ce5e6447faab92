"""Shrinking finds what a failure needs, whatever the failure is; and finds the same every time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.sim.options import draw_plan
from strandline.sim.plan import Action, ClientSpec, Options, Plan, TopicSpec
from strandline.sim.shrink import Progress, minimize, shrink
from strandline.sim.text import format_plan

sets = st.sets(st.integers(0, 19), max_size=6)


@given(st.integers(0, 20), sets)
def test_what_is_needed_is_what_is_left(size: int, needed: set[int]) -> None:
    items = list(range(size))
    needed &= set(items)
    assert list(minimize(items, lambda some: needed <= set(some))) == sorted(needed)


@given(st.integers(1, 20), st.lists(sets, min_size=1, max_size=4), st.data())
def test_no_single_item_can_be_left_out(
    size: int, causes: list[set[int]], data: st.DataObject
) -> None:
    """Also where there are several causes, and where what is left out may harm."""
    items = list(range(size))
    masks = data.draw(st.sets(st.integers(0, size - 1), max_size=2))
    causes = [cause & set(items) for cause in causes]

    def is_bad(some: Sequence[int]) -> bool:
        present = set(some)
        return present == set(items) or any(
            cause <= present and not (masks - cause) & present for cause in causes
        )

    found = minimize(items, is_bad)
    assert is_bad(found)
    assert not found or not is_bad(())
    for index in range(len(found)):
        assert not is_bad([*found[:index], *found[index + 1 :]]) or len(found) == 1


def kills_leader(plan: Plan) -> bool:
    """A failure that needs a producer on a topic with a setting, and one of the first kills."""
    return (
        any(client.kind == "producer" and client.options.get("acks") for client in plan.clients)
        and any(
            action.verb == "kill" and action.at_us + 300_000 <= plan.options.safety_us
            for action in plan.actions
        )
        and "replica.lag.time.max.ms" in plan.options.settings
        and plan.options.brokers >= 2
        and any(topic.partitions >= 2 for topic in plan.options.topics)
    )


WHOLE = Plan(
    Options(
        seed=3,
        brokers=4,
        racks=("a", "b", "a", "b"),
        settings={"replica.lag.time.max.ms": "900", "num.replica.fetchers": "3"},
        topics=(TopicSpec("u"), TopicSpec("t", 3, 3, {"segment.bytes": "300"})),
        drifts_ppm=(1, 2, 3, 4),
        store_lag_us=77,
        safety_us=20_000_000,
    ),
    (
        ClientSpec("consumer", "c1", {"topic": "t"}),
        ClientSpec("producer", "p1", {"topic": "t", "acks": "all", "every": "10ms"}),
        ClientSpec("producer", "p2", {"topic": "t", "acks": "1"}),
    ),
    tuple(
        Action(1_234_567 * number, verb, (str(number % 3 + 1),), {"down": "3s"})
        for number, verb in enumerate(["cut", "kill", "pause", "kill", "cut", "kill"] * 2)
    ),
)


def test_a_plan_is_shrunk_to_what_it_needs() -> None:
    small = shrink(WHOLE, kills_leader)
    assert format_plan(small) == (
        "title: seed 3\n"
        "world: cluster\n"
        "seed: 3\n"
        "brokers: 2\n"
        "settings: replica.lag.time.max.ms=900\n"
        "phases: safety=1800ms liveness=120s\n"
        "\n"
        "topic t partitions=2 replication=2\n"
        "\n"
        "client producer p2 acks=1\n"
        "\n"
        "at 1200ms kill 2 down=1ms\n"
    )


def test_it_is_the_same_every_time() -> None:
    def record() -> tuple[Plan, list[Progress]]:
        told: list[Progress] = []
        return shrink(WHOLE, kills_leader, told.append), told

    assert record() == record()


def test_progress_is_told() -> None:
    told: list[Progress] = []
    small = shrink(WHOLE, kills_leader, told.append)
    assert told[-1].lines < told[0].lines
    assert [each.runs for each in told] == sorted(each.runs for each in told)
    assert told[-1].doing == "done"
    assert told[-1].lines == len(format_plan(small).splitlines())


def test_no_plan_is_run_twice() -> None:
    seen: list[str] = []

    def is_bad(plan: Plan) -> bool:
        seen.append(format_plan(plan))
        return kills_leader(plan)

    shrink(WHOLE, is_bad)
    assert len(seen) == len(set(seen))


@pytest.mark.parametrize("runs", [1, 2, 5, 30])
def test_when_there_is_no_more_time_the_smallest_so_far_is_the_answer(runs: int) -> None:
    count = 0

    def is_bad(plan: Plan) -> bool:
        nonlocal count
        count += 1
        return kills_leader(plan)

    told: list[Progress] = []
    small = shrink(WHOLE, is_bad, told.append, may_go_on=lambda: count < runs)
    assert count == runs
    assert kills_leader(small)
    assert told[-1].doing == "stopping"


def test_a_plan_that_does_not_fail_is_refused() -> None:
    with pytest.raises(ValueError, match="does not fail"):
        shrink(WHOLE, lambda _: False)


FAILURES: list[Callable[[Plan], bool]] = [
    lambda _: True,
    lambda plan: bool(plan.clients),
    lambda plan: len(plan.actions) > 1,
    lambda plan: plan.options.brokers > 1 and bool(plan.options.settings),
]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("is_bad", FAILURES)
def test_plans_that_are_drawn_become_short(seed: int, is_bad: Callable[[Plan], bool]) -> None:
    plan = draw_plan(seed)
    if not is_bad(plan):
        pytest.skip("this seed does not have it")
    small = shrink(plan, is_bad)
    assert is_bad(small)
    assert len(format_plan(small).splitlines()) <= 12


def test_expectations_stay() -> None:
    """They are no cause of a failure, and say what a plan is for."""
    expectation = Action(2_000_000, "expect", ("t-0",), {"leader": "1"})
    plan = Plan(Options(seed=1), (), (Action(1_000_000, "kill", ("1",)), expectation))
    assert shrink(plan, lambda p: expectation in p.actions).actions == (expectation,)


def test_what_comes_after_the_failure_is_left_out_at_once() -> None:
    seen: list[Plan] = []

    def is_bad(plan: Plan) -> bool:
        seen.append(plan)
        return kills_leader(plan)

    shrink(WHOLE, is_bad, fails_at_us=4_321_000)
    assert seen[1].options.safety_us == 4_400_000
    assert max(action.at_us for action in seen[1].actions) < 4_400_000


def test_a_time_that_does_not_matter_is_short_after_one_run() -> None:
    action = Action(0, "kill", ("1",), {"down": "3600s"})
    plan = Plan(Options(seed=1, brokers=1, safety_us=100_000), (), (action,))
    told: list[Progress] = []
    small = shrink(plan, lambda p: bool(p.actions), told.append)
    assert small.actions[0].options == {"down": "1ms"}
    assert told[-1].runs < 5


def test_a_time_that_matters_is_halved_as_long_as_it_may() -> None:
    action = Action(0, "kill", ("1",), {"down": "3600s"})
    plan = Plan(Options(seed=1, brokers=1, safety_us=100_000), (), (action,))
    small = shrink(plan, lambda p: any(a.time_us("down", 0) >= 1_000_000 for a in p.actions))
    assert 1_000_000 <= small.actions[0].time_us("down", 0) < 2_000_000
