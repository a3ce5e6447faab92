"""`strandline topics`: create, list, describe, alter and delete topics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click

from strandline.cli.connecting import (
    DESCRIBING_MS,
    bootstrap_option,
    json_option,
    open_cluster,
    parse_assignments,
)
from strandline.cli.numbers import PARTITION_COUNT, REPLICATION_FACTOR
from strandline.cli.output import counted, print_json, print_table, size_text
from strandline.cli.topic_records import delete_records
from strandline.cli.topic_replicas import elect, move, move_logs, moves
from strandline.cli.unanswered import tell_brokers, tell_partitions
from strandline.cli.whole_sentences import SentencesGroup
from strandline.client.admin import Admin
from strandline.client.admin_cluster import sizes_by_partition
from strandline.client.admin_configs import ConfigEntry, Resource
from strandline.client.admin_topics import BROKER_DEFAULT
from strandline.client.cluster import ClusterClient
from strandline.client.metadata import TopicInfo
from strandline.client.offsets import EARLIEST, LATEST, OffsetAt, list_known_offsets
from strandline.errors import ErrorCode, ProtocolError
from strandline.storage.kafka_uuid import format_uuid
from strandline.types import BrokerId, TopicPartition

_SILENT: Final = frozenset({ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT})
"""What is said of a broker that does not answer."""


@click.group(cls=SentencesGroup)
def topics() -> None:
    """Create, list, change, move, delete topics."""


topics.add_command(delete_records)
topics.add_command(elect)
topics.add_command(move)
topics.add_command(moves)
topics.add_command(move_logs)


@topics.command()
@click.argument("name")
@click.option("--partitions", type=PARTITION_COUNT, metavar="N", help="Default: the broker's.")
@click.option(
    "--replication-factor", type=REPLICATION_FACTOR, metavar="N", help="Default: the broker's."
)
@click.option(
    "--config", "settings", metavar="NAME=VALUE", multiple=True, help="A setting. Repeatable."
)
@click.option("--if-not-exists", is_flag=True, help="Do nothing if there is such a topic.")
@bootstrap_option
def create(
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    settings: tuple[str, ...],
    if_not_exists: bool,
    bootstrap: str | None,
) -> None:
    """Create the topic NAME."""
    with open_cluster(bootstrap) as client:
        try:
            made = Admin(client).topics.create(
                name,
                partitions=partitions or BROKER_DEFAULT,
                replication_factor=replication_factor or BROKER_DEFAULT,
                configs=parse_assignments(settings, "--config"),
            )
        except ProtocolError as error:
            if if_not_exists and error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                click.echo(f"Topic '{name}' is there already.")
                return
            raise
    numbers = ""
    if made.partitions > 0:
        replicas = counted(made.replication_factor, "replica")
        numbers = f" with {counted(made.partitions, 'partition')} of {replicas} each"
    click.echo(f"Created topic '{name}'{numbers}.")


@topics.command("list")
@click.option("--internal", is_flag=True, help="Also topics of the cluster itself.")
@bootstrap_option
@json_option
def list_topics(internal: bool, bootstrap: str | None, as_json: bool) -> None:
    """List the names of all topics."""
    with open_cluster(bootstrap) as client:
        found = Admin(client).topics.list_all()
    shown = [each for each in found if internal or not each.is_internal]
    if as_json:
        print_json(
            [
                {
                    "name": each.name,
                    "partitions": len(each.partitions),
                    "replication_factor": _replication_factor(each),
                    "internal": each.is_internal,
                }
                for each in shown
            ]
        )
        return
    for each in shown:
        click.echo(each.name)


@topics.command()
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--internal", is_flag=True, help="Without a NAME: also topics of the cluster itself.")
@bootstrap_option
@json_option
def describe(names: tuple[str, ...], internal: bool, bootstrap: str | None, as_json: bool) -> None:
    """Describe topics, all by default: leaders, replicas, offsets, sizes, settings.

    What is not known is a dash (null in JSON), with the reason on standard error: offsets of a
    partition that no broker leads, or whose leader does not answer within some seconds.
    """
    with open_cluster(bootstrap, patience_ms=DESCRIBING_MS) as client:
        admin = Admin(client)
        if names:
            found = [admin.topics.describe(name) for name in names]
        else:
            found = [each for each in admin.topics.list_all() if internal or not each.is_internal]
        details = _Details(client, found)
        described = details.as_json()
    if as_json:
        print_json(described)
    else:
        for number, topic in enumerate(described):
            if number:
                click.echo()
            _print_topic(topic)
    details.tell_what_is_missing()


@topics.command()
@click.argument("name")
@click.option("--partitions", type=PARTITION_COUNT, metavar="N", help="The new total.")
@click.option(
    "--config", "settings", metavar="NAME=VALUE", multiple=True, help="Set a setting. Repeatable."
)
@click.option(
    "--delete-config", "deleted", metavar="NAME", multiple=True, help="Reset one. Repeatable."
)
@bootstrap_option
def alter(
    name: str,
    partitions: int | None,
    settings: tuple[str, ...],
    deleted: tuple[str, ...],
    bootstrap: str | None,
) -> None:
    """Add partitions to the topic NAME, or change its settings."""
    # The other commands start without the tables of settings.
    from strandline.cli.reset_names import names_that_count

    values = parse_assignments(settings, "--config")
    if partitions is None and not values and not deleted:
        raise click.UsageError("Nothing to change: give --partitions, --config or --delete-config.")
    with open_cluster(bootstrap) as client:
        admin = Admin(client)
        if values or deleted:
            topic = Resource.topic(name)
            reset = names_that_count(admin.configs, topic, deleted)
            admin.configs.alter(topic, set_to=values, reset=deleted)
            click.echo(f"Changed {counted(len(values) + len(reset), 'setting')} of {topic}.")
        if partitions is not None:
            admin.topics.add_partitions(name, partitions)
            click.echo(f"Topic '{name}' now has {counted(partitions, 'partition')}.")


@topics.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@bootstrap_option
def delete(names: tuple[str, ...], bootstrap: str | None) -> None:
    """Delete topics with all of their records. Does not ask."""
    with open_cluster(bootstrap) as client:
        outcomes = Admin(client).topics.delete(names)
    failed: ProtocolError | None = None
    for name, error in outcomes.items():
        if error is None:
            click.echo(f"Deleted topic '{name}'.")
        else:
            click.echo(f"Topic '{name}' was not deleted: {error.message}", err=True)
            failed = error
    if failed is not None:
        raise click.exceptions.Exit(1)


class _Details:
    """Everything that is told about topics, asked for with few requests."""

    def __init__(self, client: ClusterClient, found: list[TopicInfo]) -> None:
        admin = Admin(client)
        partitions = [
            TopicPartition(topic.name, number) for topic in found for number in topic.partitions
        ]
        self._starts, without_start = list_known_offsets(
            client, dict.fromkeys(partitions, EARLIEST)
        )
        self._ends, without_end = list_known_offsets(client, dict.fromkeys(self._starts, LATEST))
        self._refused = {**without_start, **without_end}
        # Meanwhile others may have come to lead, which told these offsets.
        self._found = [client.view.topics.get(topic.name, topic) for topic in found]
        self._eligible = admin.replicas.eligible_leaders(topic.name for topic in found)
        directories = admin.cluster.log_directories(self._holders(client))
        self._sizes = sizes_by_partition(directories.found)
        self._without_sizes = directories.unanswered
        self._configs: dict[str, list[ConfigEntry]] = {
            topic.name: [
                each
                for each in admin.configs.describe(Resource.topic(topic.name))
                if each.is_own_of(Resource.topic(topic.name))
            ]
            for topic in found
        }

    def _holders(self, client: ClusterClient) -> set[BrokerId]:
        """The brokers that can tell the sizes of replicas. That one which did not tell an offset
        would not answer now is known: it was waited for."""
        silent = {
            topic.partitions[number].leader
            for topic in self._found
            for number in topic.partitions
            if (error := self._refused.get(TopicPartition(topic.name, number))) is not None
            and error.code in _SILENT
        }
        replicas = {
            each
            for topic in self._found
            for partition in topic.partitions.values()
            for each in partition.replicas
        }
        return (replicas & client.view.brokers.keys()) - silent

    def tell_what_is_missing(self) -> None:
        """Sentences on standard error."""
        tell_partitions(self._refused, "No offsets of")
        tell_brokers(self._without_sizes, "the sizes of its replicas")

    def as_json(self) -> list[dict[str, Any]]:
        return [
            {
                "name": topic.name,
                "topic_id": format_uuid(topic.topic_id),
                "internal": topic.is_internal,
                "replication_factor": _replication_factor(topic),
                "configs": {each.name: each.value for each in self._configs[topic.name]},
                "partitions": [self._partition(topic, number) for number in topic.partitions],
            }
            for topic in self._found
        ]

    def _partition(self, topic: TopicInfo, number: int) -> dict[str, Any]:
        each = topic.partitions[number]
        partition = TopicPartition(topic.name, number)
        refusal = self._refused.get(partition)
        return {
            "partition": number,
            "leader": each.leader if each.leader >= 0 else None,
            "leader_epoch": each.leader_epoch,
            "replicas": list(each.replicas),
            "in_sync": list(each.in_sync_replicas),
            "offline": list(each.offline_replicas),
            "eligible_leaders": list(self._eligible.get(partition, ())),
            "start_offset": _offset(self._starts.get(partition)),
            "high_watermark": _offset(self._ends.get(partition)),
            "error": None if refusal is None else refusal.code.name,
            "size_bytes": self._sizes.get(partition),
        }


def _print_topic(topic: dict[str, Any]) -> None:
    partitions = topic["partitions"]
    total = sum(each["size_bytes"] or 0 for each in partitions)
    click.echo(
        f"Topic {topic['name']}  id {topic['topic_id']}  partitions {len(partitions)}  "
        f"replication factor {topic['replication_factor']}  size {size_text(total)}"
    )
    for name, value in topic["configs"].items():
        click.echo(f"  {name}={value}")
    columns: dict[str, Callable[[dict[str, Any]], object]] = {
        "PARTITION": lambda each: each["partition"],
        "LEADER": lambda each: each["leader"],
        "EPOCH": lambda each: each["leader_epoch"],
        "REPLICAS": lambda each: _ids(each["replicas"]),
        "IN SYNC": lambda each: _ids(each["in_sync"]),
        "ELIGIBLE": lambda each: _ids(each["eligible_leaders"]),
        "OFFLINE": lambda each: _ids(each["offline"]),
        "START": lambda each: each["start_offset"],
        "HIGH WATERMARK": lambda each: each["high_watermark"],
        "SIZE": lambda each: None if each["size_bytes"] is None else size_text(each["size_bytes"]),
    }
    if not any(each["eligible_leaders"] for each in partitions):
        # Brokers that may lead although they are not in sync: mostly there are none.
        del columns["ELIGIBLE"]
    print_table(
        tuple(columns),
        (tuple(show(each) for show in columns.values()) for each in partitions),
    )


def _ids(brokers: list[int]) -> str | None:
    return ",".join(map(str, brokers)) or None


def _offset(found: OffsetAt | None) -> int | None:
    return None if found is None else found.offset


def _replication_factor(topic: TopicInfo) -> int:
    return max((len(each.replicas) for each in topic.partitions.values()), default=0)
