"""`strandline explain`: which rule keeps each segment of a topic, and when that changes.

Each partition is explained by its leader, or by the broker that is asked for. This file knows how
to ask and how to print; what the rules are the brokers say.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from strandline.cli.connecting import bootstrap_option, json_option, open_cluster
from strandline.cli.numbers import BROKER, PARTITION
from strandline.cli.output import counted, print_json, print_table, size_text, time_text
from strandline.cli.whole_sentences import SentencesGroup
from strandline.client.cluster import ClusterClient
from strandline.client.inspection import inspect
from strandline.errors import ErrorCode, ProtocolError
from strandline.types import BrokerId

_LOOK_AGAIN_S: Final = 0.2
_RANGES_SHOWN: Final = 20

Document = Mapping[str, Any]


@click.group(cls=SentencesGroup)
def explain() -> None:
    """Tell why records are still there, which rule keeps them, and when that changes.

    Only Strandline brokers can tell.
    """


@explain.command()
@click.argument("topic")
@click.option("--partition", type=PARTITION, metavar="N", help="Only this one.")
@click.option("--broker", type=BROKER, metavar="ID", help="Ask this one, and not the leaders.")
@click.option("--dry-run", is_flag=True, help="Only what the next round of retention would remove.")
@json_option
@bootstrap_option
def retention(
    topic: str,
    partition: int | None,
    broker: int | None,
    dry_run: bool,
    as_json: bool,
    bootstrap: str | None,
) -> None:
    """Show each segment, the rule that keeps or removes it, and until when."""
    with open_cluster(bootstrap) as cluster:
        documents = _ask(cluster, topic, partition, broker, what="retention")
    if dry_run:
        documents = [_only_going(document) for document in documents]
    if as_json:
        print_json(documents)
        return
    for document in documents:
        for facts in document["partitions"]:
            _show_retention(document, facts, dry_run=dry_run)


@explain.command()
@click.argument("topic")
@click.option("--partition", type=PARTITION, metavar="N", help="Only this one.")
@click.option("--broker", type=BROKER, metavar="ID", help="Ask this one, and not the leaders.")
@click.option(
    "--dry-run", is_flag=True, help="Also read all of it, and tell which offsets and bytes go."
)
@json_option
@bootstrap_option
def compaction(
    topic: str,
    partition: int | None,
    broker: int | None,
    dry_run: bool,
    as_json: bool,
    bootstrap: str | None,
) -> None:
    """Show how dirty the log is, what is compacted next, and which rule ends that part."""
    with open_cluster(bootstrap) as cluster:
        documents = _ask(cluster, topic, partition, broker, what="compaction", dry_run=dry_run)
        if dry_run:
            _await_dry_runs(cluster, documents)
    if as_json:
        print_json(documents)
        return
    for document in documents:
        for facts in document["partitions"]:
            _show_compaction(document, facts)


# -- Asking ----------------------------------------------------------------------------------


def _ask(
    cluster: ClusterClient,
    topic: str,
    partition: int | None,
    broker: int | None,
    **arguments: object,
) -> list[dict[str, Any]]:
    """One document per broker, with the partitions that it leads, or all if it was asked for."""
    partitions = cluster.topic(topic).partitions
    wanted = sorted(partitions) if partition is None else [partition]
    if partition is not None and partition not in partitions:
        raise ProtocolError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"There is no partition {partition} of topic '{topic}'.",
        )
    if broker is not None:
        by_broker = {BrokerId(broker): wanted}
    else:
        by_broker = {}
        for number in wanted:
            leader = partitions[number].leader
            if leader < 0:
                click.echo(f"{topic}-{number} has no leader: ask with --broker.", err=True)
            else:
                by_broker.setdefault(leader, []).append(number)
    found = []
    for broker_id, numbers in sorted(by_broker.items()):
        of_one: dict[str, object] = {} if partition is None else {"partition": partition}
        document = inspect(cluster, broker_id, "explain", topic=topic, **of_one, **arguments)
        document["partitions"] = [
            each for each in document["partitions"] if each["partition"] in numbers
        ]
        found.append(document)
    return found


def _await_dry_runs(cluster: ClusterClient, documents: Sequence[dict[str, Any]]) -> None:
    """Put the outcomes in the place of the tokens, as they come."""
    for document in documents:
        broker_id = BrokerId(document["broker"])
        for facts in document["partitions"]:
            token = facts.pop("token", None)
            facts["dry_run"] = None
            while token is not None:
                outcome = inspect(
                    cluster, broker_id, "explain", topic=document["topic"], what="", token=token
                )
                if outcome["state"] == "failed":
                    raise click.ClickException(outcome["problem"])
                if outcome["state"] == "done":
                    facts["dry_run"] = outcome["dry_run"]
                    break
                time.sleep(_LOOK_AGAIN_S)


def _only_going(document: Document) -> dict[str, Any]:
    return {
        **document,
        "partitions": [
            {**facts, "segments": [each for each in facts["segments"] if each["goes"]]}
            for facts in document["partitions"]
        ],
    }


# -- Printing --------------------------------------------------------------------------------


def _show_retention(document: Document, facts: Document, *, dry_run: bool) -> None:
    click.echo(
        f"{_title(document, facts)}: cleanup.policy={facts['cleanup_policy']}, "
        f"retention.ms={facts['retention_ms']}, retention.bytes={facts['retention_bytes']}; "
        f"log start {facts['log_start_offset']}, high watermark {facts['high_watermark']}, "
        f"end {facts['log_end_offset']}, {size_text(facts['size_bytes'])}"
    )
    if facts["segments"] or not dry_run:
        print_table(
            ("SEGMENT", "END", "BYTES", "NEWEST RECORD", "GOES", "RULE", "UNTIL", "WHY"),
            (
                (
                    each["base_offset"],
                    each["end_offset"],
                    each["size_bytes"],
                    _moment(each["newest_ms"]),
                    "yes" if each["goes"] else "no",
                    each["rule"],
                    _moment(each["until_ms"]),
                    each["why"],
                )
                for each in facts["segments"]
            ),
        )
    going = facts["goes_next"]
    if going["segments"]:
        click.echo(
            f"The next round removes {counted(going['segments'], 'segment')} with "
            f"{size_text(going['bytes'])}, offsets {going['from_offset']} to "
            f"{going['to_offset'] - 1}."
        )
    else:
        click.echo("The next round removes nothing.")
    if facts["next_change_ms"] is not None:
        click.echo(f"Time alone lets the next segment go at {_moment(facts['next_change_ms'])}.")


def _show_compaction(document: Document, facts: Document) -> None:
    click.echo(
        f"{_title(document, facts)}: dirty ratio {facts['dirty_ratio']:.3f} of "
        f"{facts['min_cleanable_dirty_ratio']}, {size_text(facts['clean_bytes'])} clean, "
        f"{size_text(facts['cleanable_bytes'])} cleanable; first dirty offset "
        f"{facts['first_dirty_offset']}, first uncleanable {facts['first_uncleanable_offset']}"
    )
    print_table(
        ("SEGMENT", "END", "BYTES", "NEWEST RECORD", "STATE", "UNTIL", "WHY"),
        (
            (
                each["base_offset"],
                each["end_offset"],
                each["size_bytes"],
                _moment(each["newest_ms"]),
                each["state"],
                _moment(each["until_ms"]),
                each["why"],
            )
            for each in facts["segments"]
        ),
    )
    click.echo(f"{'Due' if facts['is_due'] else 'Not due'}: {facts['why_due']}")
    click.echo(f"What is cleanable ends here: {facts['why_bound']}")
    if facts["due_at_ms"] is not None:
        click.echo(f"Time alone makes it due at {_moment(facts['due_at_ms'])}.")
    if facts["problem"] is not None:
        click.echo(f"It is left alone: {facts['problem']}")
    elif facts["last_round"] is not None and facts["last_round"]["problem"] is not None:
        click.echo(f"The last round failed: {facts['last_round']['problem']}")
    if facts["state"] in ("running", "waiting"):
        click.echo(f"A round is {facts['state']}.")
    if "dry_run" in facts:
        _show_dry_run(facts["dry_run"])


def _show_dry_run(found: Document | None) -> None:
    if found is None:
        click.echo("A round would do nothing.")
        return
    click.echo(
        f"A round would keep {found['records_after']} of "
        f"{counted(found['records_before'], 'record')}, {size_text(found['bytes_after'])} of "
        f"{size_text(found['bytes_before'])}, and clean up to offset {found['cleaned_to']}."
    )
    ranges = [tuple(each) for group in found["groups"] for each in group["gone"]]
    if ranges:
        shown = ", ".join(
            str(first) if first == last else f"{first}-{last}"
            for first, last in ranges[:_RANGES_SHOWN]
        )
        more = "" if len(ranges) <= _RANGES_SHOWN else ", ... (all with --json)"
        click.echo(f"Offsets that would go: {shown}{more}")


def _title(document: Document, facts: Document) -> str:
    role = "leader" if facts["is_leader"] else "follower"
    return f"{document['topic']}-{facts['partition']} on broker {document['broker']} ({role})"


def _moment(at_ms: int | None) -> str | None:
    """Negative is the newest record of a segment that has none."""
    return None if at_ms is None or at_ms < 0 else time_text(at_ms)
