"""Commands in what brokers say can be typed as they stand."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from strandline.cli.connecting import as_typed, bootstrap_option

HINT = "Type `strandline topics elect orders:0 --unclean`."


@click.group()
@click.option("--bootstrap", default="localhost:9092", envvar="STRANDLINE_BOOTSTRAP")
def root(bootstrap: str) -> None:
    """As the real one."""


@root.command()
@bootstrap_option
def hint(bootstrap: str | None) -> None:
    """Says it."""
    click.echo(as_typed(HINT, bootstrap))


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["hint"], ""),
        (["hint", "-b", "there:1"], "-b there:1 "),
        (["--bootstrap", "there:1", "hint"], "-b there:1 "),
    ],
)
def test_a_hint_names_the_cluster_as_it_was_named(words: list[str], named: str) -> None:
    said = CliRunner().invoke(root, words)
    assert said.output == f"Type `strandline {named}topics elect orders:0 --unclean`.\n"


def test_what_the_environment_says_need_not_be_typed() -> None:
    said = CliRunner().invoke(root, ["hint"], env={"STRANDLINE_BOOTSTRAP": "there:1"})
    assert said.output == f"{HINT}\n"
