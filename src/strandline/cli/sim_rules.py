"""`strandline sim rules` and `strandline sim mutants`: is every safety rule needed, and watched?"""

from __future__ import annotations

import click

from strandline.cli.connecting import json_option
from strandline.cli.output import print_json, print_table
from strandline.cli.stopping import ends_with_its_reader
from strandline.sim.mutants import MUTANTS


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
