"""`strandline consume`: the records of a topic, printed as they come."""

from __future__ import annotations

import sys
import time
from typing import BinaryIO, Final

import click

from strandline.cli.connecting import bootstrap_option, open_cluster
from strandline.cli.moments import parse_time
from strandline.cli.record_format import Formatter, formatter_for
from strandline.cli.schema_options import schema_options, schema_places
from strandline.cli.stopping import Stop, ends_with_its_reader
from strandline.client.cluster import ClusterClient
from strandline.client.consumer import Consumer, Start
from strandline.client.fetching import FetchedRecords, FetchSettings, Isolation
from strandline.client.offsets import commit_offsets, committed_offsets
from strandline.errors import ErrorCode, InvalidSetting, ProtocolError
from strandline.types import Offset, TopicPartition

_POLL_MS: Final = 250
_COMMIT_S: Final = 5.0
_TOLD_AGAIN_S: Final = 60.0
_OVER_S: Final = 2.0
"""So long without trouble, and it is over."""
_FORMS: Final = ("bytes", "avro")


@click.command()
@click.argument("topic")
@click.option(
    "--partition",
    "numbers",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="N",
    help="Only this one. Repeatable.",
)
@click.option(
    "--offset",
    metavar="WHERE",
    help="earliest, latest, an offset, or -N for the last N of each partition. "
    "Default: what --group committed, else earliest.",
)
@click.option("--timestamp", metavar="ISO-TIME", help="From the first record at or after it.")
@click.option("--max", "count_max", type=click.IntRange(min=1), metavar="N", help="Stop after N.")
@click.option(
    "-e", "--exit-at-end", is_flag=True, help="Stop where the partitions end at the start."
)
@click.option(
    "--group",
    metavar="NAME",
    help="Go on where this group stopped and commit for it, without joining it.",
)
@click.option("--committed", is_flag=True, help="Skip records of open or aborted transactions.")
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
    committed: bool,
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
    start = _start(offset, timestamp)
    isolation = Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED
    with ends_with_its_reader(), open_cluster(bootstrap) as client, Stop() as stop:
        consumer = Consumer(client, FetchSettings(isolation=isolation))
        consumer.assign(_starts(client, _partitions(client, topic, numbers), start, group))
        run = _Run(consumer, formatter, output, count_max)
        if exit_at_end:
            run.ends = consumer.end_offsets()
        try:
            committed_s = time.monotonic()
            while not stop.is_set and not run.is_over:
                run.step()
                if group is not None and time.monotonic() - committed_s > _COMMIT_S:
                    committed_s = time.monotonic()
                    commit_offsets(client, group, run.take_uncommitted())
        finally:
            # Whatever ended it: what was printed counts as read.
            if group is not None:
                commit_offsets(client, group, run.take_uncommitted())


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


class _Run:
    """Prints, and knows what was printed."""

    def __init__(
        self, consumer: Consumer, formatter: Formatter, output: BinaryIO, count_max: int | None
    ) -> None:
        self.ends: dict[TopicPartition, Offset] | None = None
        self._consumer = consumer
        self._formatter = formatter
        self._output = output
        self._room = count_max
        self._told_s: float | None = None
        """When trouble was told last that is not over; and when there was some last."""
        self._troubled_s = 0.0
        self._printed: dict[TopicPartition, Offset] = {}
        self._uncommitted: dict[TopicPartition, Offset] = {}

    @property
    def is_over(self) -> bool:
        """Whether enough was printed, or the end is reached."""
        if self._room is not None and self._room <= 0:
            return True
        if self.ends is None:
            return False
        positions = self._consumer.positions
        return all(positions[each] >= end for each, end in self.ends.items())

    def step(self) -> None:
        """Print what comes next, if it comes soon."""
        for fetched in self._consumer.poll(_POLL_MS):
            self._print(fetched)
        self._output.flush()
        self._tell_trouble()
        # Only now: what a closed pipe did not take must be read again by the group.
        self._uncommitted.update(self._printed)
        self._printed.clear()

    def take_uncommitted(self) -> dict[TopicPartition, Offset]:
        """Where to go on after what was printed since this was asked last."""
        taken, self._uncommitted = self._uncommitted, {}
        return taken

    def _tell_trouble(self) -> None:
        """Say that nothing comes because something is wrong, once a minute, and once that it is
        over. With several leaders one may answer and another fail in turns."""
        trouble = self._consumer.trouble
        now_s = time.monotonic()
        if trouble is not None:
            self._troubled_s = now_s
            if self._told_s is None or now_s - self._told_s >= _TOLD_AGAIN_S:
                self._told_s = now_s
                click.echo(f"{trouble.message} Trying again.", err=True)
        elif self._told_s is not None and now_s - self._troubled_s >= _OVER_S:
            self._told_s = None
            click.echo("The broker answers again.", err=True)

    def _print(self, fetched: FetchedRecords) -> None:
        partition = fetched.topic_partition
        end = None if self.ends is None else self.ends[partition]
        for record in fetched.records:
            if self._room is not None and self._room <= 0:
                return
            if end is not None and record.offset >= end:
                return  # came after the end that was to be reached
            self._output.write(self._formatter(partition, record))
            self._printed[partition] = Offset(record.offset + 1)
            if self._room is not None:
                self._room -= 1
        self._printed[partition] = fetched.next_offset


def _start(offset: str | None, timestamp: str | None) -> Start | None:
    if offset is not None and timestamp is not None:
        raise click.UsageError("Give either --offset or --timestamp.")
    if timestamp is not None:
        return Start.at_time(parse_time(timestamp, "--timestamp"))
    if offset is None:
        return None
    if offset == "earliest":
        return Start.earliest()
    if offset == "latest":
        return Start.latest()
    digits = offset.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()):
        raise click.UsageError(
            f"--offset takes earliest, latest, an offset, or -N, not '{offset}'."
        )
    number = int(offset)
    return Start.at_offset(number) if number >= 0 and offset == digits else Start.latest(-number)


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
        for partition, stored in committed_offsets(client, group, partitions).items():
            starts[partition] = Start.at_offset(stored.offset)
    return starts
