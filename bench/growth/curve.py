"""Cost against work, and how fast the one grows with the other. Pure: no clock, no process."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

DECADE: Final = 10.0
LINEAR: Final = 1.0
TOLERANCE: Final = 0.15
"""How far from 1 an exponent may be read off a noisy machine."""


@dataclass(frozen=True, slots=True)
class Point:
    """What so much work has cost."""

    work: float
    cost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """The costs of one kind of work.

    - `title`: what costs, `unit` of that, `work` what there is more of;
    - `goal`: the most that it may cost at `goal_at`, None without a goal;
    - `grows`: whether the cost is of all the work together and may grow as it does. Otherwise it
      is of one piece (a connection, a request) and should stay what it is.
    """

    title: str
    unit: str
    work: str
    points: Sequence[Point]
    goal: float | None = None
    goal_at: float = 0.0
    grows: bool = True

    @property
    def exponent(self) -> float | None:
        """Of work in the last decade: 1 is linear, 0 is independent; None if it was not reached."""
        most = max((point.work for point in self.points), default=0.0)
        last = [point for point in self.points if point.work >= most / DECADE and point.cost > 0]
        if len(last) < 2:
            return None
        xs = [math.log(point.work) for point in last]
        ys = [math.log(point.cost) for point in last]
        x, y = sum(xs) / len(xs), sum(ys) / len(ys)
        spread = sum((each - x) ** 2 for each in xs)
        return sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / spread

    @property
    def problems(self) -> list[str]:
        """What is worse than it may be, each as a sentence."""
        found = []
        exponent, allowed = self.exponent, LINEAR if self.grows else 0.0
        if exponent is not None and exponent > allowed + TOLERANCE:
            kind = "linear" if self.grows else "independent of it"
            found.append(f"{self.title}: the exponent is {exponent:.2f}, that is not {kind}.")
        found += [
            f"{self.title}: {point.cost:.3g} {self.unit} for {point.work:,.0f} {self.work}; "
            f"at most {self.goal:g} is the goal."
            for point in self.points
            if self.goal is not None and point.work == self.goal_at and point.cost > self.goal
        ]
        return found


def table(curves: Sequence[Curve]) -> str:
    """All curves of one kind of work as one table in Markdown."""
    works = sorted({point.work for curve in curves for point in curve.points})
    head = ["cost", *(f"{work:,.0f}" for work in works), "exponent", "goal"]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for curve in curves:
        costs = {point.work: f"{point.cost:.3g}" for point in curve.points}
        exponent = "-" if curve.exponent is None else f"{curve.exponent:.2f}"
        goal = "-" if curve.goal is None else f"{curve.goal:g}"
        cells = [f"{curve.title}, {curve.unit}", *(costs.get(work, "-") for work in works)]
        lines.append(f"| {' | '.join([*cells, exponent, goal])} |")
    return "\n".join(lines)
