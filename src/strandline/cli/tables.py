"""`strandline tables`: many tables from one file, in one Spark session."""

from __future__ import annotations

from typing import Final

import click

from strandline.cli.lazy import LazyCommand
from strandline.cli.table import LakehouseGroup

COMMANDS: Final = {
    "up": LazyCommand("strandline.cli.tables_up:up", "Run all tables of a file, supervised."),
    "plan": LazyCommand("strandline.cli.tables_show:plan", "Say what would be made or changed."),
    "status": LazyCommand("strandline.cli.tables_show:status", "Show how far all tables are."),
}


@click.group(cls=LakehouseGroup, commands_at=COMMANDS)
def tables() -> None:
    """Run many tables from one file, in one Spark session."""
