"""`strandline transactions`: the producer of each transaction, and hanging transactions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Final

import click

from strandline.cli.connecting import (
    DESCRIBING_MS,
    as_typed,
    bootstrap_option,
    json_option,
    open_cluster,
)
from strandline.cli.moments import parse_duration
from strandline.cli.output import counted, print_json, print_table, shown_text
from strandline.cli.unanswered import reasons_as_json, tell_partitions
from strandline.cli.whole_sentences import SentencesGroup
from strandline.client.admin_transactions import (
    ActiveProducer,
    HangingTransactions,
    TransactionAdmin,
    TransactionDescription,
)
from strandline.client.cluster import ClusterClient
from strandline.errors import ErrorCode, ProtocolError
from strandline.numerals import INT32_MAX, whole_number
from strandline.types import TopicPartition

_HANGING_AFTER: Final = "PT15M"
"""The default of `transaction.max.timeout.ms`, as in Kafka's tool."""
_HANGS: Final = 3
"""The exit code of a search that has found something. 1 says that it could not be carried out."""


@click.group(cls=SentencesGroup)
def transactions() -> None:
    """Show transactions, and end those that hang."""


@transactions.command("list")
@click.option("--state", "states", metavar="STATE", multiple=True, help="Ongoing, ... Repeatable.")
@click.option("--older-than", metavar="ISO-DURATION", help="Open for longer, such as PT1M.")
@click.option("--id-pattern", metavar="REGEX", help="Which transactional ids.")
@bootstrap_option
@json_option
def list_transactions(
    states: tuple[str, ...],
    older_than: str | None,
    id_pattern: str | None,
    bootstrap: str | None,
    as_json: bool,
) -> None:
    """List transactional ids: their states, and since when a transaction is open."""
    older_than_ms = -1 if older_than is None else parse_duration(older_than, "--older-than")
    # Matched here and not by the brokers, which need an extra for that.
    pattern = _compiled(id_pattern) if id_pattern else None
    with open_cluster(bootstrap) as client:
        admin = TransactionAdmin(client)
        listed = admin.list_all(states=states, older_than_ms=older_than_ms)
        found = admin.describe_listed(
            each for each in listed if pattern is None or pattern.fullmatch(each.transactional_id)
        )
        now_ms = client.clock.wall_ms()
    if as_json:
        print_json([_as_json(each) for each in found])
    elif found:
        print_table(
            ("TRANSACTIONAL-ID", "STATE", "PRODUCER", "EPOCH", "OPEN-FOR", "PARTITIONS"),
            (
                (
                    each.transactional_id,
                    each.state,
                    each.producer_id,
                    each.producer_epoch,
                    _open_for(each.started_ms, now_ms),
                    len(each.partitions) or None,
                )
                for each in found
            ),
        )


@transactions.command()
@click.argument("transactional_id", metavar="ID")
@bootstrap_option
@json_option
def describe(transactional_id: str, bootstrap: str | None, as_json: bool) -> None:
    """Show what the coordinator knows of the transactional id ID."""
    with open_cluster(bootstrap) as client:
        found = TransactionAdmin(client).describe([transactional_id])
        now_ms = client.clock.wall_ms()
    if not found:
        raise ProtocolError(
            ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
            f"There is no transactional id '{transactional_id}'.",
        )
    (known,) = found
    if as_json:
        print_json(_as_json(known))
        return
    click.echo(
        f"Transactional id {shown_text(known.transactional_id)}  state {known.state}  "
        f"coordinator broker {known.coordinator}"
    )
    click.echo(
        f"Producer {known.producer_id}  epoch {known.producer_epoch}  "
        f"timeout {known.timeout_ms / 1000:g} s"
    )
    if known.started_ms is not None:
        click.echo(f"Open for {_open_for(known.started_ms, now_ms)}")
    for partition in known.partitions:
        click.echo(f"  {partition}")


@transactions.command()
@click.argument("partition", metavar="TOPIC/PARTITION")
@bootstrap_option
@json_option
def producers(partition: str, bootstrap: str | None, as_json: bool) -> None:
    """Show the producers that the leader of a partition remembers."""
    at = _partition(partition)
    with open_cluster(bootstrap) as client:
        found = TransactionAdmin(client).producers([at])
        now_ms = client.clock.wall_ms()
    if as_json:
        print_json(_producers_as_json(found))
    else:
        _print_producers(found, now_ms)


