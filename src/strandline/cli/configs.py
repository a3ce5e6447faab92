"""`strandline configs`: settings of topics, brokers and groups."""

from __future__ import annotations

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
from strandline.client.admin_configs import ConfigAdmin, ConfigEntry, Resource
from strandline.numerals import INT32_MAX, whole_number
from strandline.types import BrokerId


@click.group(cls=SentencesGroup)
def configs() -> None:
    """Show and change settings."""


def _resource_options(command: F) -> F:
    command = click.option(
        "--broker",
        metavar="ID",
        help="A broker, or 'all' for what is set for all brokers.",
    )(command)
    command = click.option("--group", metavar="NAME", help="A consumer or share group.")(command)
    return click.option("--topic", metavar="NAME", help="A topic.")(command)


@configs.command()
@_resource_options
@click.option("--all", "show_all", is_flag=True, help="Also what is inherited or a default.")
@bootstrap_option
@json_option
def describe(
    topic: str | None,
    group: str | None,
    broker: str | None,
    show_all: bool,
    bootstrap: str | None,
    as_json: bool,
) -> None:
    """Show the settings of a topic, group or broker; without --all those set for it."""
    resource = _resource(topic, group, broker)
    with open_cluster(bootstrap) as client:
        entries = ConfigAdmin(client).describe(resource)
    shown = [each for each in entries if show_all or each.is_own_of(resource)]
    if as_json:
        print_json([_as_json(each) for each in shown])
    elif shown:
        print_table(
            ("SETTING", "VALUE", "SOURCE", "READ-ONLY"),
            (
                (
                    each.name,
                    "(hidden)" if each.is_sensitive else each.value,
                    source_text(each),
                    "yes" if each.is_read_only else "",
                )
                for each in shown
            ),
        )
    else:
        click.echo(f"Nothing is set for {resource}; --all shows what it follows.")


@configs.command()
@_resource_options
@click.option(
    "--set", "assignments", metavar="NAME=VALUE", multiple=True, help="Set a value. Repeatable."
)
@click.option("--delete", "deleted", metavar="NAME", multiple=True, help="Reset it. Repeatable.")
@click.option("--dry-run", is_flag=True, help="Only check whether the change is allowed.")
@bootstrap_option
def alter(
    topic: str | None,
    group: str | None,
    broker: str | None,
    assignments: tuple[str, ...],
    deleted: tuple[str, ...],
    dry_run: bool,
    bootstrap: str | None,
) -> None:
    """Set or reset settings of a topic, group, broker, or all brokers; others stay."""
    # The other commands start without the tables of settings.
    from strandline.cli.reset_names import names_that_count

    resource = _resource(topic, group, broker)
    values = parse_assignments(assignments, "--set")
    if not values and not deleted:
        raise click.UsageError("Nothing to change: give --set NAME=VALUE or --delete NAME.")
    with open_cluster(bootstrap) as client:
        admin = ConfigAdmin(client)
        reset = names_that_count(admin, resource, deleted)
        admin.alter(resource, set_to=values, reset=deleted, validate_only=dry_run)
    count = counted(len(values) + len(reset), "setting")
    click.echo(f"{'Would change' if dry_run else 'Changed'} {count} of {resource}.")


def source_text(entry: ConfigEntry) -> str:
    """Where a value comes from, in words."""
    return entry.source.name.lower().replace("_", " ")


def _resource(topic: str | None, group: str | None, broker: str | None) -> Resource:
    if [topic, group, broker].count(None) != 2:
        raise click.UsageError("Give one of --topic NAME, --group NAME and --broker ID.")
    if topic is not None:
        return Resource.topic(topic)
    if group is not None:
        return Resource.group(group)
    if broker == "all":
        return Resource.all_brokers()
    number = whole_number(broker or "", INT32_MAX)
    if number is None:
        raise click.UsageError(f"--broker takes a broker's id or 'all', not '{broker}'.")
    return Resource.broker(BrokerId(number))


def _as_json(entry: ConfigEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "value": entry.value,
        "source": source_text(entry),
        "read_only": entry.is_read_only,
        "sensitive": entry.is_sensitive,
        "synonyms": [
            {"name": each.name, "value": each.value, "source": each.source.name.lower()}
            for each in entry.synonyms
        ],
    }
