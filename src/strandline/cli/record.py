"""`strandline record`: what happens to one partition, to be played later like a scenario."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from shlex import quote
from typing import Final

import click

from strandline.cli.connecting import bootstrap_option, open_cluster
from strandline.cli.output import counted
from strandline.cli.stopping import Stop
from strandline.client.cluster import ClusterClient
from strandline.client.inspection import inspect_each
from strandline.errors import ErrorCode, ProtocolError
from strandline.numerals import INT32_MAX, whole_number
from strandline.types import TopicPartition
from strandline.ui.recording import Recording

_SAVE_S: Final = 0.5
_SAVE_SHARE: Final = 20
"""Saving takes at most one part in so many of the time, however long the recording gets."""


@click.command()
@click.argument("partition", metavar="TOPIC[/PARTITION]")
@click.option(
    "--to",
    "path",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Default: TOPIC-PARTITION.json here.",
)
@click.option("--seconds", type=click.FloatRange(min=0, min_open=True), help="Stop after so long.")
@click.option(
    "--interval",
    type=click.FloatRange(0.02, 60),
    default=0.2,
    show_default=True,
    help="Seconds between two looks.",
)
@bootstrap_option
def record(
    partition: str,
    path: Path | None,
    seconds: float | None,
    interval: float,
    bootstrap: str | None,
) -> None:
    """Record what happens to the replicas of a partition until Ctrl-C.

    Leaders, in-sync sets, offsets, epochs and the reasons of changes are recorded, no records.
    'strandline play FILE' plays it, and so does the page.
    """
    name, _, digits = partition.partition("/")
    number = whole_number(digits or "0", INT32_MAX)
    if not name or number is None:
        raise click.UsageError(f"'{partition}' is neither TOPIC nor TOPIC/PARTITION.")
    at = TopicPartition(name, number)
    target = path or Path(f"{at}.json")
    recording = Recording(at)
    with open_cluster(bootstrap) as cluster, Stop(terminate=True) as stop:
        _check(cluster, at)
        save(recording, target)  # a file that cannot be written is said now, not at the end
        click.echo(f"Recording {at} to {target}. Ctrl-C stops.", err=True)
        _record(cluster, at, recording, stop=stop, until=_Until(target, seconds, interval))
    save(recording, target)
    play = f"strandline play {quote(str(target))}"
    click.echo(f"{counted(len(recording), 'moment')} in {target}. To see them: {play}")


class _Until:
    """How long to record, how often to look, and when to save."""

    def __init__(self, target: Path, seconds: float | None, interval: float) -> None:
        self.target = target
        self.interval_s = interval
        self._end_s = None if seconds is None else time.monotonic() + seconds
        self._due_s = time.monotonic() + _SAVE_S

    @property
    def is_over(self) -> bool:
        return self._end_s is not None and time.monotonic() >= self._end_s

    def save_sometimes(self, recording: Recording) -> None:
        """What was seen is on disk soon, also if this process is killed."""
        begun = time.monotonic()
        if begun >= self._due_s:
            save(recording, self.target)
            took = time.monotonic() - begun
            self._due_s = begun + max(_SAVE_S, took * _SAVE_SHARE)


def _record(
    cluster: ClusterClient, at: TopicPartition, recording: Recording, *, stop: Stop, until: _Until
) -> None:
    while not (stop.is_set or until.is_over or recording.is_full):
        begun = time.monotonic()
        try:
            answers = inspect_each(cluster, "status", topics=[at.topic], partition=at.partition)
        except ProtocolError as error:
            click.echo(f"No broker answers: {error}", err=True)
        else:
            recording.add(answers, wall_ms=time.time_ns() // 1_000_000)
            until.save_sometimes(recording)
        while not stop.is_set and time.monotonic() < begun + until.interval_s:
            time.sleep(min(0.05, until.interval_s))  # short: Ctrl-C is noticed between two


def _check(cluster: ClusterClient, at: TopicPartition) -> None:
    found = cluster.topic(at.topic)
    if at.partition not in found.partitions:
        raise ProtocolError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"The topic '{at.topic}' has no partition {at.partition}.",
        )


def save(recording: Recording, target: Path) -> None:
    """Write the document whole or not at all."""
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        draft.write_text(json.dumps(recording.document()))
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
