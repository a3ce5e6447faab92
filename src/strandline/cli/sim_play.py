"""`strandline sim play`: scenarios of replicas and of whole clusters, by name or from a file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import click

from strandline.cli.connecting import json_option, parse_assignments
from strandline.cli.output import print_json
from strandline.cli.scenario_list import print_scenarios
from strandline.cli.sim_colours import bad, dim, good, strong
from strandline.cli.stopping import ends_with_its_reader
from strandline.sim.checkers.invariants import INVARIANTS
from strandline.sim.scenarios.library import find
from strandline.sim.scenarios.player import (
    COMMENT,
    STATE,
    STEP,
    TITLE,
    UNMET,
    VIOLATION,
    Outcome,
    Player,
)
from strandline.sim.scenarios.policy import VALUES, differing
from strandline.sim.scenarios.script import CLUSTER, REPLICAS, BadScript, Script

_STYLES: Final = {
    TITLE: strong,
    STEP: strong,
    COMMENT: dim,
    STATE: dim,
    VIOLATION: bad,
    UNMET: bad,
}


class WrongScript(click.ClickException):
    """A scenario that cannot be played."""

    exit_code = 2


@click.command()
@click.argument("scenario", metavar="SCENARIO", required=False)
@click.option("--list", "lists", is_flag=True, help="List the scenarios that come along.")
@click.option(
    "--truncate-by",
    type=click.Choice(VALUES["truncate"]),
    help="What returning replicas trust. Short for --policy truncate=...",
)
@click.option(
    "--policy",
    "policies",
    metavar="NAME=VALUE",
    multiple=True,
    help="Another of the exchangeable rules. May be repeated. Without it the file decides.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print only how it ends.")
@click.option("-v", "--verbose", is_flag=True, help="Of a cluster: print every event.")
@json_option
def play(
    scenario: str | None,
    lists: bool,
    truncate_by: str | None,
    policies: tuple[str, ...],
    quiet: bool,
    verbose: bool,
    as_json: bool,
) -> None:
    """Play SCENARIO, show step by step what happens, and judge it: a name of --list, or a file.

    Ends with 0 if everything went as the script says: its expectations are met, and the invariants
    that are broken are those that it names for these rules. Else with 1.
    """
    if lists or scenario is None:
        if not lists:
            raise click.UsageError("Which scenario? --list shows those that come along.")
        print_scenarios(as_json=as_json)
        return
    policy = parse_assignments(policies, "--policy")
    if truncate_by is not None:
        if "truncate" in policy:
            raise click.UsageError("Say either --truncate-by or --policy truncate=...")
        policy["truncate"] = truncate_by
    is_good = True
    try:
        script = find(scenario)
        with ends_with_its_reader():
            is_good = _play(script, policy, quiet=quiet, verbose=verbose, as_json=as_json)
    except BadScript as error:
        raise WrongScript(str(error)) from error
    if not is_good:
        raise click.exceptions.Exit(1)


def _play(
    script: Script, policy: dict[str, str], *, quiet: bool, verbose: bool, as_json: bool
) -> bool:
    if script.world == REPLICAS:
        return _play_replicas(script, policy, quiet=quiet, as_json=as_json)
    if script.world != CLUSTER:
        raise BadScript(f"{script.name} is of a world that there is not: '{script.world}'.")
    if policy:
        raise BadScript(f"{script.name} is of a whole cluster, which has no policy to choose.")
    # Only here: a scenario of replicas needs no clients and no plan, and is there at once.
    from strandline.cli.sim_cluster import play_cluster

    return play_cluster(script, judged=judged, quiet=quiet, verbose=verbose, as_json=as_json)


# -- Replicas --------------------------------------------------------------------------------


def _play_replicas(script: Script, policy: dict[str, str], *, quiet: bool, as_json: bool) -> bool:
    player = Player(script, policy)
    trace: list[str] = []
    for line in player.lines():
        trace.append(line.text)
        if not quiet and not as_json:
            style = _STYLES.get(line.kind)
            click.echo(line.text if style is None else style(line.text))
    outcome = player.outcome
    if as_json:
        print_json(_outcome_as_json(script, outcome, trace))
    else:
        if not quiet:
            click.echo()
        _say_outcome(script, outcome)
    return outcome.is_as_expected


def _say_outcome(script: Script, outcome: Outcome) -> None:
    named = {name: outcome.policy[name] for name in script.offered}
    rules = named | differing(outcome.policy)
    if rules:
        click.echo(f"Played with {', '.join(f'{n}={v}' for n, v in rules.items())}.")
    for unmet in outcome.unmet:
        click.echo(bad(f"Not met: {unmet}"))
    for number, what in sorted(outcome.broken.items()):
        paint = dim if number in outcome.expected else bad
        click.echo(f"{bad(number)} is broken. {INVARIANTS[number]}")
        click.echo(paint(f"    {what}"))
    if not outcome.broken:
        click.echo("No invariant was broken.")
    click.echo(judged(outcome.broken, outcome.expected, is_met=not outcome.unmet))


def judged(broken: Iterable[str], expected: Iterable[str], *, is_met: bool) -> str:
    """The last sentence: whether it went as the file says."""
    too_much, too_little = set(broken) - set(expected), set(expected) - set(broken)
    if too_much:
        return bad(f"The file does not say that {_joined(too_much)} would be broken.")
    if too_little:
        return bad(f"The file says that {_joined(too_little)} would be broken, too.")
    if not is_met:
        return bad("It did not go as the file says.")
    return good("Everything went as the file says.")


def _joined(names: Iterable[str]) -> str:
    *most, last = sorted(names)
    return f"{', '.join(most)} and {last}" if most else last


def _outcome_as_json(script: Script, outcome: Outcome, trace: list[str]) -> object:
    return {
        "name": script.name,
        "title": script.title,
        "policy": dict(outcome.policy),
        "as_expected": outcome.is_as_expected,
        "broken": dict(sorted(outcome.broken.items())),
        "expected": sorted(outcome.expected),
        "unmet": list(outcome.unmet),
        "trace": trace,
    }
