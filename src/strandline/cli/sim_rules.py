"""`strandline sim rules` and `strandline sim mutants`: is every safety rule needed, and watched?"""

from __future__ import annotations

import click

from strandline.cli.connecting import json_option
from strandline.cli.counts import counted
from strandline.cli.output import print_json, print_table
from strandline.cli.sim_colours import bad, good
from strandline.cli.sim_progress import ProgressBar
from strandline.cli.sim_run import check_rule
from strandline.cli.stopping import Stop, ends_with_its_reader
from strandline.sim.mutants import MUTANTS
from strandline.sim.mutation_table import Row, mutation_table


@click.command()
@json_option
def rules(as_json: bool) -> None:
    """List the rules of the brokers that --without can leave out, and what then should break."""
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


@click.command()
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
@click.option("--rule", "only", multiple=True, metavar="RULE", help="Only this one. Repeatable.")
@click.option("--markdown", is_flag=True, help="Print a table for a page.")
@json_option
def mutants(seeds: int, jobs: int, only: tuple[str, ...], markdown: bool, as_json: bool) -> None:
    """Leave out each rule in turn, until a seed breaks an invariant.

    Ends with 1 if some rule is not missed: then it is watched too weakly, never put to the test, or
    not needed. Rules of which it is known why no run can notice do not count.
    """
    for name in only:
        check_rule(name, "--rule")
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
