"""`strandline cluster`: the brokers and their disks."""

from __future__ import annotations

import click

from strandline.cli.connecting import DESCRIBING_MS, bootstrap_option, json_option, open_cluster
from strandline.cli.features import features
from strandline.cli.numbers import BROKER
from strandline.cli.output import print_json, print_table, size_text
from strandline.cli.whole_sentences import SentencesGroup
from strandline.client.admin_cluster import (
    UNKNOWN_BYTES,
    ClusterAdmin,
    ClusterDescription,
    LogDirectories,
    LogDirectoryInfo,
)
from strandline.client.metadata import BrokerInfo
from strandline.types import BrokerId


@click.group(cls=SentencesGroup)
def cluster() -> None:
    """Show brokers, their disks and features, and forget brokers that are gone."""


cluster.add_command(features)


@cluster.command()
@bootstrap_option
@json_option
def describe(bootstrap: str | None, as_json: bool) -> None:
    """Show the cluster id, the brokers, and what their log directories hold.

    A broker that does not answer within some seconds is shown with the reason. Ends with 1 if none
    tells its log directories.
    """
    with open_cluster(bootstrap, patience_ms=DESCRIBING_MS) as client:
        admin = ClusterAdmin(client)
        found, directories = admin.describe(), admin.log_directories()
    if as_json:
        print_json(_as_json(found, directories))
    else:
        _print(found, directories)
    if not directories.found:
        raise click.exceptions.Exit(1)


def _print(found: ClusterDescription, directories: LogDirectories) -> None:
    click.echo(f"Cluster {found.cluster_id}")
    print_table(
        ("BROKER", "ADDRESS", "RACK", "CONTROLLER", "STATE"),
        (
            (
                each.broker_id,
                each.address,
                each.rack,
                "yes" if each.broker_id == found.controller else "",
                "down" if each in found.fenced else "running",
            )
            for each in sorted((*found.brokers, *found.fenced), key=lambda each: each.broker_id)
        ),
    )
    click.echo()
    rows: list[tuple[BrokerId, str | None, int | None, str | None, str | None, str]] = [
        (
            each.broker,
            each.path,
            len(each.replicas),
            size_text(_held_bytes(each)),
            None if each.usable_bytes == UNKNOWN_BYTES else size_text(each.usable_bytes),
            "online" if each.error is None else each.error.message,
        )
        for each in directories.found
    ]
    rows += [
        (broker, None, None, None, None, f"unknown: {error.message}")
        for broker, error in directories.unanswered.items()
    ]
    rows.sort(key=lambda row: row[0])
    print_table(("BROKER", "LOG DIRECTORY", "REPLICAS", "HELD", "FREE", "STATE"), rows)


@cluster.command()
@bootstrap_option
@click.argument("broker", type=BROKER)
def unregister(bootstrap: str | None, broker: int) -> None:
    """Have the cluster forget a broker that is down and will not come back.

    Until then it is a member: a replication factor counts it, and replicas may be placed on it. Its
    replicas stay assigned to it until they are moved (`strandline topics move`).
    """
    with open_cluster(bootstrap) as client:
        ClusterAdmin(client).unregister(BrokerId(broker))
    click.echo(f"Broker {broker} is not a member of the cluster any more.")


def _held_bytes(directory: LogDirectoryInfo) -> int:
    return sum(replica.size_bytes for replica in directory.replicas.values())


def _broker(each: BrokerInfo) -> dict[str, object]:
    return {
        "id": each.broker_id,
        "host": each.address.host,
        "port": each.address.port,
        "rack": each.rack,
    }


def _as_json(found: ClusterDescription, directories: LogDirectories) -> object:
    return {
        "cluster_id": found.cluster_id,
        "controller": found.controller,
        "brokers": [_broker(each) for each in found.brokers],
        "down": [_broker(each) for each in found.fenced],
        "log_directories": [
            {
                "broker": each.broker,
                "path": each.path,
                "replicas": len(each.replicas),
                "held_bytes": _held_bytes(each),
                "total_bytes": each.total_bytes,
                "usable_bytes": each.usable_bytes,
                "error": None if each.error is None else each.error.code.name,
            }
            for each in directories.found
        ],
        "unanswered": [
            {"broker": broker, "error": error.code.name, "message": error.message}
            for broker, error in directories.unanswered.items()
        ],
    }
