"""`strandline consume`: the records of a topic, printed as they come."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import BinaryIO, Final

import click

from strandline.cli.connecting import bootstrap_option, open_cluster, parse_assignments
from strandline.cli.consume_member import MemberTask, consume_as_member
from strandline.cli.consume_place import check_start, parse_start
from strandline.cli.consume_run import ConsumeRun
from strandline.cli.numbers import PARTITION
from strandline.cli.record_format import Formatter, formatter_for
from strandline.cli.schema_options import schema_options, schema_places
from strandline.cli.stopping import Stop, ends_with_its_reader
from strandline.client.cluster import ClusterClient
from strandline.client.consumer import Consumer
from strandline.client.fetching import ISOLATIONS, FetchSettings
from strandline.client.group_consumer import GroupConsumer
from strandline.client.group_settings import PROTOCOLS, GroupSettings, parse_group_settings
from strandline.client.offsets import commit_offsets, committed_offsets
from strandline.client.start import Start
from strandline.errors import ErrorCode, InvalidSetting, ProtocolError
from strandline.types import TopicPartition

_COMMIT_S: Final = 5.0
_FORMS: Final = ("bytes", "avro")


@click.command()
@click.argument("topic")
@click.option(
    "--partition",
    "numbers",
    type=PARTITION,
    multiple=True,
    metavar="N",
    help="Only this one. Repeatable.",
)
@click.option(
    "--offset",
    metavar="WHERE",
    help="earliest, latest, an offset (refused if a partition does not have it), or -N for the "
    "last N of each partition. Default: what --group committed, else auto.offset.reset, which is "
    "earliest here.",
)
@click.option(
    "--timestamp",
    metavar="TIME",
    help="From the first record at or after it: an ISO 8601 time, or milliseconds since 1970.",
)
@click.option("--max", "count_max", type=click.IntRange(min=1), metavar="N", help="Stop after N.")
@click.option(
    "-e", "--exit-at-end", is_flag=True, help="Stop where the partitions end at the start."
)
@click.option(
    "--group",
    metavar="NAME",
    help="Join this group, read what it gives, and commit what is printed. With --partition: go "
    "on where the group stopped and commit for it, without joining it.",
)
@click.option(
    "--protocol",
    type=click.Choice(PROTOCOLS),
    help="How to be a member of --group: as group.protocol, which is classic by default.",
)
@click.option(
    "--share-group",
    metavar="NAME",
    help="Join this share group: print the records that it gives, and accept each when it is "
    "written out.",
)
@click.option(
    "-X",
    "settings",
    metavar="NAME=VALUE",
    multiple=True,
    help="A setting of the member, as max.poll.interval.ms. Repeatable.",
)
@click.option(
    "--isolation",
    type=click.Choice(list(ISOLATIONS)),
    default="read_uncommitted",
    show_default=True,
    help="Whether records of open and aborted transactions are left out.",
)
@click.option(
    "--committed",
    "isolation",
    flag_value="read_committed",
    help="The same as --isolation read_committed.",
)
@click.option(
    "--format",
    "form",
    metavar="FORM",
    default="value",
    show_default=True,
    help="value, json, verbose, or a template: %t %p %o %T %k %s %h.",
)
@click.option(
    "--key",
    "key_form",
    type=click.Choice(_FORMS),
    default="bytes",
    show_default=True,
    help="What the records' keys are; Avro is printed as JSON.",
)
@click.option(
    "--value",
    "value_form",
    type=click.Choice(_FORMS),
    default="bytes",
    show_default=True,
    help="What the records' values are; Avro is printed as JSON.",
)
@schema_options
@bootstrap_option
def consume(
    topic: str,
    numbers: tuple[int, ...],
    offset: str | None,
    timestamp: str | None,
    count_max: int | None,
    exit_at_end: bool,
    group: str | None,
    protocol: str | None,
    share_group: str | None,
    settings: tuple[str, ...],
    isolation: str,
    form: str,
    key_form: str,
    value_form: str,
    schema_directory: str | None,
    registry: str | None,
    bootstrap: str | None,
) -> None:
    """Print the records of TOPIC until Ctrl-C."""
    output: BinaryIO = sys.stdout.buffer
    try:
        formatter = formatter_for(form, is_terminal=sys.stdout.isatty())
    except InvalidSetting as wrong:
        raise click.UsageError(f"--format: {wrong}") from wrong
    if "avro" in (key_form, value_form):
        formatter = _decoding(formatter, topic, key_form, value_form, (schema_directory, registry))
    if share_group is not None:
        from strandline.cli.consume_share import ShareTask, consume_from_share_group

        refused = {
            "--partition": bool(numbers),
            "--offset": offset is not None,
            "--timestamp": timestamp is not None,
            "--exit-at-end": exit_at_end,
            "--group": group is not None,
            "--protocol": protocol is not None,
            "--isolation": isolation != "read_uncommitted",
        }
        task = ShareTask(topic, share_group, parse_assignments(settings, "-X"), count_max)
        consume_from_share_group(task.checked(refused), bootstrap, formatter, output)
        return
    start = parse_start(offset, timestamp)
    fetch = FetchSettings(isolation=ISOLATIONS[isolation])
    member = _member_settings(group, protocol, settings, numbers)
    with (
        ends_with_its_reader(),
        open_cluster(bootstrap) as client,
        Stop(terminate=True, ends_when=_ends_when(group, member)) as stop,
    ):
        if member is not None:
            client.topic(topic)  # a typing mistake is no topic that may come
            consume_as_member(
                GroupConsumer(client, replace(member, enable_auto_commit=False), fetch),
                MemberTask(topic, start, exit_at_end, member, client),
                lambda source: ConsumeRun(source, formatter, output, count_max),
                stop,
            )
            return
        partitions = _partitions(client, topic, numbers)
        check_start(client, partitions, start)
        # What the user has named is read from there or not at all.
        consumer = Consumer(client, fetch, reset=Start.earliest() if start is None else None)
        consumer.assign(_starts(client, partitions, start, group))
        run = ConsumeRun(consumer, formatter, output, count_max)
        for at, position in consumer.positions.items():
            run.places.begin(at, position)
        if exit_at_end:
            run.ends = consumer.end_offsets()
        try:
            committed_s = time.monotonic()
            while not stop.is_set and not run.is_full and not run.is_at_end:
                run.step()
                if group is not None and time.monotonic() - committed_s > _COMMIT_S:
                    committed_s = time.monotonic()
                    commit_offsets(client, group, run.take_uncommitted())
        finally:
            # Whatever ended it: what was printed counts as read.
            if group is not None and not stop.is_abandoned:
                commit_offsets(client, group, run.take_uncommitted())


def _ends_when(group: str | None, member: GroupSettings | None) -> str | None:
    """What Ctrl-C waits for; None if that is nothing."""
    if group is None:
        return None
    if member is None:
        return "what was printed is committed"
    committed = "what was printed is committed and " if member.enable_auto_commit else ""
    return f"{committed}the group is left"


def _member_settings(
    group: str | None, protocol: str | None, settings: tuple[str, ...], numbers: tuple[int, ...]
) -> GroupSettings | None:
    """As what to join the group; None if none is to be joined."""
    if group is None or numbers:
        if settings or protocol is not None:
            option = "-X" if settings else "--protocol"
            raise click.UsageError(
                f"{option} is for members: it needs --group, without --partition."
            )
        return None
    try:
        named = parse_assignments(settings, "-X")
        if protocol is not None:
            named = {**named, "group.protocol": protocol}
        return parse_group_settings(group, named, reset="earliest")
    except InvalidSetting as wrong:
        raise click.UsageError(str(wrong)) from wrong


def _decoding(
    formatter: Formatter,
    topic: str,
    key_form: str,
    value_form: str,
    where: tuple[str | None, str | None],
) -> Formatter:
    # Most records are printed as they are, and without the import.
    from strandline.cli.avro_records import AvroFormatter
    from strandline.schemas.sources import Part, Schemas

    forms: dict[Part, str] = {"key": key_form, "value": value_form}
    parts = {part for part, form in forms.items() if form == "avro"}
    return AvroFormatter(formatter, Schemas.at(schema_places(*where)), topic, parts)


def _partitions(
    client: ClusterClient, topic: str, numbers: tuple[int, ...]
) -> list[TopicPartition]:
    found = client.topic(topic).partitions
    for number in numbers:
        if number not in found:
            raise ProtocolError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"There is no partition {number} of topic '{topic}'; it has the partitions "
                f"0 to {len(found) - 1}.",
            )
    return [TopicPartition(topic, number) for number in sorted(set(numbers) or found)]


def _starts(
    client: ClusterClient,
    partitions: list[TopicPartition],
    start: Start | None,
    group: str | None,
) -> dict[TopicPartition, Start]:
    starts = dict.fromkeys(partitions, start or Start.earliest())
    if group is not None and start is None:
        for partition, stored in committed_offsets(
            client, group, partitions, is_stable=True
        ).items():
            starts[partition] = Start.at_offset(stored.offset)
    return starts
