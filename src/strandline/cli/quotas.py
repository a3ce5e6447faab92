"""`strandline quotas`: how much users, client ids and addresses may use."""

from __future__ import annotations

from collections.abc import Iterator
from functools import wraps
from math import isfinite
from typing import Any

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


_Entity = dict[str, str | None]
_KINDS = (
    ("user", "A user.", "Users"),
    ("client-id", "A client id.", "Client ids"),
    ("ip", "An address.", "Addresses"),
)


@click.group(cls=SentencesGroup)
def quotas() -> None:
    """Show and change the limits of clients.

    Of users and client ids: producer_byte_rate and consumer_byte_rate (bytes per second and
    broker), request_percentage (of one thread's time), controller_mutation_rate (partitions created
    and deleted per second). Of addresses: connection_creation_rate (per second and broker).
    """


def _entity_options(command: F) -> F:
    """Add the options that name an entity; the command gets it as `entity`."""

    @wraps(command)
    def named(**arguments: Any) -> None:
        entity: _Entity = {}
        for kind, _, _ in _KINDS:
            attribute = kind.replace("-", "_")
            name, is_default = arguments.pop(attribute), arguments.pop(f"{attribute}_default")
            if name is not None and is_default:
                raise click.UsageError(f"Give one of --{kind} NAME and --{kind}-default.")
            if name is not None or is_default:
                entity[kind] = name
        if not entity or ("ip" in entity and len(entity) > 1):
            raise click.UsageError(
                "Give a user (--user NAME or --user-default), a client id (--client-id NAME or "
                "--client-id-default), both, or an address (--ip ADDRESS or --ip-default)."
            )
        command(entity=entity, **arguments)

    wrapped: Any = named
    for kind, one, many in reversed(_KINDS):
        meaning = f"{many} without a quota of their own."
        wrapped = click.option(f"--{kind}-default", is_flag=True, help=meaning)(wrapped)
        wrapped = click.option(f"--{kind}", metavar="NAME", help=one)(wrapped)
    return wrapped  # type: ignore[no-any-return]  # the command, with options


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
    entity: _Entity,
    limits: tuple[str, ...],
    dry_run: bool,
    bootstrap: str | None,
) -> None:
    """Set limits, such as producer_byte_rate=1048576."""
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
    entity: _Entity,
    names: tuple[str, ...],
    bootstrap: str | None,
) -> None:
    """Remove limits. Ends with 1 if one of them is not set; the others are removed."""
    with open_cluster(bootstrap) as client:
        admin = QuotaAdmin(client)
        limits = {
            name for quota in admin.describe() if quota.entity == entity for name in quota.limits
        }
        present = [name for name in dict.fromkeys(names) if name in limits]
        if present:
            admin.alter(entity, dict.fromkeys(present))
            click.echo(f"Removed {counted(len(present), 'limit')} of {_name(entity)}.")
    absent = [name for name in dict.fromkeys(names) if name not in limits]
    for name in absent:
        click.echo(f"There is no limit {name} of {_name(entity)}.", err=True)
    if absent:
        raise click.exceptions.Exit(1)


def _number(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not isfinite(number):
        raise click.UsageError(f"{name} takes a number, not '{text}'.")
    return number


def _name(entity: _Entity) -> str:
    return ", ".join(
        f"{kind} {_DEFAULT if name is None else name}" for kind, name in entity.items()
    )


def _rows(found: list[Quota]) -> Iterator[tuple[str, str, str]]:
    for each in found:
        for name, value in each.limits.items():
            yield _name(dict(each.entity)), name, f"{value:.15g}"
