"""Many runs of the simulator, and what they come to."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import NamedTuple

import click

from strandline.cli.output import print_json
from strandline.cli.sim_colours import bad, good
from strandline.cli.sim_progress import ProgressBar
from strandline.cli.stopping import Stop, ends_with_its_reader
from strandline.numerals import counted
from strandline.sim.checkers.invariants import INVARIANTS
from strandline.sim.report import show_reached, show_speed
from strandline.sim.sweep import (
    SEEDS_FOR_ALL_STATES,
    TWICE_ONE_OF,
    Runner,
    SeedResult,
    SweepResult,
    run_seed,
    sweep,
)
from strandline.version import VERSION

SHOWN_SEEDS = 12
"""How many of the seeds that break one invariant are named."""


class ManyRuns(NamedTuple):
    """What was asked for."""

    seeds: int | None
    first: int = 0
    jobs: int = 1
    twice: bool = False
    minutes: float | None = None
    profile: str | None = None
    as_json: bool = False
    command: str = "strandline sim"
    """By what one of the seeds is run again."""
    runner: Runner = run_seed


def run_many(wanted: ManyRuns) -> None:
    """Run seeds and print a summary. Exits with 1 if any of them breaks an invariant, or if enough
    of them were run and a state that is counted was never reached."""
    seeds: Iterable[int] = count(wanted.first)
    if wanted.seeds is not None:
        seeds = range(wanted.first, wanted.first + wanted.seeds)
    with (
        ends_with_its_reader(),
        Stop(ends_when="the seeds that have begun are over") as stop,
        ProgressBar(wanted.seeds, "seeds") as bar,
    ):
        progress = _SweepProgress(bar, as_json=wanted.as_json)
        result = sweep(
            seeds,
            jobs=wanted.jobs,
            profile=wanted.profile,
            runner=wanted.runner,
            minutes=wanted.minutes,
            twice_one_of=1 if wanted.twice else TWICE_ONE_OF,
            told=progress,
            stop=lambda: stop.is_set,
        )
    with ends_with_its_reader():
        if wanted.as_json:
            print_json(_as_json(result, wanted))
        else:
            _show(result, wanted)
    if result.bad or result.missed:
        raise click.exceptions.Exit(1)


class _SweepProgress:
    """Hears of each seed: the bar moves, and what is broken is said at once."""

    def __init__(self, bar: ProgressBar, *, as_json: bool) -> None:
        self._bar = bar
        self._as_json = as_json
        self._failed = 0

    def __call__(self, result: SeedResult) -> None:
        if not result.is_good:
            self._failed += 1
            first = result.violations[0]
            if not self._as_json:
                head = bad(f"Seed {result.seed}: {first.invariant}")
                self._bar.say(f"{head} {' '.join(first.what.split())}")
        self._bar.advance(f", {self._failed} failed" if self._failed else "")


def _show(result: SweepResult, wanted: ManyRuns) -> None:
    stopped = " until it was stopped" if result.was_stopped and wanted.minutes is None else ""
    click.echo(
        f"{counted(result.seeds, 'seed')} from {wanted.first} on, in {result.wall_s:,.1f} s with "
        f"{counted(wanted.jobs, 'process', 'processes')}{stopped}; "
        f"{result.compared} of them twice, to compare the traces."
    )
    if not result.bad:
        click.echo(good("No invariant was broken."))
    for invariant, seeds in sorted(result.bad.items()):
        sentence = INVARIANTS.get(invariant, "The simulator itself failed.")
        click.echo(f"{bad(invariant)} is broken by {counted(len(seeds), 'seed')}. {sentence}")
        named = " ".join(map(str, seeds[:SHOWN_SEEDS]))
        click.echo(f"    {named}{' ...' if len(seeds) > SHOWN_SEEDS else ''}")
    click.echo(show_reached(result.reached_in, result.seeds))
    if result.missed:
        click.echo(bad(_why_missed(result)))
    click.echo(
        show_speed(events=result.events, simulated_us=result.simulated_us, cpu_s=result.cpu_s)
    )
    if result.bad:
        first = min(seed for seeds in result.bad.values() for seed in seeds)
        again = f"{wanted.command} --seed {first}"
        if wanted.profile is not None:
            again += f" --profile {wanted.profile}"
        click.echo(f"Strandline {VERSION}.")
        click.echo(f"Again:   {again}")
        click.echo(f"Shorter: {again} --shrink")


def _why_missed(result: SweepResult) -> str:
    names = result.missed
    return (
        f"{counted(result.seeds, 'seed')} have not reached {counted(len(names), 'state')}: "
        f"{', '.join(names)}. {SEEDS_FOR_ALL_STATES} seeds or more must reach all of them, since "
        "what is never reached is not tested."
    )


def _as_json(result: SweepResult, wanted: ManyRuns) -> object:
    return {
        "version": VERSION,
        "first": wanted.first,
        "seeds": result.seeds,
        "profile": wanted.profile,
        "bad": dict(sorted(result.bad.items())),
        "violations": [
            {"seed": seed, "invariant": each.invariant, "what": each.what, "at_us": each.at_us}
            for seed, each in sorted(result.violations, key=lambda item: (item[0], item[1].at_us))
        ],
        "reached_in": dict(sorted(result.reached_in.items())),
        "never_reached": sorted(result.never_reached),
        "missed": sorted(result.missed),
        "compared": result.compared,
        "events": result.events,
        "simulated_us": result.simulated_us,
        "cpu_s": round(result.cpu_s, 3),
        "wall_s": round(result.wall_s, 3),
        "was_stopped": result.was_stopped,
    }
