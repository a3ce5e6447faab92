"""`strandline produce`: lines or JSON from standard input or a file into a topic."""

from __future__ import annotations

import os
import sys
import time
from typing import Final

import click

from strandline.cli.connecting import bootstrap_option, open_cluster, parse_assignments
from strandline.cli.numbers import PARTITION
from strandline.cli.output import counted
from strandline.cli.produce_counts import Acknowledged
from strandline.cli.produce_input import InputRecord, from_json, from_line, read_lines
from strandline.cli.stopping import Stop
from strandline.client.delivery import Delivery, FailedRecords
from strandline.client.producer import Producer, ProducerSettings
from strandline.client.transaction_settings import TRANSACTION_TIMEOUT_MS
from strandline.records.codec import Codec

CODECS: Final = {"none": Codec.NONE, **{codec.setting: codec for codec in Codec if codec}}
_ACKS: Final = {"all": -1, "1": 1, "0": 0}
_PROGRESS_S: Final = 1.0
_TIMEOUT_S: Final = TRANSACTION_TIMEOUT_MS // 1000


@click.command()
@click.argument("topic")
@click.option(
    "--file", "path", type=click.Path(exists=True, dir_okay=False), help="Read this, not stdin."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["lines", "json"]),
    default="lines",
    show_default=True,
    help="A record per line: its value, or an object as 'consume --format json' prints it.",
)
@click.option("--key-separator", metavar="TEXT", help="What stands between key and value.")
@click.option("--partition", type=PARTITION, metavar="N", help="Send all there.")
@click.option(
    "--header", "headers", metavar="NAME=VALUE", multiple=True, help="For all. Repeatable."
)
@click.option(
    "--acks",
    type=click.Choice(list(_ACKS)),
    default="all",
    show_default=True,
    help="Who must have a record before it counts as written.",
)
@click.option(
    "--compression",
    type=click.Choice(list(CODECS)),
    default="none",
    show_default=True,
    help="How batches are compressed.",
)
@click.option(
    "--transactional-id",
    metavar="ID",
    help="Send all of the input in one transaction: readers of committed records see all or "
    "nothing.",
)
@click.option(
    "--transaction-records",
    type=click.IntRange(min=1),
    metavar="N",
    help="With --transactional-id: commit after every N records, and at the end.",
)
@bootstrap_option
def produce(
    topic: str,
    path: str | None,
    form: str,
    key_separator: str | None,
    partition: int | None,
    headers: tuple[str, ...],
    acks: str,
    compression: str,
    transactional_id: str | None,
    transaction_records: int | None,
    bootstrap: str | None,
) -> None:
    """Send records to TOPIC, one per line of input, and say at the end how many were written.

    Ctrl-C sends what was read and stops; an open transaction is aborted by it, and by a bad line.
    """
    _check_transaction(transactional_id, transaction_records, acks)
    if form == "json" and key_separator is not None:
        raise click.UsageError("--key-separator is for --format lines; JSON has a field 'key'.")
    if key_separator == "":
        raise click.UsageError("--key-separator must not be empty.")
    extra = tuple(
        (name, value.encode("utf-8", "surrogateescape"))
        for name, value in parse_assignments(headers, "--header").items()
    )
    separator = None if key_separator is None else os.fsencode(key_separator)

    def record_of(line: bytes, number: int) -> InputRecord:
        return from_json(line, number) if form == "json" else from_line(line, number, separator)

    settings = ProducerSettings(
        acks=_ACKS[acks], codec=CODECS[compression], transactional_id=transactional_id
    )
    descriptor = sys.stdin.fileno() if path is None else os.open(path, os.O_RDONLY)
    ends_when = _ends_when(acks, is_transactional=transactional_id is not None)
    with open_cluster(bootstrap) as client, Stop(terminate=True, ends_when=ends_when) as stop:
        producer = Producer(client, settings)
        if transactional_id is None:
            run = _Run(producer, topic, partition, extra)
        else:
            run = _TransactionalRun(producer, topic, partition, extra)
            run.records_max = transaction_records
        try:
            for lines, is_pause in read_lines(descriptor, lambda: stop.is_set):
                for line in lines:
                    run.send(record_of(line, run.sent + 1))
                if is_pause:
                    run.flush()
                if run.failed:
                    break
            run.complete(is_interrupted=stop.is_set)
        finally:
            try:
                # What was read before a bad line or a refused record is still sent and counted.
                if not stop.is_abandoned:
                    run.end()
            finally:  # also if a second Ctrl-C ends the wait for it
                run.summarize()
                if stop.is_abandoned:
                    run.say_what_is_open()
    if run.failed:
        raise click.exceptions.Exit(1)


def _check_transaction(transactional_id: str | None, records_max: int | None, acks: str) -> None:
    if transactional_id is None:
        if records_max is not None:
            raise click.UsageError("--transaction-records needs --transactional-id.")
    elif not transactional_id:
        raise click.UsageError("--transactional-id must not be empty.")
    elif acks != "all":
        raise click.UsageError("--transactional-id needs --acks all.")


