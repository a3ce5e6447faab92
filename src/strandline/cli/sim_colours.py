"""The few colours of the simulator's output; `click.echo` drops them where there is no terminal."""

from __future__ import annotations

import click


def good(text: str) -> str:
    """As it should be."""
    return click.style(text, fg="green")


def bad(text: str) -> str:
    """A broken invariant, or an expectation that was not met."""
    return click.style(text, fg="red", bold=True)


def strong(text: str) -> str:
    """What a script says."""
    return click.style(text, bold=True)


def dim(text: str) -> str:
    """What is there to be looked up."""
    return click.style(text, dim=True)
