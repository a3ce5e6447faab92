"""docs/cli.md says what the commands say."""

from __future__ import annotations

from pathlib import Path

import click

from strandline.cli.document import document, walk
from strandline.cli.main import cli

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def test_the_page_is_what_the_commands_generate() -> None:
    assert PAGE.read_text() == document(), "python -m strandline.cli.document > docs/cli.md"


def test_every_command_and_option_is_on_the_page() -> None:
    page = PAGE.read_text()
    root = click.Context(cli, info_name="strandline", **cli.context_settings)
    for command, context in walk(cli, root):
        assert f"\n## {context.command_path}\n" in page
        section = page.split(f"\n## {context.command_path}\n")[1].split("\n## ")[0]
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, f"{context.command_path} {parameter.name}"
                assert all(each in section for each in parameter.opts)
