"""`strandline quotas`: how much users and client ids may write and read."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite

import click

from strandline.cli.connecting import (
    F,
    bootstrap_option,
    json_option,
    open_cluster,
    parse_assignments,
)
from strandline.cli.output import counted, print_json, print_table
from strandline.cli.whole_sentences import SentencesGroup
from strandline.client.admin_quotas import Quota, QuotaAdmin

_DEFAULT = "<default>"


@click.group(cls=SentencesGroup)
def quotas() -> None:
    """Show and change the limits of clients, in bytes per second and broker."""


def _entity_options(command: F) -> F:
    for option, meaning in reversed(
        (
            ("--user", "A user."),
            ("--client-id", "A client id."),
        )
    ):
        command = click.option(option, metavar="NAME", help=meaning)(command)
    for option, meaning in (
        ("--client-id-default", "Client ids without a quota of their own."),
        ("--user-default", "Users without a quota of their own."),
    ):
        command = click.option(option, is_flag=True, help=meaning)(command)
    return command


@quotas.command(name="list")
@bootstrap_option
@json_option
def list_quotas(bootstrap: str | None, as_json: bool) -> None:
    """List all quotas."""
    with open_cluster(bootstrap) as client:
        found = QuotaAdmin(client).describe()
    if as_json:
        print_json([{"entity": e.entity, "limits": e.limits} for e in found])
    elif found:
        print_table(("ENTITY", "LIMIT", "VALUE"), sorted(_rows(found)))
    else:
        click.echo("There are no quotas.")


@quotas.command(name="set")
@_entity_options
@click.argument("limits", metavar="NAME=VALUE...", nargs=-1, required=True)
@click.option("--dry-run", is_flag=True, help="Only check whether the change is allowed.")
@bootstrap_option
def set_quotas(
    user: str | None,
    client_id: str | None,
    user_default: bool,
    client_id_default: bool,
    limits: tuple[str, ...],
    dry_run: bool,
    bootstrap: str | None,
) -> None:
    """Set limits: producer_byte_rate=1048576, consumer_byte_rate=1048576."""
    entity = _entity(user, client_id, user_default=user_default, id_default=client_id_default)
    values = {
        name: _number(name, text) for name, text in parse_assignments(limits, "NAME=VALUE").items()
    }
    with open_cluster(bootstrap) as client:
        QuotaAdmin(client).alter(entity, values, validate_only=dry_run)
    said = "Would set" if dry_run else "Set"
    click.echo(f"{said} {counted(len(values), 'limit')} of {_name(entity)}.")


@quotas.command()
@_entity_options
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@bootstrap_option
def remove(
    user: str | None,
    client_id: str | None,
    user_default: bool,
    client_id_default: bool,
    names: tuple[str, ...],
    bootstrap: str | None,
) -> None:
    """Remove limits."""
    entity = _entity(user, client_id, user_default=user_default, id_default=client_id_default)
    with open_cluster(bootstrap) as client:
        QuotaAdmin(client).alter(entity, dict.fromkeys(names))
    click.echo(f"Removed {counted(len(set(names)), 'limit')} of {_name(entity)}.")


def _entity(
    user: str | None, client_id: str | None, *, user_default: bool, id_default: bool
) -> dict[str, str | None]:
    named: list[tuple[str, str | None]] = []
    if user is not None:
        named.append(("user", user))
    if client_id is not None:
        named.append(("client-id", client_id))
    if user_default:
        named.append(("user", None))
    if id_default:
        named.append(("client-id", None))
    if len(named) != 1:
        raise click.UsageError(
            "Give one of --user NAME, --user-default, --client-id NAME, --client-id-default."
        )
    return dict(named)


def _number(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not isfinite(number):
        raise click.UsageError(f"{name} takes a number, not '{text}'.")
    return number


def _name(entity: dict[str, str | None]) -> str:
    return ", ".join(
        f"{kind} {_DEFAULT if name is None else name}" for kind, name in entity.items()
    )


def _rows(found: list[Quota]) -> Iterator[tuple[str, str, str]]:
    for each in found:
        for name, value in each.limits.items():
            yield _name(dict(each.entity)), name, f"{value:.15g}"
