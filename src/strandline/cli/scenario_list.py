"""The scenarios that come along, as a list in groups; two commands print it."""

from __future__ import annotations

import click

from strandline.cli.output import print_json
from strandline.cli.sim_colours import dim, strong
from strandline.sim.scenarios.library import GROUPS, scripts


def print_scenarios(world: str | None = None, *, as_json: bool) -> None:
    """Print those of one world, or of all of them."""
    found = [each for each in scripts().items() if world in (None, each[1].world)]
    rows = [
        {
            "name": name,
            "aliases": list(script.aliases),
            "group": script.header["group"],
            "title": script.title,
        }
        for name, script in found
    ]
    if as_json:
        print_json(rows)
        return
    for group, about in GROUPS.items():
        click.echo(f"{strong(group)}: {about}")
        for name, script in found:
            if script.header["group"] == group:
                aliases = dim(f"  ({', '.join(script.aliases)})") if script.aliases else ""
                click.echo(f"  {name}{aliases}\n      {dim(script.title)}")
        click.echo()
