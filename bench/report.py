"""Turns results into a Markdown page for people and a JSON file for programs. Pure.

The first broker of the session is the subject: every ratio is the subject divided by another
broker. A ratio stands with its spread over the rounds, because a median without one invites
belief that it has not earned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from bench import replication
from bench.catalogue import GOALS
from bench.environment import Environment
from bench.goals import Goal
from bench.results import METRICS, Comparison, Metric, Results, Spread


@dataclass(frozen=True, slots=True)
class Session:
    """What was run, and where."""

    environment: Environment
    brokers: Mapping[str, str]
    """Label to kind, in the order of the columns; the first is the subject."""
    rounds: int
    warmup_rounds: int
    quick: bool
    titles: Mapping[str, str]
    """Workload name to the sentence that describes it."""
    failures: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """A goal, what was measured for it, and against which broker; None where nothing was."""

    goal: Goal
    comparison: Comparison | None
    other: str | None

    @property
    def word(self) -> str:
        """As the report says it."""
        if self.comparison is None:
            return "not measured"
        return "met" if self.goal.is_met_by(self.comparison.ratio) else "missed"


def verdicts(session: Session, results: Results) -> list[Verdict]:
    """Every goal that is about brokers of the subject's kind."""
    subject = next(iter(session.brokers))
    kind = session.brokers[subject]
    is_one_broker = kind not in replication.SUBJECTS
    return [
        _verdict(goal, subject, session, results)
        for goal in GOALS
        if kind in goal.kinds or (is_one_broker and goal.kinds == ("strandline",))
    ]


def _verdict(goal: Goal, subject: str, session: Session, results: Results) -> Verdict:
    if goal.against is None:
        below = (goal.baseline, goal.metric, subject) if goal.baseline else None
        above = (goal.workload, goal.metric, subject)
        return Verdict(goal, results.divide(above, below) if below else results.itself(above), None)
    others = (
        label
        for label, kind in session.brokers.items()
        if label != subject and kind == goal.against
    )
    other = next(others, None)
    if other is None:
        return Verdict(goal, None, None)
    return Verdict(
        goal, results.compare(goal.workload, goal.metric, subject=subject, other=other), other
    )


def markdown(session: Session, results: Results) -> str:
    """The whole page."""
    subject = next(iter(session.brokers))
    parts = [
        f"# Benchmark: {subject} against {', '.join(list(session.brokers)[1:]) or 'nothing'}",
        session.environment.line(),
        _method(session),
        *_failures(session),
        "## Goals",
        _goal_table(verdicts(session, results)),
        "## Workloads",
        *(_workload(session, results, name) for name in results.workloads()),
    ]
    return "\n\n".join(parts) + "\n"


def as_json(session: Session, results: Results) -> dict[str, object]:
    """Every run as it was measured, and the goals."""
    return {
        "environment": session.environment.as_json(),
        "brokers": dict(session.brokers),
        "rounds": session.rounds,
        "warmup_rounds": session.warmup_rounds,
        "quick": session.quick,
        "failures": list(session.failures),
        "goals": [
            {
                **asdict(verdict.goal),
                "other": verdict.other,
                "ratio": verdict.comparison.ratio if verdict.comparison else None,
                "verdict": verdict.word,
            }
            for verdict in verdicts(session, results)
        ],
        "results": [asdict(result) for result in results],
    }


def _method(session: Session) -> str:
    length = "Quick session: short runs, read it as a smoke test. " if session.quick else ""
    return (
        f"{length}{session.rounds} interleaved rounds after {session.warmup_rounds} for warming up "
        "(not counted). Cells: median (lowest to highest round). Ratios: of the medians "
        "(lowest to highest ratio of one round)."
    )


def _failures(session: Session) -> Iterator[str]:
    if session.failures:
        yield "## Runs that failed"
        yield "\n".join(f"- {failure}" for failure in session.failures)


def _goal_table(found: Sequence[Verdict]) -> str:
    rows = []
    for verdict in found:
        goal = verdict.goal
        other = (
            verdict.other or goal.against or (f"itself, `{goal.baseline}`" if goal.baseline else "")
        )
        ratio = _ratio(verdict.comparison, "x" if goal.is_ratio else "")
        rows.append([goal.title, f"`{goal.workload}`", other, goal.bound, ratio, verdict.word])
    return _table(["goal", "workload", "against", "bound", "measured", "verdict"], rows)


def _workload(session: Session, results: Results, name: str) -> str:
    # A workload that the subject cannot run is read off the first broker that can.
    subject, *others = [
        label
        for label in session.brokers
        if any(results.by_round(name, metric, label) for metric in METRICS)
    ]
    head = ["", subject, *others, *(f"{subject} / {other}" for other in others)]
    rows = []
    for metric, about in METRICS.items():
        cells = [results.spread(name, metric, label) for label in (subject, *others)]
        if not any(cells):
            continue
        row = [f"{about.title} [{about.unit}]", *(_cell(cell, about) for cell in cells)]
        row += [
            _ratio(results.compare(name, metric, subject=subject, other=other)) for other in others
        ]
        rows.append(row)
    return f"### `{name}`\n\n{session.titles.get(name, name)}.\n\n{_table(head, rows)}"


def _cell(cell: Spread | None, about: Metric) -> str:
    if cell is None:
        return "-"
    low, middle, high = (
        f"{value:,.{about.digits}f}" for value in (cell.low, cell.median, cell.high)
    )
    return middle if cell.rounds == 1 else f"**{middle}** ({low} to {high})"


def _ratio(comparison: Comparison | None, unit: str = "x") -> str:
    if comparison is None:
        return "-"
    if comparison.low == comparison.high:
        return f"{comparison.ratio:.3g}{unit}"
    return f"{comparison.ratio:.3g}{unit} ({comparison.low:.3g} to {comparison.high:.3g})"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
