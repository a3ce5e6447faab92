"""Commands in what brokers say can be typed as they stand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from strandline.cli import connecting
from strandline.cli.client_config import client_config_option
from strandline.cli.connecting import as_typed, bootstrap_option

HINT = "Type `strandline topics elect orders:0 --unclean`."


@click.group()
@click.option("--bootstrap", default="localhost:9092", envvar="STRANDLINE_BOOTSTRAP")
@client_config_option
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


def test_a_hint_names_the_client_config_for_the_shell(tmp_path: Path) -> None:
    config = tmp_path / "my client.properties"
    config.write_text("security.protocol=SSL\n")
    said = CliRunner().invoke(root, ["--client-config", str(config), "hint"])
    assert f"`strandline --client-config '{config}' topics elect" in said.output


def delay_of(on_delay: Any) -> Any:
    """What a bound method is of."""
    return on_delay.__self__


def test_what_brokers_tell_of_a_delay_names_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    finding = {"about": "group g", "cause": "`strandline why __consumer_offsets/7` tells why"}
    monkeypatch.setattr(connecting, "inspect_each", lambda client, subject: {})
    monkeypatch.setattr(connecting, "answers_of", lambda found: {1: {"findings": [finding]}})
    told: list[str] = []

    @root.command()
    @bootstrap_option
    def late(bootstrap: str | None) -> None:
        with connecting.open_cluster(bootstrap) as client:
            told.extend(delay_of(client.on_delay)._causes())

    CliRunner().invoke(root, ["late", "-b", "localhost:1"], catch_exceptions=False)
    assert told == ["group g: `strandline -b localhost:1 why __consumer_offsets/7` tells why"]
