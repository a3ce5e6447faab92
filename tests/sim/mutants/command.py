"""`python -m tests.sim.mutants`: is every safety rule of the brokers needed, and watched?

rules    the rules that can be left out
table    leaves out each in turn, until a seed breaks an invariant
run      runs one seed, or many, without a rule, as `strandline sim` does with all
play     plays a file that leaves out a rule
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

import click

from strandline.cli.connecting import json_option
from strandline.cli.output import counted, print_json, print_table
from strandline.cli.sim_cluster import play_plan
from strandline.cli.sim_colours import bad, good
from strandline.cli.sim_play import WrongScript, judged
from strandline.cli.sim_progress import ProgressBar
from strandline.cli.sim_run import OneRun, show_run
from strandline.cli.sim_shrink import shrink_run
from strandline.cli.sim_sweep import ManyRuns, run_many
from strandline.cli.stopping import Stop, ends_with_its_reader
from strandline.sim.options import draw_plan
from strandline.sim.plan import BEYOND, DAMAGE, SAFE, STRICT
from strandline.sim.scenarios.script import BadScript, load_script
from strandline.sim.text import format_plan, read_plan
from strandline.sim.verdict import Verdict
from tests.sim.mutants import MUTANTS, UnknownMutant, mutated
from tests.sim.mutants.mutation_table import Row, mutation_table
from tests.sim.mutants.running import run_seed_without


def _known(
    context: click.Context, parameter: click.Parameter, value: str | Iterable[str]
) -> object:
    """What was given, if there are such rules."""
    for name in (value,) if isinstance(value, str) else value:
        if name not in MUTANTS:
            raise click.BadParameter(
                f"There is no rule '{name}'; see 'python -m tests.sim.mutants rules'.",
                context,
                parameter,
            )
    return value


@click.group()
def mutants() -> None:
    """Run the simulator's brokers without one of their safety rules."""


@mutants.command()
@json_option
def rules(as_json: bool) -> None:
    """List the rules of the brokers that can be left out, and what then should break."""
    with ends_with_its_reader():
        if as_json:
            print_json(
                [
                    {"rule": name, "sentence": each.sentence, "expected": list(each.expected)}
                    for name, each in MUTANTS.items()
                ]
            )
            return
        print_table(
            ("LEFT OUT", "SHOULD BREAK", "THE RULE"),
            ((name, " ".join(each.expected), each.sentence) for name, each in MUTANTS.items()),
        )


@mutants.command()
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    default=200,
    show_default=True,
    metavar="COUNT",
    help="How many seeds a rule is given at most.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Processes.",
)
@click.option(
    "--rule",
    "only",
    multiple=True,
    callback=_known,
    metavar="RULE",
    help="Only this one. Repeatable.",
)
@click.option("--markdown", is_flag=True, help="Print a table for a page.")
@json_option
def table(seeds: int, jobs: int, only: tuple[str, ...], markdown: bool, as_json: bool) -> None:
    """Leave out each rule in turn, until a seed breaks an invariant.

    Ends with 1 if some rule is not missed: then it is watched too weakly, never put to the test, or
    not needed. Rules of which it is known why no run can notice do not count.
    """
    if markdown and as_json:
        raise click.UsageError("Say either --markdown or --json.")
    shows = not markdown and not as_json
    with (
        ends_with_its_reader(),
        Stop() as stop,
        ProgressBar(len(only or MUTANTS), "rules") as bar,
    ):

        def told(row: Row) -> None:
            if shows:
                bar.say(_sentence(row))
            bar.advance()

        rows = mutation_table(
            range(seeds), jobs=jobs, rules=only or None, told=told, stop=lambda: stop.is_set
        )
    with ends_with_its_reader():
        if as_json:
            print_json([row._asdict() for row in rows])
        elif markdown:
            _print_markdown(rows)
        else:
            caught = sum(row.is_caught for row in rows)
            click.echo(f"{caught} of {len(rows)} rules were missed.")
    if not all(row.is_in_order for row in rows):
        raise click.exceptions.Exit(1)


