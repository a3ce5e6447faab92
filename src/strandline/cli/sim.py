"""`strandline sim`: clusters in simulated time, one per seed.

This file knows the options and which of them go together. What a run prints stands in `sim_run`,
what many runs print in `sim_sweep`; both import the simulator, and so are imported late.
"""

from __future__ import annotations

import click

from strandline.cli.connecting import json_option
from strandline.cli.lazy import LazyCommand, LazyGroup

COMMANDS = {
    "play": LazyCommand("strandline.cli.sim_play:play", "Play a scenario from a file."),
}

PROFILES = ("strict", "damage", "beyond", "safe")
"""See `sim.plan`, which is not imported before a run."""


@click.group(cls=LazyGroup, commands_at=COMMANDS, invoke_without_command=True)
@click.option("--seed", type=click.IntRange(min=0), metavar="N", help="Run this one seed.")
@click.option("--seeds", type=click.IntRange(min=1), metavar="COUNT", help="Run so many seeds.")
@click.option(
    "--from",
    "first",
    type=click.IntRange(min=0),
    metavar="N",
    help="The first of several seeds. [default: 0]",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Processes for several seeds. [default: 1]",
)
@click.option("--twice", is_flag=True, help="Run each of several seeds twice, to compare traces.")
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True),
    metavar="M",
    help="Begin no new seed after so long; a shrinking ends then. [default for --shrink: 1]",
)
@click.option(
    "--profile",
    type=click.Choice(PROFILES),
    help="How bad it may get: nothing may be lost and no disk is damaged; disks are damaged; more "
    "breaks than acks=all survives. 'safe' is one of the first two. Without it the seed decides.",
)
@click.option("--plan", "shows_plan", is_flag=True, help="Print what a seed would do; run nothing.")
@click.option(
    "--shrink", "shrinks", is_flag=True, help="Reduce a failing seed to a short scenario."
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, writable=True),
    metavar="FILE",
    help="Where --shrink or --plan writes the scenario instead of standard output.",
)
@click.option("-v", "--verbose", is_flag=True, help="Print every event of the run.")
@json_option
@click.pass_context
def sim(
    context: click.Context,
    seed: int | None,
    seeds: int | None,
    first: int | None,
    jobs: int | None,
    twice: bool,
    minutes: float | None,
    profile: str | None,
    shows_plan: bool,
    shrinks: bool,
    out: str | None,
    verbose: bool,
    as_json: bool,
) -> None:
    """Run whole clusters in simulated time, break them, and check what must be true.

    A seed decides everything: brokers, settings, clients, faults and the order of events. The same
    seed gives the same run. Ends with 1 if an invariant is broken.

    One seed shows the run; several show a summary:

    \b
        strandline sim --seed 42
        strandline sim --seeds 1000 --jobs 4
        strandline sim --seed 42 --shrink --out failing.txt
        strandline sim play failing.txt
    """
    given = {name for name, value in context.params.items() if value not in (None, False)}
    if context.invoked_subcommand is not None:
        if given:
            raise click.UsageError(
                f"Options of a run do not go with '{context.invoked_subcommand}'."
            )
        return
    many = seeds is not None or minutes is not None
    if seed is None and not many:
        if given:
            raise click.UsageError("Which seed? Say --seed N, --seeds COUNT or --minutes M.")
        click.echo(context.get_help())
        return
    _check_together(given, one=seed is not None)
    if seed is not None:
        from strandline.cli.sim_run import OneRun, print_plan, show_seed
        from strandline.cli.stopping import ends_with_its_reader

        wanted = OneRun(
            seed=seed,
            profile=profile,
            minutes=minutes,
            out=out,
            verbose=verbose,
            as_json=as_json,
        )
        with ends_with_its_reader():
            if shows_plan:
                print_plan(wanted)
            elif shrinks:
                from strandline.cli.sim_shrink import shrink_seed

                shrink_seed(wanted)
            else:
                show_seed(wanted)
        return
    from strandline.cli.sim_sweep import ManyRuns, run_many

    run_many(
        ManyRuns(
            seeds=seeds,
            first=first or 0,
            jobs=jobs or 1,
            twice=twice,
            minutes=minutes,
            profile=profile,
            as_json=as_json,
        )
    )


_OPTION = {
    "first": "--from",
    "shows_plan": "--plan",
    "shrinks": "--shrink",
    "as_json": "--json",
}
_ONE_ONLY = ("shows_plan", "shrinks", "out", "verbose")
_MANY_ONLY = ("seeds", "first", "jobs", "twice")
_APART = (("shows_plan", "shrinks"), ("shows_plan", "as_json"), ("shrinks", "as_json"))


def _check_together(given: set[str], *, one: bool) -> None:
    for name in _MANY_ONLY if one else _ONE_ONLY:
        if name in given:
            other = "--seed" if one else "several seeds"
            raise click.UsageError(f"{_named(name)} does not go with {other}.")
    for pair in _APART:
        if given >= set(pair):
            raise click.UsageError(f"Say either {_named(pair[0])} or {_named(pair[1])}.")
    if "out" in given and not given & {"shows_plan", "shrinks"}:
        raise click.UsageError("--out goes with --shrink or --plan.")
    if one and "minutes" in given and "shrinks" not in given:
        raise click.UsageError("--minutes goes with --shrink or several seeds.")


def _named(parameter: str) -> str:
    return _OPTION.get(parameter, f"--{parameter}")
