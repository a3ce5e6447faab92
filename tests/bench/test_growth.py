"""How growth is judged: exponents, goals, tables. Nothing is measured here."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.growth.curve import Curve, Point, table
from bench.growth.picture import draw
from bench.growth.served import steps


def curve(costs: dict[float, float], **more: object) -> Curve:
    return Curve(
        title="a start",
        unit="s",
        work="partitions",
        points=[Point(work, cost) for work, cost in costs.items()],
        **more,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("costs", "exponent"),
    [
        ({1: 5, 10: 50, 100: 500}, 1),
        ({1: 5, 10: 5, 100: 500}, 2),
        ({1: 900, 100: 7, 1000: 7}, 0),
        ({10: 1, 30: 3, 100: 10}, 1),
    ],
)
def test_the_exponent_is_that_of_the_last_decade(
    costs: dict[float, float], exponent: float
) -> None:
    assert curve(costs).exponent == pytest.approx(exponent)


def test_of_one_point_there_is_no_exponent() -> None:
    assert curve({100: 3}).exponent is None
    assert curve({}).exponent is None
    assert curve({}).problems == []


def test_worse_than_linear_is_a_problem() -> None:
    assert curve({100: 1, 1000: 11}).problems == []
    (problem,) = curve({100: 1, 1000: 20}).problems
    assert problem == "a start: the exponent is 1.30, that is not linear."


def test_a_cost_of_one_piece_may_not_grow_at_all() -> None:
    (problem,) = curve({100: 1, 1000: 2}, grows=False).problems
    assert problem == "a start: the exponent is 0.30, that is not independent of it."


def test_a_missed_goal_is_a_problem_and_one_that_was_not_measured_is_none() -> None:
    (problem,) = curve({100: 1, 1000: 4}, goal=3, goal_at=1000).problems
    assert problem == "a start: 4 s for 1,000 partitions; at most 3 is the goal."
    assert curve({100: 4}, goal=3, goal_at=1000).problems == []


def test_a_table_has_a_column_for_each_amount_of_work() -> None:
    shown = table([curve({1: 0.5, 10: 1.25}, goal=3, goal_at=10), curve({10: 2})])
    assert shown.splitlines() == [
        "| cost | 1 | 10 | exponent | goal |",
        "|---|---|---|---|---|",
        "| a start, s | 0.5 | 1.25 | 0.40 | 3 |",
        "| a start, s | - | 2 | - | - |",
    ]


def test_the_same_curves_give_the_same_picture(tmp_path: Path) -> None:
    curves = [curve({1: 1, 10: 3}, goal=5, goal_at=10), curve({1: 2, 10: 0})]
    for name in ("first.svg", "second.svg"):
        draw("Partitions", curves, tmp_path / name)
    first = (tmp_path / "first.svg").read_text()
    assert first == (tmp_path / "second.svg").read_text()
    assert ">a start, s<" in first


@pytest.mark.parametrize(
    ("most", "expected"),
    [(1, [1]), (2, [1, 2]), (10, [1, 10]), (1000, [1, 10, 100, 1000])],
)
def test_steps_end_with_the_most(most: int, expected: list[int]) -> None:
    assert steps(most) == expected


def test_steps_in_thirds() -> None:
    assert steps(100, thirds=True) == [1, 3, 10, 30, 100]
