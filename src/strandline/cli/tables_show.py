"""`strandline tables plan` and `status`: what a file would do, and how far its tables are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from strandline.cli.client_config import client_config
from strandline.cli.connecting import bootstrap_option, json_option
from strandline.cli.output import print_json, print_table, time_text
from strandline.cli.table_run import lag_as_json
from strandline.cli.tables_file import TableEntry
from strandline.cli.tables_options import brokers_of, file_argument, load_file, plan_for
from strandline.client.cluster import ClusterClient
from strandline.client.settings import ClientSettings
from strandline.errors import StrandlineError
from strandline.lakehouse.pipeline.progress import ROWS, held_in, progress_of
from strandline.lakehouse.tables.definition import DEAD_LETTERS
from strandline.lakehouse.tables.definition_checks import check_of_topics
from strandline.lakehouse.tables.spec import load_spec
from strandline.lakehouse.tables.store import open_store

_PATIENCE_MS = 10_000
_SENTENCES = {
    "create": "would be made of {topics}, in {location}",
    "same": "stays as it is",
    "change": "would change",
    "refused": "CANNOT become that",
}


@click.command()
@file_argument
@json_option
def plan(file: Path, as_json: bool) -> None:
    """Say what `tables up FILE` would make or change, and do nothing.

    Ends with 1 if a table cannot become what the file says.
    """
    shown: list[dict[str, Any]] = []
    for entry in load_file(file).tables:
        try:
            found = plan_for(entry)
        except StrandlineError as error:
            shown.append({"table": entry.name, "plan": "unknown", "reason": str(error)})
            continue
        differences = [
            {"setting": each.name, "before": each.before, "after": each.after}
            for each in (*found.refused, *found.differences)
        ]
        shown.append({"table": entry.name, "plan": found.kind, "differences": differences})
        if not as_json:
            wanted = found.wanted
            sentence = _SENTENCES[found.kind].format(
                topics=", ".join(wanted.topics), location=wanted.location
            )
            click.echo(f"{entry.name}: {sentence}")
            for difference in found.refused or found.differences:
                click.echo(f"  {difference}")
    if as_json:
        click.echo(_json_text(shown))
    unknown = [each for each in shown if each["plan"] == "unknown"]
    for each in unknown:
        click.echo(f"{each['table']}: cannot be told. {each['reason']}", err=True)
    if unknown or any(each["plan"] == "refused" for each in shown):
        raise click.exceptions.Exit(1)


@click.command()
@file_argument
@bootstrap_option
@json_option
def status(file: Path, bootstrap: str | None, as_json: bool) -> None:
    """Show each table of FILE: its frontier, lag, last commit and dead letters."""
    service = load_file(file)
    settings = ClientSettings(
        client_id="strandline-cli",
        operation_timeout_ms=_PATIENCE_MS,
        security=client_config().security,
    )
    shown = []
    with ClusterClient(brokers_of(service, bootstrap), settings) as client:
        for entry in service.tables:
            try:
                shown.append(_status(client, entry))
            except StrandlineError as error:
                shown.append({"table": entry.name, "trouble": str(error)})
    if as_json:
        print_json(shown)
    else:
        print_table(
            ("TABLE", "COMMITS", "LAST", "ROWS", "DEAD", "BEHIND", "SECONDS", "UP TO"),
            (_line(each) for each in shown),
        )
    troubles = [each for each in shown if each["trouble"] is not None]
    for each in troubles:
        click.echo(f"{each['table']}: {each['trouble']}", err=True)
    if troubles:
        raise click.exceptions.Exit(1)


def _status(client: ClusterClient, entry: TableEntry) -> dict[str, Any]:
    spec = load_spec(entry.place / entry.name)
    check_of_topics(spec)
    store = open_store(spec, create=True)
    state = store.state()
    reached, lag, trouble = progress_of(client, spec, state)
    last = next(iter(store.history(1)), None)
    counts = {side: held.counts() for side, held in held_in(store).items()}
    return {
        "table": entry.name,
        "commits": state.sequence,
        "last_commit": None if last is None else time_text(last.at_ms),
        "held": counts,
        "lag": lag_as_json(lag),
        "frontier": [
            {"topic": topic, "partition": number, "end": end}
            for (topic, number), (_, end) in sorted(reached.items())
        ],
        "trouble": None if trouble is None else f"The lag is not known: {trouble}",
    }


def _line(shown: dict[str, Any]) -> tuple[object, ...]:
    if "held" not in shown:
        return (shown["table"], *[None] * 7)
    lag = shown["lag"] or {}
    seconds = lag.get("seconds")
    return (
        shown["table"],
        shown["commits"],
        shown["last_commit"],
        shown["held"][ROWS]["rows"],
        shown["held"][DEAD_LETTERS]["rows"],
        lag.get("records"),
        None if seconds is None else round(seconds),
        " ".join(
            f"{each['topic']}-{each['partition']}:{each['end']}" for each in shown["frontier"]
        ),
    )


def _json_text(value: object) -> str:
    import json

    return json.dumps(value, indent=2, default=str)
