"""`strandline compact`: have a topic compacted now, and wait for it.

All brokers are asked, since each replica is compacted where it lies.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import click

from strandline.cli.connecting import bootstrap_option, json_option, open_cluster
from strandline.cli.numbers import PARTITION
from strandline.cli.output import counted, print_json, size_text
from strandline.client.cluster import ClusterClient
from strandline.client.inspection import inspect
from strandline.errors import ErrorCode, ProtocolError
from strandline.types import BrokerId

_LOOK_AGAIN_S: Final = 0.2
_BUSY: Final = ("waiting", "running")

Document = Mapping[str, Any]


@click.command()
@click.argument("topic")
@click.option("--now", is_flag=True, required=True, help="Whether it is due or not.")
@click.option("--partition", type=PARTITION, metavar="N", help="Only this one.")
@click.option("--wait", is_flag=True, help="Wait until it is done.")
@json_option
@bootstrap_option
def compact(
    topic: str,
    now: bool,
    partition: int | None,
    wait: bool,
    as_json: bool,
    bootstrap: str | None,
) -> None:
    """Compact all replicas of a topic, the active segments included.

    What min.compaction.lag.ms protects, or is not committed yet, stays as it is.
    """
    del now
    with open_cluster(bootstrap) as cluster:
        by_broker = _holders(cluster, topic, partition)
        wish: dict[str, object] = {"topic": topic}
        if partition is not None:
            wish["partition"] = partition
        documents = [inspect(cluster, each, "compact", **wish, begin=True) for each in by_broker]
        while wait and any(each["state"] in _BUSY for _, each in _replicas(documents)):
            time.sleep(_LOOK_AGAIN_S)
            documents = [inspect(cluster, each, "compact", **wish) for each in by_broker]
    if as_json:
        print_json(documents)
    else:
        for document, replica in _replicas(documents):
            click.echo(_line(document, replica, waited=wait))
    if wait and any(_problem(each) is not None for _, each in _replicas(documents)):
        raise click.exceptions.Exit(1)


def _holders(cluster: ClusterClient, topic: str, partition: int | None) -> list[BrokerId]:
    """The live brokers that have a replica."""
    partitions = cluster.topic(topic).partitions
    if partition is not None and partition not in partitions:
        raise ProtocolError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"There is no partition {partition} of topic '{topic}'.",
        )
    chosen = partitions.values() if partition is None else [partitions[partition]]
    holders = {
        broker for each in chosen for broker in each.replicas if broker not in each.offline_replicas
    }
    return sorted(holders)


def _replicas(documents: list[dict[str, Any]]) -> Iterator[tuple[Document, Document]]:
    for document in documents:
        for replica in document["partitions"]:
            yield document, replica


def _problem(replica: Document) -> str | None:
    """Why the log was not compacted, if it was not."""
    last = replica["last_round"]
    problem: str | None = replica["problem"]
    return last["problem"] if problem is None and last is not None else problem


def _line(document: Document, replica: Document, *, waited: bool) -> str:
    name = f"{document['topic']}-{replica['partition']} on broker {document['broker']}"
    if not waited:
        return f"{name}: {'nothing to do' if replica['state'] == 'idle' else replica['state']}"
    problem, last = _problem(replica), replica["last_round"]
    if problem is not None:
        return f"{name}: not compacted. {problem}"
    if last is None:
        return f"{name}: nothing to do"
    return (
        f"{name}: {last['records_kept']} of {counted(last['records_read'], 'record')} kept, "
        f"{size_text(last['bytes_written'])} of {size_text(last['bytes_read'])}"
    )
