"""Options of commands that serve the live page."""

from __future__ import annotations

import click

edit_option = click.option(
    "--edit",
    "may_edit",
    is_flag=True,
    help="Let the page produce records and reset groups.",
)
