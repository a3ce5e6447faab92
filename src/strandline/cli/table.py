"""`strandline table`: topics as tables."""

from __future__ import annotations

from typing import Final

import click

from strandline.cli.lazy import LazyCommand, LazyGroup
from strandline.cli.table_options import check_installed

COMMANDS: Final = {
    "create": LazyCommand("strandline.cli.table_create:create", "Define a table of topics."),
    "run": LazyCommand("strandline.cli.table_run:run", "Bring a table's topics into it."),
    "list": LazyCommand("strandline.cli.table_show:list_tables", "List the tables."),
    "status": LazyCommand("strandline.cli.table_show:status", "Show how far a table is."),
    "doctor": LazyCommand("strandline.cli.table_doctor:doctor", "Try what a run of a table needs."),
    "history": LazyCommand("strandline.cli.table_show:history", "Show a table's commits."),
    "explain": LazyCommand(
        "strandline.cli.table_explain:explain", "Say what of a table goes when, and why."
    ),
    "verify": LazyCommand("strandline.cli.table_verify:verify", "Prove exactly once."),
    "query": LazyCommand("strandline.cli.table_query:query", "Ask tables in SQL, without Spark."),
    "rebuild": LazyCommand("strandline.cli.table_rebuild:rebuild", "Make it again from the log."),
    "diff": LazyCommand("strandline.cli.table_rebuild:diff", "Compare a table with its rebuild."),
    "compact": LazyCommand("strandline.cli.table_care:compact", "Join small files."),
    "upgrade": LazyCommand(
        "strandline.cli.table_care:upgrade", "Give its own columns the names of today."
    ),
    "widen": LazyCommand("strandline.cli.table_care:widen", "Let a column hold fractions."),
    "drop": LazyCommand("strandline.cli.table_care:drop", "Delete a table and its data."),
    "dead-letters": LazyCommand(
        "strandline.cli.table_letters:dead_letters", "What could not become rows."
    ),
}


_WITHOUT_SPARK: Final = ("query", "explain")


class LakehouseGroup(LazyGroup):
    """Commands that need what `strandline[spark]` brings."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; raises `click.ClickException` when its libraries are not there."""
        if cmd_name in self.commands_at:
            check_installed(needs_spark=cmd_name not in _WITHOUT_SPARK)
        return super().get_command(ctx, cmd_name)


@click.group(cls=LakehouseGroup, commands_at=COMMANDS)
def table() -> None:
    """Bring topics into tables that Spark, DuckDB and others read, exactly once."""
