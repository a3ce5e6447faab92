"""Groups of commands whose modules are imported when a command is called, not before.

This file knows click and where commands live. The short descriptions stand in the table so that a
group's help needs no command's module.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from importlib import import_module
from typing import NamedTuple

import click


class LazyCommand(NamedTuple):
    """Where a command is (`module:attribute`) and what the list of commands says about it."""

    where: str
    summary: str


class LazyGroup(click.Group):
    """A group that knows its commands by name only."""

    def __init__(self, *args: object, commands_at: Mapping[str, LazyCommand], **more: object):
        super().__init__(*args, **more)  # type: ignore[arg-type]  # click's own arguments
        self.commands_at = commands_at

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names in the order of the table."""
        del ctx
        return list(self.commands_at)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        del ctx
        found = self.commands_at.get(cmd_name)
        if found is None:
            return None
        module, attribute = found.where.split(":")
        # Imports make much that stays and hardly any garbage: looking for it is lost time.
        gc.disable()
        try:
            command = getattr(import_module(module), attribute)
        finally:
            gc.enable()
        if not isinstance(command, click.Command):
            raise TypeError(f"{found.where} is not a command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does it; its search for similar names would look at imported commands only."""
        name = args[0]
        if name not in self.commands_at and not name.startswith("-"):
            raise click.exceptions.NoSuchCommand(name, possibilities=self.commands_at, ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, at.summary) for name, at in self.commands_at.items()])
