"""`strandline why`: causes, evidence and remedies, from the rules of all brokers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from strandline.cli.connecting import (
    LOOKING_MS,
    as_typed,
    bootstrap_option,
    json_option,
    open_cluster,
)
from strandline.cli.output import print_json, time_text
from strandline.cli.place import Place, place_argument
from strandline.client.admin_groups import GroupAdmin
from strandline.client.cluster import ClusterClient
from strandline.client.inspection import answers_of, inspect_each
from strandline.errors import ErrorCode, ProtocolError
from strandline.types import BrokerId


@click.command()
@place_argument
@click.option("--group", metavar="GROUP", help="Ask about a consumer group.")
@click.option("--error", metavar="CODE", help="Ask about an error, by Kafka's name of it.")
@json_option
@bootstrap_option
def why(
    place: Place | None,
    group: str | None,
    error: str | None,
    as_json: bool,
    bootstrap: str | None,
) -> None:
    """Explain what is refused or stands still: cause, since when, evidence, and what ends it.

    Without arguments, everything that is not as it should be. docs/why.md has all rules.
    """
    if place is not None and group is not None:
        raise click.UsageError("Ask about a topic or about a group, not both.")
    asked: dict[str, object] = {"group": group, "error": error}
    if place is not None:
        asked |= {"topic": place.topic, "partition": place.partition}
    arguments = {name: value for name, value in asked.items() if value is not None}
    with open_cluster(bootstrap, patience_ms=LOOKING_MS) as client:
        found = inspect_each(client, "why", **arguments)
        answers = answers_of(found)
        silent = {each: d for each, d in found.items() if isinstance(d, ProtocolError)}
        if not answers:
            raise next(iter(silent.values()))
        findings = merge(answers)
        if group is not None and not findings and not silent:
            _check_group(client, group)
    # Brokers before 0.2 do not say it.
    is_missing = place is not None and not any(d.get("known", True) for d in answers.values())
    if as_json:
        print_json(findings)
    else:
        for broker, refusal in silent.items():
            click.echo(f"Broker {broker} does not answer: {refusal.message}", err=True)
        for finding in findings:
            _print(finding, bootstrap)
        if not findings and not is_missing:
            click.echo("Nothing that the brokers know of is refused or stands still.")
    if is_missing:
        raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no {place}.")


def _check_group(client: ClusterClient, group: str) -> None:
    """Raises `ProtocolError` (GROUP_ID_NOT_FOUND). To list groups makes no topic for them."""
    if all(each.group != group for each in GroupAdmin(client).list_all()):
        raise ProtocolError(ErrorCode.GROUP_ID_NOT_FOUND, f"There is no group '{group}'.")


def merge(answers: Mapping[BrokerId, Any]) -> list[dict[str, Any]]:
    """What brokers found alike is told once, with the names of all of them."""
    found: dict[tuple[object, ...], dict[str, Any]] = {}
    for broker, document in answers.items():
        for finding in document["findings"]:
            # Brokers before 0.2 do not say what is over.
            is_over = finding.get("over", False)
            key = (finding["rule"], finding["about"], finding["cause"], is_over)
            known = found.setdefault(key, {**finding, "evidence": [], "brokers": []})
            if broker not in known["brokers"]:
                known["brokers"].append(broker)
            known["evidence"] += [e for e in finding["evidence"] if e not in known["evidence"]]
            known["since_wall_ms"] = _earlier(known["since_wall_ms"], finding["since_wall_ms"])
    return list(found.values())


def _earlier(one: int | None, other: int | None) -> int | None:
    known = [each for each in (one, other) if each is not None]
    return min(known, default=None)


def _print(finding: Mapping[str, Any], bootstrap: str | None) -> None:
    click.echo(f"{finding['about']}: {as_typed(finding['cause'], bootstrap)}")
    rule, since = finding["rule"], finding["since_wall_ms"]
    if rule is not None:
        click.echo(f"  rule      {rule}: {finding['title']}")
    if since is not None:
        click.echo(f"  since     {time_text(since)}")
    for line in finding["evidence"]:
        click.echo(f"  evidence  {line}")
    if finding["remedy"] is not None:
        click.echo(f"  ends by   {as_typed(finding['remedy'], bootstrap)}")
    if finding["settings"]:
        click.echo(f"  settings  {', '.join(finding['settings'])}")
    click.echo(f"  told by   broker {', '.join(map(str, finding['brokers']))}\n")
