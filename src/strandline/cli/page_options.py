"""Options of commands that serve the live page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from strandline.errors import InvalidSetting

if TYPE_CHECKING:
    from strandline.lakehouse.locations.location import Location
    from strandline.ui.questions import Question

edit_option = click.option(
    "--edit",
    "may_edit",
    is_flag=True,
    help="Let the page produce records and reset groups.",
)

page_tables_option = click.option(
    "--tables",
    metavar="DIR",
    help="Show the lakehouse tables in this directory, here or in a store, as well.",
)


def tables_place(directory: str) -> Location:
    """A directory of tables that can be shown. Raises `click.UsageError`, `ClickException`."""
    from strandline.cli.table_options import check_installed
    from strandline.lakehouse.locations.location import Location

    check_installed(needs_spark=False)
    try:
        return Location.parse(directory, setting="--tables")
    except InvalidSetting as wrong:
        raise click.UsageError(str(wrong)) from wrong


def tables_in(directory: str) -> Question:
    """What tells of the tables in a directory. Raises as `tables_place`."""
    place = tables_place(directory)
    from strandline.lakehouse.service.showing import TablesShown

    return TablesShown(place).document