def _ends_when(acks: str, *, is_transactional: bool) -> str:
    """What Ctrl-C waits for."""
    if is_transactional:
        return "the open transaction has ended"
    return "what was read is sent" if acks == "0" else "what was read is sent and acknowledged"


class _Run:
    """Counts what goes out and comes back."""

    def __init__(
        self,
        producer: Producer,
        topic: str,
        partition: int | None,
        headers: tuple[tuple[str, bytes | None], ...],
    ) -> None:
        self.sent = 0
        self.failed: list[FailedRecords] = []
        self._producer = producer
        self._topic = topic
        self._partition = partition
        self._headers = headers
        self._acknowledged = Acknowledged()
        self._begun = self._shown = time.monotonic()
        self._shows_progress = sys.stderr.isatty()

    def send(self, record: InputRecord) -> None:
        delivery = self._producer.send(
            self._topic,
            record.value,
            key=record.key,
            headers=(*record.headers, *self._headers),
            partition=record.partition if self._partition is None else self._partition,
            timestamp=record.timestamp,
        )
        self.sent += 1
        self._expect(delivery, len(record.value or b""))
        if self._shows_progress and time.monotonic() - self._shown > _PROGRESS_S:
            self._shown = time.monotonic()
            click.echo(f"\r{counted(self.sent, 'record')} sent", err=True, nl=False)

    def flush(self) -> None:
        self.failed += self._producer.flush().failed

    def complete(self, *, is_interrupted: bool) -> None:
        """The input has ended, by itself or by Ctrl-C."""

    def end(self) -> None:
        """Nothing more is sent."""
        self.flush()

    def written(self) -> tuple[int, int]:
        """How many records count as written, and the bytes of their values."""
        self._acknowledged.update()
        return self._acknowledged.records, self._acknowledged.value_bytes

    def summarize(self) -> None:
        records, value_bytes = self.written()
        taken = time.monotonic() - self._begun
        start = "\r" if self._shows_progress else ""
        click.echo(
            f"{start}{counted(records, 'record')} ({counted(value_bytes, 'byte')} of "
            f"values) written to '{self._topic}' in {taken:.2f} s.",
            err=True,
        )
        for each in self.failed:
            certainty = "maybe not" if each.maybe_written else "not"
            click.echo(
                f"{counted(each.count, 'record')} for partition {each.topic_partition} "
                f"{'was' if each.count == 1 else 'were'} {certainty} written: "
                f"{each.error.message} [{each.error.code.name}]",
                err=True,
            )

    def say_what_is_open(self) -> None:
        """Nothing is known of the records whose outcome was not waited for."""
        unknown = self.sent - self.written()[0] - sum(each.count for each in self.failed)
        if unknown:
            click.echo(
                f"{counted(unknown, 'record')} {'was' if unknown == 1 else 'were'} maybe not "
                "written: there was no answer before the command ended.",
                err=True,
            )

    def _expect(self, delivery: Delivery, value_bytes: int) -> None:
        """A record was sent."""
        self._acknowledged.expect(delivery, value_bytes)


class _TransactionalRun(_Run):
    """Commits at the end, or every so many records; only what is committed counts as written."""

    records_max: int | None = None
    _in_transaction = _bytes_in_transaction = 0
    _committed = _committed_bytes = 0
    _is_open = _is_committing = False

    def send(self, record: InputRecord) -> None:
        if not self._producer.is_in_transaction:
            self._producer.begin()
            self._is_open = True
            self._in_transaction = self._bytes_in_transaction = 0
        super().send(record)
        if self._in_transaction == self.records_max:
            self._commit()

    def flush(self) -> None:
        self._producer.flush().raise_failure()

    def complete(self, *, is_interrupted: bool) -> None:
        if not is_interrupted and self._producer.is_in_transaction:
            self._commit()

    def end(self) -> None:
        if self._producer.is_in_transaction:
            self._producer.abort()
            self._is_open = False
            click.echo(
                f"The transaction with the last {counted(self._in_transaction, 'record')} was "
                "aborted.",
                err=True,
            )

    def written(self) -> tuple[int, int]:
        return self._committed, self._committed_bytes

    def say_what_is_open(self) -> None:
        if not self._is_open:
            return
        what = f"the transaction with the last {counted(self._in_transaction, 'record')}"
        sentence = f"{what.capitalize()} was left open. Brokers abort it after {_TIMEOUT_S} s."
        if self._is_committing:
            sentence = f"Whether {what} was committed is not known."
        click.echo(sentence, err=True)

    def _expect(self, delivery: Delivery, value_bytes: int) -> None:
        del delivery  # the transaction has the outcome
        self._in_transaction += 1
        self._bytes_in_transaction += value_bytes

    def _commit(self) -> None:
        self._is_committing = True
        self._producer.commit()
        self._is_open = self._is_committing = False
        self._committed += self._in_transaction
        self._committed_bytes += self._bytes_in_transaction
