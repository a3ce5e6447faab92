"""Asking before what cannot be undone, in commands that have `--yes`."""

from __future__ import annotations

import sys

import click


def confirm(question: str) -> None:
    """Go on if the answer is yes; ask on standard error.

    Raises `click.UsageError` where there is no answer since standard input is no terminal, and
    `click.ClickException` for no.
    """
    try:
        is_sure = click.confirm(question, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        raise click.UsageError(
            f"Not confirmed: {question} Standard input is no terminal that could be asked; --yes "
            "says so beforehand."
        ) from None
    if not is_sure:
        raise click.ClickException("Nothing was done.")
