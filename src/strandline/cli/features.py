"""`strandline cluster features`: what all brokers have agreed to use."""

from __future__ import annotations

import click

from strandline.cli.connecting import (
    bootstrap_option,
    json_option,
    open_cluster,
    parse_assignments,
)
from strandline.cli.output import counted, print_json, print_table
from strandline.client.admin_features import FeatureAdmin


@click.command()
@click.option(
    "--set",
    "assignments",
    metavar="NAME=LEVEL",
    multiple=True,
    help="Change a level, up or down; 0 switches the feature off. Repeatable.",
)
@click.option("--dry-run", is_flag=True, help="Only check whether the change is allowed.")
@bootstrap_option
@json_option
def features(
    assignments: tuple[str, ...], dry_run: bool, bootstrap: str | None, as_json: bool
) -> None:
    """Show the features of the cluster and their levels, or change levels.

    A level that was never set rises by itself when the last broker of an older release is replaced.
    One that was set stays, and the changes of one command are made all or not at all.
    """
    levels = {
        name: _level(name, value) for name, value in parse_assignments(assignments, "--set").items()
    }
    if dry_run and not levels:
        raise click.UsageError("--dry-run is for --set NAME=LEVEL.")
    with open_cluster(bootstrap) as client:
        admin = FeatureAdmin(client)
        if levels:
            admin.set_levels(levels, validate_only=dry_run)
            changed = "Would set" if dry_run else "Set"
            click.echo(f"{changed} {counted(len(levels), 'level')}.", err=as_json)
            return
        found = admin.describe()
    if as_json:
        print_json(
            [
                {"name": e.name, "level": e.level, "lowest": e.lowest, "highest": e.highest}
                for e in found
            ]
        )
        return
    print_table(
        ("FEATURE", "LEVEL", "LOWEST", "HIGHEST"),
        ((each.name, each.level, each.lowest, each.highest) for each in found),
    )


def _level(name: str, value: str) -> int:
    if not value.isascii() or not value.isdecimal() or len(value) > 4:
        raise click.UsageError(f"The level of {name} is a number from 0 to 9999, not '{value}'.")
    return int(value)
