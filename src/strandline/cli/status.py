"""`strandline status`: what brokers say of themselves, for people, programs and Prometheus."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import click

from strandline.cli.connecting import LOOKING_MS, bootstrap_option, json_option, open_cluster
from strandline.cli.output import json_text, listed, print_json, print_table, size_text, time_text
from strandline.cli.place import Place, place_argument
from strandline.client.cluster import ClusterClient
from strandline.client.inspection import answers_of, inspect_each
from strandline.errors import ErrorCode, ProtocolError
from strandline.records._kernels import sentence_about
from strandline.types import BrokerId

_CHANGES_SHOWN: Final = 10
_PARTITIONS_SHOWN: Final = 10
_CLEAR: Final = "\x1b[H\x1b[2J"
Documents = Mapping[BrokerId, Any]


@click.command()
@place_argument
@click.option("--watch", is_flag=True, help="Show it again and again, until Ctrl-C.")
@click.option(
    "--every",
    type=click.FloatRange(min=0.1),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="How often with --watch.",
)
@click.option("--metrics", is_flag=True, help="Print metrics in the text format of Prometheus.")
@json_option
@bootstrap_option
def status(
    place: Place | None,
    watch: bool,
    every: float,
    metrics: bool,
    as_json: bool,
    bootstrap: str | None,
) -> None:
    """Show brokers and what is not as it should be; or every replica of TOPIC[/PARTITION].

    docs/status.md describes the documents that --json prints and all metrics.
    """
    if metrics and (as_json or watch):
        raise click.UsageError("--metrics goes with neither --json nor --watch.")
    with open_cluster(bootstrap, patience_ms=LOOKING_MS) as client:
        while True:
            _show(client, place, watch=watch, metrics=metrics, as_json=as_json)
            if not watch:
                return
            time.sleep(every)


def _show(
    client: ClusterClient, place: Place | None, *, watch: bool, metrics: bool, as_json: bool
) -> None:
    documents, silent = ask(client, place)
    if as_json:
        whole = {str(broker): document for broker, document in documents.items()}
        if watch:
            click.echo(json_text(whole, separators=(",", ":")))
        else:
            print_json(whole)
        return
    if metrics:
        from strandline.node.status.metrics import merged

        click.echo(merged(documents.values()), nl=False)
        return
    if watch and sys.stdout.isatty():
        click.echo(_CLEAR, nl=False)
    for broker, error in silent.items():
        click.echo(f"Broker {broker} does not answer: {error.message}", err=True)
    if place is None:
        print_cluster(documents)
    else:
        print_partitions(documents)


def ask(
    client: ClusterClient, place: Place | None
) -> tuple[Documents, Mapping[BrokerId, ProtocolError]]:
    """The documents of the brokers that answer, and the errors of the others.

    Raises `ProtocolError`: that of the first broker if none answers, or UNKNOWN_TOPIC_OR_PARTITION
    if none knows the place.
    """
    limits = {} if place is None else place.limits()
    found = inspect_each(client, "status", **limits)
    documents = answers_of(found)
    silent = {each: d for each, d in found.items() if isinstance(d, ProtocolError)}
    if not documents:
        raise next(iter(silent.values()), ProtocolError(ErrorCode.BROKER_NOT_AVAILABLE))
    if place is not None and not any(each["partitions"] for each in documents.values()):
        raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no {place}.")
    return documents, silent


# -- The cluster -----------------------------------------------------------------------------


def print_cluster(documents: Documents) -> None:
    """Brokers, partitions that lack something, groups."""
    newest = _newest(documents)
    controller = newest["controller"]
    slow = {broker: d["kernels_missing"] for broker, d in documents.items()
            if d.get("kernels_missing")}  # fmt: skip
    if slow:
        names = next(iter(slow.values()))
        click.echo(f"Broker {', '.join(map(str, slow))}: {sentence_about(names)}", err=True)
    click.echo(
        f"Cluster {newest['cluster_id']}  controller {_or_none(controller['broker'])} "
        f"(epoch {controller['epoch']})"
    )
    print_table(
        ("BROKER", "PARTITIONS", "LEADS", "UNDER-REPLICATED", "UNDER MIN", "OFFLINE", "BEHIND",
         "SIZE", "WAITING", "SHRINKS", "EXPANDS"),
        (_broker_row(broker, document["totals"]) for broker, document in documents.items()),
    )  # fmt: skip
    lacking = list(_lacking(newest, documents))
    if lacking:
        click.echo()
        print_table(
            ("TOPIC", "PARTITION", "LEADER", "EPOCH", "IN SYNC", "REPLICAS", "LACKS"), lacking
        )
    else:
        count = len(newest["partitions"])
        all_of_them = "The partition is" if count == 1 else f"All {count:,} partitions are"
        click.echo(f"{all_of_them} fully replicated.")
    for line in (*_unusable_lines(documents), *_certificate_lines(documents)):
        click.echo(line)
    groups = [group for document in documents.values() for group in document["groups"]]
    if groups:
        click.echo()
        print_table(
            ("GROUP", "STATE", "MEMBERS", "GENERATION", "LAG"),
            sorted(_group_row(group, documents) for group in groups),
        )
    print_transactions(documents)


def _unusable_lines(documents: Documents) -> Iterator[str]:
    """Replicas that stand still: for want of room, or because their disk has failed."""
    for broker, document in documents.items():
        for is_delayed in (True, False):
            found = [
                each
                for each in document["partitions"]
                # Brokers before 0.2 do not say which of them are delayed.
                if each["unavailable"] and each.get("delayed", False) is is_delayed
            ]
            if found:
                names = [f"{each['topic']}/{each['partition']}" for each in found]
                what = listed(names, _PARTITIONS_SHOWN)
                yield f"Broker {broker} {_cannot_use(what, found[0])}"


def _cannot_use(what: str, partition: Mapping[str, Any]) -> str:
    until = " until there is room again" if partition.get("delayed", False) else ""
    return f"cannot use {what}{until}: {partition['unavailable']}"


def _certificate_lines(documents: Documents) -> Iterator[str]:
    """Certificates that expire, the first of them first. Brokers before 0.2 do not say it."""
    found = sorted(
        (each["expires_wall_ms"], each["listener"], broker, each.get("begins_wall_ms", 0))
        for broker, document in documents.items()
        for each in document.get("certificates", ())
    )
    for expires_ms, listener, broker, begins_ms in found:
        now_ms = documents[broker]["wall_ms"]
        said = f"{'expires' if expires_ms > now_ms else 'HAS EXPIRED'} {time_text(expires_ms)}"
        if begins_ms > now_ms:
            said = f"DOES NOT COUNT before {time_text(begins_ms)}"
        yield f"The certificate of the listener {listener} of broker {broker} {said}."


def print_transactions(documents: Documents) -> None:
    """Transactions that are open, and where readers of committed records wait for them."""
    # Brokers before 0.2 do not say it.
    found = [each for d in documents.values() for each in d.get("transactions", ())]
    if found:
        click.echo()
        print_table(
            ("TRANSACTION", "STATE", "SINCE", "PRODUCER", "PARTITIONS"),
            (
                (
                    each["transactional_id"],
                    each["state"],
                    time_text(each["since_wall_ms"]),
                    f"{each['producer_id']} (epoch {each['producer_epoch']})",
                    ", ".join(each["partitions"]) or "-",
                )
                for each in sorted(found, key=lambda each: each["since_wall_ms"])
            ),
        )
    names = {each["producer_id"]: each["transactional_id"] for each in found}
    held = sorted(_held(documents, names))
    if held:
        click.echo()
        print_table(("READERS WAIT IN", "AT", "OF", "FOR"), held)


def _held(documents: Documents, names: Mapping[int, str]) -> Iterator[tuple[object, ...]]:
    """Partitions whose last stable offset is behind the high watermark, and why."""
    for document in documents.values():
        for replica in document["replicas"]:
            stable, high = replica["last_stable_offset"], replica["high_watermark"]
            if replica["role"] != "leader" or stable >= high:
                continue
            producer = replica["log"].get("open_transaction_producer")
            if producer is None:
                why = "the end of a transaction to be replicated"
            elif producer in names:
                why = f"transaction {names[producer]}"
            else:
                why = f"producer {producer}, of which no coordinator says that it has one open"
            yield (f"{replica['topic']}/{replica['partition']}", stable, high, why)


def _broker_row(broker: BrokerId, totals: Mapping[str, Any]) -> tuple[object, ...]:
    return (
        broker,
        totals["partitions"],
        totals["leading"],
        totals["under_replicated"],
        totals["under_min_in_sync"],
        totals["offline_replicas"],
        totals["records_behind"],
        size_text(totals["size_bytes"]),
        totals["connections_parked"],
        totals["in_sync_shrinks"],
        totals["in_sync_expands"],
    )


def _lacking(newest: Mapping[str, Any], documents: Documents) -> Iterator[tuple[object, ...]]:
    """Partitions by the newest metadata. Which replica cannot be used says its own broker."""
    alive = {each["broker"] for each in newest["brokers"]}
    unusable: dict[tuple[str, int], list[int]] = {}
    for broker, own in documents.items():
        for each in own["partitions"]:
            if each["unavailable"]:
                unusable.setdefault((each["topic"], each["partition"]), []).append(broker)
    for each in newest["partitions"]:
        missing = [broker for broker in each["replicas"] if broker not in each["in_sync"]]
        has_leader = each["leader"] in alive
        broken = unusable.get((each["topic"], each["partition"]), [])
        counted = [broker for broker in broken if broker in each["in_sync"]]
        lacks = [] if has_leader else ["a leader"]
        if has_leader and missing:
            lacks.append(f"broker {_ids(missing)} in sync")
        if has_leader and counted:
            lacks.append(f"a replica on broker {_ids(counted)} that can be used")
        if not lacks:
            continue
        yield (
            each["topic"],
            each["partition"],
            each["leader"],
            each["leader_epoch"],
            _ids(each["in_sync"]),
            _ids(each["replicas"]),
            " and ".join(lacks),
        )


def _group_row(group: Mapping[str, Any], documents: Documents) -> tuple[object, ...]:
    ends = {
        (replica["topic"], replica["partition"]): replica["high_watermark"]
        for document in documents.values()
        for replica in document["replicas"]
        if replica["role"] == "leader"
    }
    lag = 0
    for position in group["positions"]:
        end = ends.get((position["topic"], position["partition"]), position["log_end_offset"])
        lag += max(0, (end or 0) - position["offset"])
    return (group["group"], group["state"], len(group["members"]), group["generation"], lag)


# -- Partitions ------------------------------------------------------------------------------


def print_partitions(documents: Documents) -> None:
    """Every replica of the partitions asked for, and what happened to them lately."""
    newest = _newest(documents)
    for partition in newest["partitions"]:
        at = (partition["topic"], partition["partition"])
        click.echo(
            f"{at[0]}/{at[1]}  leader {_or_none(partition['leader'])}  "
            f"epoch {partition['leader_epoch']}  in sync {_ids(partition['in_sync']) or '-'}  "
            f"of {_ids(partition['replicas'])}"
        )
        for broker, document in documents.items():
            for own in document["partitions"]:
                if (own["topic"], own["partition"]) == at and own["unavailable"]:
                    click.echo(f"broker {broker} {_cannot_use('its replica', own)}")
        replicas = [
            (broker, replica)
            for broker, document in documents.items()
            for replica in document["replicas"]
            if (replica["topic"], replica["partition"]) == at
        ]
        views = {
            view["broker"]: view
            for _, replica in replicas
            for view in (replica["leading"] or {"followers": ()})["followers"]
        }
        for _, replica in replicas:
            # Brokers before 0.2 do not say it.
            low = (replica["leading"] or {}).get("low_watermark")
            if low is not None:
                click.echo(
                    f"low watermark {low}: every replica that may lead begins there or later"
                )
        print_table(
            ("BROKER", "ROLE", "EPOCH", "START", "HIGH WATERMARK", "LAST STABLE", "LOG END",
             "BEHIND", "CAUGHT UP", "WAITING", "SIZE"),
            (_replica_row(broker, replica, views.get(broker)) for broker, replica in replicas),
        )  # fmt: skip
        changes = {_identity(change): change for d in documents.values() for change in d["changes"]
                if (change["topic"], change["partition"]) == at}  # fmt: skip
        for change in sorted(changes.values(), key=lambda c: c["wall_ms"])[-_CHANGES_SHOWN:]:
            click.echo(_change_line(change))
        click.echo()


def _replica_row(
    broker: BrokerId, replica: Mapping[str, Any], view: Mapping[str, Any] | None
) -> tuple[object, ...]:
    caught_up = None if view is None else view["caught_up_ago_ms"]
    return (
        broker,
        replica["role"],
        replica["leader_epoch"],
        replica["log_start_offset"],
        replica["high_watermark"],
        replica["last_stable_offset"],
        replica["log_end_offset"],
        None if view is None else view["lag"],
        None if caught_up is None else f"{caught_up / 1000:.1f} s ago",
        replica["waiting_produces"] + replica["waiting_fetches"],
        size_text(replica["log"]["size_bytes"]),
    )


def _identity(change: Mapping[str, Any]) -> tuple[object, ...]:
    """What makes two brokers' notes of a change the same one."""
    return (change["kind"], change["epoch"], *change["before"], "to", *change["after"])


def _change_line(change: Mapping[str, Any]) -> str:
    what = "in sync" if change["kind"] == "in_sync" else change["kind"]
    return (
        f"  {time_text(change['wall_ms'])}  {what} {_ids(change['before']) or '-'} to "
        f"{_ids(change['after']) or '-'}: {change['reason']}"
    )


def _newest(documents: Documents) -> Mapping[str, Any]:
    """The document of the broker that knows the newest metadata."""
    found: Mapping[str, Any] = max(documents.values(), key=lambda each: each["metadata_version"])
    return found


def _ids(brokers: list[int]) -> str:
    return ",".join(map(str, brokers))


def _or_none(broker: int | None) -> object:
    return "none" if broker is None else broker