@transactions.command("find-hanging")
@click.option("--topic", "topics", metavar="TOPIC", multiple=True, help="Where. Repeatable.")
@click.option(
    "--older-than",
    metavar="ISO-DURATION",
    default=_HANGING_AFTER,
    show_default=True,
    help="Open for longer; above transaction.max.timeout.ms.",
)
@bootstrap_option
@json_option
def find_hanging(
    topics: tuple[str, ...], older_than: str, bootstrap: str | None, as_json: bool
) -> None:
    """List open transactions that no coordinator will end.

    Readers of committed records wait in front of them. `transactions abort` ends them. A partition
    that no broker leads cannot be looked at; nor can one whose leader does not answer within some
    seconds. If a coordinator cannot be asked, it is not decided what hangs: not to be aborted.

    Ends with 3 if a transaction hangs, with 1 if none was found, but not all could be looked at or
    decided, and with 0 if none hangs.
    """
    older_than_ms = parse_duration(older_than, "--older-than")
    with open_cluster(bootstrap, patience_ms=DESCRIBING_MS) as client:
        partitions = _all_partitions(client, topics)
        told = TransactionAdmin(client).hanging(partitions, older_than_ms)
        now_ms = client.clock.wall_ms()
    if as_json:
        print_json(
            {
                "hanging": _producers_as_json(told.found),
                "undecided": _producers_as_json(told.undecided),
                "looked_at": len(told.looked_at),
                "not_looked_at": reasons_as_json(told.unknown),
                "doubts": [each.message for each in told.doubts],
            }
        )
    else:
        _tell_hanging(told, now_ms)
    if told.found:
        raise click.exceptions.Exit(_HANGS)
    if told.unknown or told.undecided:
        raise click.exceptions.Exit(1)


def _tell_hanging(told: HangingTransactions, now_ms: int) -> None:
    looked_at = counted(len(told.looked_at), "partition")
    _print_producers(told.found, now_ms)
    if not told.found and told.looked_at and not told.undecided:
        click.echo(f"No transaction hangs in {looked_at}.")
    if told.unknown:
        total = counted(len(told.looked_at) + len(told.unknown), "partition")
        click.echo(f"Looked at {len(told.looked_at):,} of {total}.", err=True)
        tell_partitions(told.unknown, "Nothing is known of")
    if told.undecided:
        number = counted(len(told.undecided), "open transaction")
        click.echo(f"Whether {number} will be ended is not known:", err=True)
        for reason in dict.fromkeys(each.message for each in told.doubts):
            click.echo(f"  {reason}", err=True)
        for each in told.undecided:
            click.echo(
                f"  {each.partition.topic}/{each.partition.partition}, producer "
                f"{each.producer_id}, open since offset {each.transaction_start}",
                err=True,
            )


@transactions.command()
@click.argument("partition", metavar="TOPIC/PARTITION")
@click.option("--producer-id", type=int, required=True, metavar="N", help="Whose transaction.")
@bootstrap_option
def abort(partition: str, producer_id: int, bootstrap: str | None) -> None:
    """End a producer's open transaction in one partition as aborted.

    Its coordinator is not asked: for transactions that `find-hanging` names.
    """
    at = _partition(partition)
    with open_cluster(bootstrap) as client:
        admin = TransactionAdmin(client)
        open_there = [
            each
            for each in admin.producers([at])
            if each.producer_id == producer_id and each.transaction_start is not None
        ]
        if not open_there:
            raise ProtocolError(
                ErrorCode.INVALID_TXN_STATE,
                as_typed(
                    f"Producer {producer_id} has no open transaction in {at}. "
                    f"`strandline transactions producers {partition}` shows those that have.",
                    bootstrap,
                ),
            )
        admin.abort(open_there[0])
    click.echo(
        f"Aborted the transaction of producer {producer_id} in {at}, "
        f"which was open since offset {open_there[0].transaction_start}."
    )


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise click.UsageError(f"--id-pattern is no regular expression: {error}.") from error


def _partition(text: str) -> TopicPartition:
    topic, _, digits = text.rpartition("/")
    number = whole_number(digits, INT32_MAX)
    if not topic or number is None:
        raise click.UsageError(f"A partition is given as TOPIC/PARTITION, not '{text}'.")
    return TopicPartition(topic, number)


def _all_partitions(client: ClusterClient, topics: Iterable[str]) -> list[TopicPartition]:
    names = sorted(set(topics)) or sorted(client.refresh(None).topics)
    return [
        TopicPartition(name, number)
        for name in names
        for number in sorted(client.topic(name).partitions)
    ]


def _open_for(started_ms: int | None, now_ms: int) -> str | None:
    return None if started_ms is None else f"{max(0, now_ms - started_ms) / 1000:.0f} s"


def _print_producers(found: Sequence[ActiveProducer], now_ms: int) -> None:
    if found:
        print_table(
            ("PARTITION", "PRODUCER", "EPOCH", "SEQUENCE", "LAST-WRITE", "OPEN-SINCE-OFFSET"),
            (
                (
                    f"{each.partition.topic}/{each.partition.partition}",
                    each.producer_id,
                    each.producer_epoch,
                    each.last_sequence,
                    f"{max(0, now_ms - each.last_timestamp_ms) / 1000:.0f} s ago",
                    each.transaction_start,
                )
                for each in found
            ),
        )


def _producers_as_json(found: Sequence[ActiveProducer]) -> list[dict[str, object]]:
    return [{**asdict(each), "partition": str(each.partition)} for each in found]


def _as_json(found: TransactionDescription) -> dict[str, object]:
    return {**asdict(found), "partitions": [str(each) for each in found.partitions]}
