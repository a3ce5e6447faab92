"""`strandline table explain`: what of a table goes when, and why."""

from __future__ import annotations

import click

from strandline.cli.connecting import json_option
from strandline.cli.output import print_json, print_table, size_text, time_text
from strandline.cli.table_options import load_table, tables_option
from strandline.client.clock import SystemClock
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.tables.explaining import Fate
from strandline.lakehouse.tables.explaining import explain as fates_of
from strandline.lakehouse.tables.store import open_store


@click.command()
@click.argument("name")
@tables_option
@json_option
def explain(name: str, tables: Location, as_json: bool) -> None:
    """Say what of the table NAME goes when, and why, and what stays.

    That is about rows (--expire-rows), versions (--keep-history) and files that no version needs
    (--vacuum). 'goes' is what the next look of a run, or `strandline table compact`, removes.
    """
    store = open_store(load_table(tables, name), create=True)
    found = fates_of(store, now_ms=SystemClock().wall_ms())
    if as_json:
        print_json([each._asdict() for each in found])
        return
    print_table(
        ("WHAT", "COUNT", "ROWS", "SIZE", "FATE", "WHY"),
        (
            (
                each.what,
                each.number,
                "" if each.rows is None else each.rows,
                "" if each.bytes is None else size_text(each.bytes),
                _fate(each),
                each.why,
            )
            for each in found
        ),
    )
    if not found:
        click.echo("The table is empty.")


def _fate(each: Fate) -> str:
    return each.fate if each.at_ms is None else f"{each.fate} until {time_text(each.at_ms)}"
