"""`strandline sim --seed N --shrink`: a run that fails, made short, as a scenario."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import click

from strandline.cli.sim_colours import bad
from strandline.cli.sim_run import OneRun, timed, write_scenario
from strandline.cli.stopping import Stop
from strandline.sim.options import draw_plan
from strandline.sim.plan import Plan
from strandline.sim.run import HarnessError, run
from strandline.sim.scenarios.script import BadScript
from strandline.sim.shrink import Progress, shrink
from strandline.sim.text import format_plan
from strandline.sim.verdict import Verdict
from strandline.version import VERSION

MINUTES_TO_SHRINK = 1.0


def scenario_of(verdict: Verdict, title: str) -> str:
    """The text of a shrunk run: it fails until what is wrong is mended."""
    return format_plan(verdict.plan, title=title)


def shrink_seed(wanted: OneRun) -> None:
    """Shrink the run of a seed; see `shrink_run`."""
    shrink_run(draw_plan(wanted.seed, wanted.profile), wanted)


def shrink_run(
    plan: Plan,
    wanted: OneRun,
    described: Callable[[Verdict, str], str] = scenario_of,
    play: str = "strandline sim play",
) -> None:
    """Shrink a plan that breaks something, and write it down as `described` makes a text of its
    last run and a title; `play` is what plays that. Exits with 1 if it breaks something."""
    # Ended like every shorter run: what is seen at once hides what would be seen when it is judged.
    verdict, _ = timed(lambda: run(plan, stop_at_violation=True))
    if verdict.is_good:
        click.echo(f"Seed {wanted.seed} breaks no invariant: there is nothing to shrink.", err=True)
        return
    first = verdict.violations[0]
    click.echo(f"{bad(first.invariant)}: {first.what}", err=True)
    minutes = MINUTES_TO_SHRINK if wanted.minutes is None else wanted.minutes
    end_s = time.monotonic() + minutes * 60
    safety = dict(verdict.phases)
    is_early = "safety" in safety and first.at_us <= safety["safety"]
    # What clients find is dated when they saw it, and counts only when the run is judged.
    is_seen_early = is_early and _breaks(plan, first.invariant, early=True)
    with Stop(ends_when="the plan that is being tried is over") as stop:
        small = shrink(
            plan,
            lambda candidate: _breaks(candidate, first.invariant, early=is_seen_early),
            _ShrinkProgress(),
            may_go_on=lambda: not stop.is_set and time.monotonic() < end_s,
            fails_at_us=first.at_us - safety["building"] if is_early else None,
        )
    final, _ = timed(lambda: run(small))
    text = described(final, f"Seed {wanted.seed} breaks {first.invariant}")
    write_scenario(_head(final, first.invariant) + text, wanted.out)
    if wanted.out is not None:
        click.echo(f"Play it: {play} {wanted.out}", err=True)
    raise click.exceptions.Exit(1)


class _TooLate(BaseException):
    """The phase in which the run should have gone wrong is over. Not to be caught as an error."""


def _breaks(plan: Plan, invariant: str, *, early: bool) -> bool:
    """Whether a plan still breaks that invariant; `early`: while faults go on.

    A plan that cannot be run does not.
    """

    def on_phase(phase: str, _: int) -> None:
        if early and phase == "safety":
            raise _TooLate

    try:
        verdict = run(plan, on_phase=on_phase, stop_at_violation=True)
    except (BadScript, HarnessError, _TooLate):
        return False
    return any(violation.invariant == invariant for violation in verdict.violations)


def _head(verdict: Verdict, invariant: str) -> str:
    found = (each.what for each in verdict.violations if each.invariant == invariant)
    return f"# {invariant}: {' '.join(next(found, '').split())}\n# Strandline {VERSION}.\n"


class _ShrinkProgress:
    """One line on standard error that changes, if a person watches."""

    def __init__(self) -> None:
        self._is_watched = sys.stderr.isatty()
        self._doing = ""

    def __call__(self, at: Progress) -> None:
        if self._is_watched:
            end = "\n" if at.doing in ("done", "stopping") else ""
            line = f"\r\x1b[K{at.runs} runs, {at.lines} lines: {at.doing}{end}"
            click.echo(line, err=True, nl=False)
        elif at.doing != self._doing:
            click.echo(f"{at.runs} runs, {at.lines} lines: {at.doing}", err=True)
        self._doing = at.doing
