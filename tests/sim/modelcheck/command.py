"""`python -m tests.sim.modelcheck`: every order of events in a small cluster, not some of many."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

import click

from strandline.cli.connecting import json_option
from strandline.cli.output import counted, print_json
from strandline.cli.sim_colours import bad, good
from strandline.cli.stopping import ends_with_its_reader
from strandline.sim.checkers.invariants import INVARIANTS
from tests.sim.modelcheck import mutants as checking
from tests.sim.modelcheck.rules import Bounds
from tests.sim.modelcheck.search import Searched

F = TypeVar("F", bound=Callable[..., Any])

_BOUNDS = Bounds()


def _bound(option: str, default: int, text: str, least: int = 0) -> Callable[[F], F]:
    return click.option(
        option,
        type=click.IntRange(min=least),
        default=default,
        show_default=True,
        metavar="N",
        help=text,
    )


@click.command()
@_bound("--replicas", _BOUNDS.replicas, "Replicas of the one partition.", 1)
@_bound("--records", _BOUNDS.records, "Records that clients write, all in all.")
@_bound("--epochs", _BOUNDS.epochs, "Leader epochs, the first one included.", 1)
@_bound("--crashes", _BOUNDS.crashes, "Processes that die, all in all.")
@_bound("--losses", _BOUNDS.losses, "Deaths among them in which a machine forgets.")
@_bound("--expiries", _BOUNDS.expiries, "Sessions that end although the process lives.")
@_bound("--delayed", _BOUNDS.delayed, "Requests that may be under way at the same time.")
@_bound("--min-in-sync", _BOUNDS.min_in_sync, "min.insync.replicas.", 1)
@click.option("--unclean", is_flag=True, help="Also elections of replicas that may lack records.")
@click.option(
    "--states",
    type=click.IntRange(min=1),
    metavar="N",
    help="Stop after so many states. Without it everything is searched.",
)
@click.option("--without", metavar="RULE", help="Leave out a rule of the core.")
@click.option("--mutants", is_flag=True, help="Leave out each rule in turn and print a table.")
@json_option
def modelcheck(
    states: int | None, without: str | None, mutants: bool, as_json: bool, **bounds: Any
) -> None:
    """Try everything that a small cluster can do, and check every state.

    One partition, a few replicas, records and leader epochs; the decisions are made by the code of
    the broker. Ends with 1 if something can break, after the shortest way to it.
    """
    if without is not None and without not in checking.RULES:
        raise click.UsageError(
            f"--without: There is no rule '{without}'; there are {', '.join(checking.RULES)}."
        )
    with ends_with_its_reader():
        if mutants:
            if as_json or without is not None:
                raise click.UsageError("--mutants goes with --states only.")
            click.echo(checking.table(checking.catch_all(states_max=states)), nl=False)
            return
        progress = _Progress()
        searched = checking.exhaust(
            bounds=Bounds(**bounds), without=without, states_max=states, told=progress.told
        )
        progress.end()
        if as_json:
            print_json(_as_json(searched))
        else:
            _show(searched)
    if searched.broken:
        raise click.exceptions.Exit(1)


def _show(searched: Searched) -> None:
    for step in searched.path:
        click.echo(f"  {step}".rstrip())
    for broken in searched.broken:
        sentence = INVARIANTS.get(broken.invariant, "")
        click.echo(f"{bad(broken.invariant)} is broken. {sentence}".rstrip())
        click.echo(f"    {broken.what}")
    seen = (
        f"{counted(searched.states, 'state')}, {counted(searched.moves, 'move')}, "
        f"{counted(searched.depth, 'step')} deep"
    )
    if searched.broken:
        click.echo(f"{seen}; this is a shortest way.")
    elif searched.is_complete:
        click.echo(good(f"{seen}: that is everything, and nothing can break."))
    else:
        click.echo(f"{seen}: nothing broke so far, but there is more.")


def _as_json(searched: Searched) -> object:
    return {
        "states": searched.states,
        "moves": searched.moves,
        "depth": searched.depth,
        "complete": searched.is_complete,
        "broken": [{"invariant": each.invariant, "what": each.what} for each in searched.broken],
        "path": [str(step) for step in searched.path],
    }


class _Progress:
    """States and depth on standard error, now and then."""

    def __init__(self) -> None:
        self._is_watched = sys.stderr.isatty()
        self._began_s = self._shown_s = time.monotonic()

    def told(self, states: int, depth: int) -> None:
        """A level is done."""
        now_s = time.monotonic()
        if now_s - self._shown_s < (0.2 if self._is_watched else 10.0):
            return
        self._shown_s = now_s
        line = (
            f"{counted(states, 'state')}, {counted(depth, 'step')} deep, "
            f"{now_s - self._began_s:.0f} s"
        )
        start, end = ("\r\x1b[K", False) if self._is_watched else ("", True)
        click.echo(f"{start}{line}", err=True, nl=end)

    def end(self) -> None:
        """The result is next."""
        if self._is_watched:
            click.echo("\r\x1b[K", err=True, nl=False)
