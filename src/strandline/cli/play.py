"""`strandline play`: the classical accidents of replication, step by step, to and fro."""

from __future__ import annotations

import os
import re
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from strandline.cli.connecting import json_option, parse_assignments
from strandline.cli.output import print_json
from strandline.cli.play_view import screen, whole
from strandline.cli.scenario_list import print_scenarios
from strandline.cli.sim_colours import dim
from strandline.cli.sim_play import WrongScript
from strandline.cli.stopping import ends_with_its_reader
from strandline.cli.ui import serve_page
from strandline.config.loopback import loopback
from strandline.sim.scenarios.documents import Json, document, load, moments
from strandline.sim.scenarios.library import find, name_of_known
from strandline.sim.scenarios.policy import VALUES, Policy
from strandline.sim.scenarios.script import REPLICAS, BadScript

_NEXT: Final = (" ", "\r", "\n", "n", "l", "j", "\x1b[C", "\x1b[B")
_BACK: Final = ("p", "h", "k", "\x7f", "\x1b[D", "\x1b[A")
_FIRST: Final = ("g", "0", "\x1b[H")
_LAST: Final = ("G", "$", "\x1b[F")
_QUIT: Final = ("q", "\x1b", "\x03", "\x04")
_KEY: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z~]|.", re.DOTALL)
_HELP: Final = "→ next   ← back   g first   G last   q quit"


@click.command()
@click.argument("scenario", metavar="SCENARIO", required=False)
@click.option("--list", "lists", is_flag=True, help="List the scenarios that come along.")
@click.option(
    "--truncate-by",
    type=click.Choice(VALUES["truncate"]),
    help="Play it under this rule only. Without it the old and the new rule stand side by side.",
)
@click.option(
    "--policy",
    "policies",
    metavar="NAME=VALUE",
    multiple=True,
    help="Another of the exchangeable rules. May be repeated.",
)
@click.option("--ui", "on_page", is_flag=True, help="Show it on a page in the browser.")
@json_option
def play(
    scenario: str | None,
    lists: bool,
    truncate_by: str | None,
    policies: tuple[str, ...],
    on_page: bool,
    as_json: bool,
) -> None:
    """Play SCENARIO on the real replication code: a name that --list shows, or a file.

    A .json file is a document: a recording ('strandline record'), or what --json printed.

    In a terminal the arrow keys go forwards and backwards. Otherwise, in a pipe for instance, all
    steps are printed. Ends with 0 if everything went as the script says, else with 1.
    """
    if lists or scenario is None:
        if not lists:
            raise click.UsageError("Which scenario? --list shows them.")
        print_scenarios(REPLICAS, as_json=as_json)
        return
    try:
        shown = _document(scenario, _policies(policies, truncate_by))
    except BadScript as error:
        raise WrongScript(str(error)) from error
    if on_page:
        _serve(scenario)
        return
    with ends_with_its_reader():
        _show(shown, as_json=as_json)
    if not all(run["as_expected"] for run in shown["runs"]):
        raise click.exceptions.Exit(1)


def _serve(scenario: str) -> None:
    """The page with a scenario that comes along; it has all of its rules side by side."""
    name = name_of_known(scenario)
    if name is None:
        raise click.UsageError("The page plays scenarios by name; paste a script of yours there.")
    serve_page(loopback(), 0, None, f"#/scenarios/{name}")


def _document(scenario: str, policies: list[Policy] | None) -> Json:
    if not scenario.endswith(".json"):
        return document(find(scenario), policies)
    if policies:
        raise click.UsageError("A document was played already: it has no rules to choose.")
    return load(Path(scenario))


def _policies(assignments: tuple[str, ...], truncate_by: str | None) -> list[Policy] | None:
    policy = parse_assignments(assignments, "--policy")
    if truncate_by is not None:
        if "truncate" in policy:
            raise click.UsageError("Say either --truncate-by or --policy truncate=...")
        policy["truncate"] = truncate_by
    return [policy] if policy else None


def _show(shown: Json, *, as_json: bool) -> None:
    if as_json:
        print_json(shown)
    elif sys.stdin.isatty() and sys.stdout.isatty():
        _step_through(shown)
    else:
        for line in whole(shown):
            click.echo(line)


def _step_through(shown: Json) -> None:
    """Show one moment after the other, as the keys say."""
    last = len(moments(shown)) - 1
    at = 0
    with keys() as pressed:
        while True:
            _draw(screen(shown, at), at, last)
            key = next(pressed, _QUIT[0])
            if key in _QUIT:
                return
            at = _moved(key, at, last)


@contextmanager
def keys() -> Iterator[Iterator[str]]:
    """The keys that are pressed at this terminal, arrows as one each, until it is closed."""
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    # All the time: what is typed between two waits is then neither shown nor held back.
    tty.setcbreak(terminal)
    try:
        yield _keys_of(terminal)
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _keys_of(terminal: int) -> Iterator[str]:
    while data := os.read(terminal, 1024):
        # A terminal sends the bytes of one key together; several keys may come together as well.
        yield from _KEY.findall(data.decode(errors="replace"))


def _moved(key: str, at: int, last: int) -> int:
    """Where a key leads."""
    if key in _NEXT:
        return min(at + 1, last)
    if key in _BACK:
        return max(at - 1, 0)
    if key in _FIRST:
        return 0
    if key in _LAST:
        return last
    return at


def _draw(lines: Sequence[str], at: int, last: int) -> None:
    click.clear()
    click.echo("\n".join([*lines, "", dim(f"{at} of {last}   {_HELP}")]))
