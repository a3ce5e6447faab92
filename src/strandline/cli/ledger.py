"""`strandline ledger`: what replicas had to remove, and how to get it back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from strandline.cli.connecting import bootstrap_option, json_option, open_cluster
from strandline.cli.output import (
    counted,
    json_bytes,
    print_json,
    print_table,
    shown_bytes,
    size_text,
    time_text,
)
from strandline.cli.place import Place, place_argument
from strandline.cli.record_format import as_json as record_as_json
from strandline.cli.record_format import verbose
from strandline.cli.whole_sentences import SentencesGroup
from strandline.client.ledger import Entry, Kept, entries, find, kept, partition_of, present
from strandline.client.producer import Producer
from strandline.errors import ProtocolError
from strandline.records.record import Record
from strandline.types import Offset


@click.group(cls=SentencesGroup)
def ledger() -> None:
    """Show what replicas removed from their logs, and produce it again.

    A follower whose log disagrees with its leader's removes the end of its own, and keeps a copy
    for a while (docs/ledger.md).
    """


@ledger.command("list")
@place_argument
@json_option
@bootstrap_option
def list_entries(place: Place | None, as_json: bool, bootstrap: str | None) -> None:
    """List the entries of all brokers."""
    with open_cluster(bootstrap) as client:
        found = [each for each in entries(client) if _is_at(each, place)]
    if as_json:
        print_json(found)
        return
    if not found:
        click.echo("The ledger is empty.")
        return
    print_table(
        ("ENTRY", "TIME", "PARTITION", "BROKER", "FROM", "TO", "COMMITTED", "SIZE", "UNCLEAN",
         "REASON"),
        (
            (
                each["id"],
                time_text(each["wall_ms"]),
                partition_of(each),
                each["broker"],
                each["from_offset"],
                each["to_offset"] - 1,
                _committed(each),
                size_text(each["size_bytes"]),
                "yes" if each["unclean"] else "no",
                each["reason"],
            )
            for each in found
        ),
    )  # fmt: skip


@ledger.command()
@click.argument("entry_id", metavar="ENTRY")
@json_option
@bootstrap_option
def show(entry_id: str, as_json: bool, bootstrap: str | None) -> None:
    """Print the records of an entry; with --json as `produce --format json` takes them."""
    with open_cluster(bootstrap) as client:
        entry = find(client, entry_id)
        found = kept(client, entry)
    formatter = record_as_json if as_json else verbose
    for record in found.records:
        click.echo(formatter(partition_of(entry), record), nl=False)
    _tell_left_out(entry, found)


@ledger.command()
@click.argument("entry_id", metavar="ENTRY")
@json_option
@bootstrap_option
def diff(entry_id: str, as_json: bool, bootstrap: str | None) -> None:
    """Compare an entry with what the partition has today at the same offsets.

    `-` is what was removed, `+` what stands there now. Ends with 1 if anything differs.
    """
    with open_cluster(bootstrap) as client:
        entry = find(client, entry_id)
        removed = {record.offset: record for record in kept(client, entry).records}
        now = present(client, entry)
    changes = list(_changes(removed, now))
    if as_json:
        print_json([{"offset": o, "removed": _plain(r), "now": _plain(n)} for o, r, n in changes])
    else:
        for offset, old, new in changes:
            for sign, record in (("-", old), ("+", new)):
                if record is not None:
                    click.echo(
                        f"{sign} {offset}  {time_text(record.timestamp)}  "
                        f"{shown_bytes(record.key)}  {shown_bytes(record.value)}"
                    )
        click.echo(f"{counted(len(changes), 'offset')} of {len(removed | now)} differ.", err=True)
    if changes:
        raise click.exceptions.Exit(1)


@ledger.command()
@click.argument("entry_id", metavar="ENTRY")
@click.option("--to", "topic", metavar="TOPIC", required=True, help="Where to produce the records.")
@click.option(
    "--missing-only", is_flag=True, help="Leave out what stands at the same offset unchanged."
)
@bootstrap_option
def recover(entry_id: str, topic: str, missing_only: bool, bootstrap: str | None) -> None:
    """Produce the records of an entry again, to the topic that you name.

    Keys, values, headers and timestamps stay; offsets are new ones, and the partition is chosen by
    the key as for any record. Nothing is removed from the ledger.
    """
    with open_cluster(bootstrap) as client:
        entry = find(client, entry_id)
        found = kept(client, entry)
        records = found.records
        if missing_only:
            now = present(client, entry)
            records = [each for each in records if _content(now.get(each.offset)) != _content(each)]
        with Producer(client) as producer:
            for each in records:
                producer.send(
                    topic,
                    each.value,
                    key=each.key,
                    headers=each.headers,
                    timestamp=each.timestamp,
                )
            outcome = producer.flush()
    if outcome.failed:
        first = outcome.failed[0]
        raise ProtocolError(
            first.error.code,
            f"{sum(each.count for each in outcome.failed)} of {len(records)} records could not "
            f"be produced: {first.error.message}",
        )
    click.echo(f"Produced {counted(len(records), 'record')} to '{topic}'.")
    _tell_left_out(entry, found)


def _committed(entry: Entry) -> str:
    """How many of the removed records were committed, as far as the replica knew.

    The mark that a replica knows follows the leader's, and that on disk is some seconds old after
    a crash: records above it may have been acknowledged as well.
    """
    removed = entry["to_offset"] - entry["from_offset"]
    known = max(0, min(entry["high_watermark"] - entry["from_offset"], removed))
    return f"all {removed}" if known == removed else f"at least {known}"


def _is_at(entry: Entry, place: Place | None) -> bool:
    return place is None or (
        entry["topic"] == place.topic and place.partition in (None, entry["partition"])
    )


def _changes(
    removed: dict[Offset, Record], now: dict[Offset, Record]
) -> Iterator[tuple[Offset, Record | None, Record | None]]:
    for offset in sorted(removed.keys() | now.keys()):
        old, new = removed.get(offset), now.get(offset)
        if _content(old) != _content(new):
            yield offset, old, new


def _content(record: Record | None) -> Any:
    """What must agree for two records to be the same one."""
    return None if record is None else (record.timestamp, record.key, record.value, record.headers)


def _plain(record: Record | None) -> Any:
    if record is None:
        return None
    return {
        "timestamp": record.timestamp,
        "key": json_bytes(record.key),
        "value": json_bytes(record.value),
    }


def _tell_left_out(entry: Entry, found: Kept) -> None:
    if found.undecided or found.aborted:
        click.echo(
            f"Left out: {found.aborted} records of aborted transactions, {found.undecided} of such "
            "as the entry does not decide.",
            err=True,
        )
    if entry["kept_to_offset"] < entry["to_offset"]:
        click.echo(
            f"The entry ends at offset {entry['kept_to_offset'] - 1}: what was removed behind it, "
            f"up to {entry['to_offset'] - 1}, was too much to keep.",
            err=True,
        )