@mutants.command()
@click.argument("rule", callback=_known, metavar="RULE")
@click.option("--seed", type=click.IntRange(min=0), metavar="N", help="Run this one seed.")
@click.option("--seeds", type=click.IntRange(min=1), metavar="COUNT", help="Run so many seeds.")
@click.option("--jobs", type=click.IntRange(min=1), default=1, metavar="N", help="Processes.")
@click.option(
    "--profile", type=click.Choice([STRICT, DAMAGE, BEYOND, SAFE]), help="As of 'strandline sim'."
)
@click.option("--shrink", "shrinks", is_flag=True, help="Reduce the seed to a short scenario.")
@click.option(
    "--minutes", type=click.FloatRange(min=0, min_open=True), metavar="M", help="To shrink."
)
@click.option("--out", type=click.Path(dir_okay=False), metavar="FILE", help="For --shrink.")
@click.option("-v", "--verbose", is_flag=True, help="Print every event of the run.")
@json_option
def run(
    rule: str,
    seed: int | None,
    seeds: int | None,
    jobs: int,
    profile: str | None,
    shrinks: bool,
    minutes: float | None,
    out: str | None,
    verbose: bool,
    as_json: bool,
) -> None:
    """Run one seed without RULE, or several. Ends with 1 if an invariant is broken."""
    command = f"python -m tests.sim.mutants run {rule}"
    if (seed is None) == (seeds is None):
        raise click.UsageError("Say --seed N or --seeds COUNT.")
    if seed is None:
        run_many(
            ManyRuns(
                seeds=seeds,
                jobs=jobs,
                profile=profile,
                as_json=as_json,
                command=command,
                runner=partial(run_seed_without, rule),
            )
        )
        return
    plan = draw_plan(seed, profile)
    wanted = OneRun(seed, profile, minutes, out, verbose=verbose, as_json=as_json)
    with ends_with_its_reader(), mutated(rule):
        if shrinks:
            shrink_run(
                plan, wanted, partial(_scenario_without, rule), "python -m tests.sim.mutants play"
            )
        else:
            again = f"{command} --seed {seed}{f' --profile {profile}' if profile else ''}"
            show_run(plan, wanted, again=again, shorter=f"{again} --shrink")


def _scenario_without(rule: str, verdict: Verdict, title: str) -> str:
    """The text of a run that is meant to fail."""
    broken = {violation.invariant for violation in verdict.violations}
    return format_plan(verdict.plan, title=title, without=rule, violates=broken)


@mutants.command()
@click.argument("file", metavar="FILE", type=click.Path(exists=True, dir_okay=False))
@click.option("-q", "--quiet", is_flag=True, help="Print only how it ends.")
@click.option("-v", "--verbose", is_flag=True, help="Print every event.")
@json_option
def play(file: str, quiet: bool, verbose: bool, as_json: bool) -> None:
    """Play the cluster in FILE without the rule that it names.

    Ends with 0 if those invariants are broken that it names as well.
    """
    try:
        text = read_plan(load_script(Path(file)))
        with ends_with_its_reader(), mutated(text.without):
            is_good = play_plan(text, judged=judged, quiet=quiet, verbose=verbose, as_json=as_json)
    except (BadScript, UnknownMutant) as error:
        raise WrongScript(str(error)) from error
    if not is_good:
        raise click.exceptions.Exit(1)


def _sentence(row: Row) -> str:
    if row.seed is None and row.is_in_order:
        return f"{good(row.rule)}: no run can notice. {row.remark}"
    if row.seed is None:
        return f"{bad(row.rule)}: nothing noticed in {counted(row.seeds_needed, 'seed')}"
    return (
        f"{good(row.rule)}: {' '.join(row.caught_by)} at seed {row.seed}, "
        f"{counted(row.seeds_needed, 'seed')} needed"
    )


def _print_markdown(rows: list[Row]) -> None:
    click.echo("| left out | the rule | noticed by | seeds needed |")
    click.echo("|---|---|---|---|")
    for row in rows:
        noticed = ", ".join(row.caught_by) if row.is_caught else row.remark or "nothing"
        needed = str(row.seeds_needed) if row.is_caught else f"more than {row.seeds_needed}"
        if not row.is_caught and row.is_in_order:
            needed = "no run"
        click.echo(f"| `{row.rule}` | {row.sentence} | {noticed} | {needed} |")
