"""`strandline sim play` for the text of a whole cluster."""

from __future__ import annotations

from collections.abc import Callable

import click

from strandline.cli.output import print_json
from strandline.cli.sim_colours import bad
from strandline.cli.sim_run import (
    print_note,
    print_phase,
    show_end,
    show_violations,
    timed,
    verdict_as_json,
)
from strandline.sim.expectations import Expectations
from strandline.sim.report import show_plan
from strandline.sim.run import run
from strandline.sim.scenarios.script import BadScript, Script
from strandline.sim.text import PlanScript, read_plan


def play_cluster(
    script: Script, *, judged: Callable[..., str], quiet: bool, verbose: bool, as_json: bool
) -> bool:
    """Run the plan of a file and print how it ends; returns whether it went as the file says."""
    text = read_plan(script)
    if text.without is not None:
        raise BadScript(
            f"{script.name} leaves out the rule '{text.without}' of the brokers: in a checkout, "
            f"`python -m tests.sim.mutants play FILE` does so."
        )
    return play_plan(text, judged=judged, quiet=quiet, verbose=verbose, as_json=as_json)


def play_plan(
    text: PlanScript, *, judged: Callable[..., str], quiet: bool, verbose: bool, as_json: bool
) -> bool:
    """As `play_cluster`, of a file that was read."""
    expectations = Expectations(text)
    talks = not quiet and not as_json
    if talks:
        click.echo(text.title)
        click.echo(show_plan(text.plan))
        click.echo()
    verdict, cpu_s = timed(
        lambda: run(
            text.plan,
            on_expect=expectations.at_its_time,
            on_end=expectations.at_the_end,
            on_note=print_note if verbose and not as_json else None,
            on_phase=print_phase if talks and not verbose else None,
        )
    )
    is_good = expectations.judge(verdict)
    if as_json:
        found = verdict_as_json(verdict, cpu_s)
        print_json({**found, "as_expected": is_good, "unmet": expectations.unmet})
        return is_good
    if talks:
        show_end(verdict, cpu_s, verbose=verbose)
        click.echo()
    for unmet in expectations.unmet:
        click.echo(bad(f"Not met: {unmet}"))
    if quiet:
        show_violations(verdict)
    broken = {violation.invariant for violation in verdict.violations}
    click.echo(judged(broken, expectations.violates, is_met=not expectations.unmet))
    return is_good
