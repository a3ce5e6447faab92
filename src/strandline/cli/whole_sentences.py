"""A group of commands whose list shows the whole first sentence of each."""

from __future__ import annotations

from typing import Final

import click

_SENTENCE_CHARS: Final = 500


class SentencesGroup(click.Group):
    """As click's own, which cuts sentences off where a line ends."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands; long sentences go on in the next line."""
        rows = [
            (name, command.get_short_help_str(_SENTENCE_CHARS))
            for name in self.list_commands(ctx)
            if (command := self.get_command(ctx, name)) is not None and not command.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
