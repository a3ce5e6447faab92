"""`strandline topics delete-records`: the beginning of partitions, up to an offset or a time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click

from strandline.cli.connecting import bootstrap_option, json_option, open_cluster
from strandline.cli.moments import parse_time
from strandline.cli.output import print_json, print_table
from strandline.cli.scope import parse_scope
from strandline.client.admin import Admin
from strandline.client.cluster import ClusterClient
from strandline.client.offsets import list_offsets
from strandline.numerals import INT64_MAX, whole_number
from strandline.types import Offset, TopicPartition

_END: Final = Offset(-1)
"""Kafka's word for the high watermark, in requests and in its tool's files."""


@click.command("delete-records")
@click.argument("scopes", metavar="[TOPIC[:P,...]]...", nargs=-1)
@click.option(
    "--before",
    metavar="OFFSET",
    help="Delete the records below this offset; 'end' for all that are committed.",
)
@click.option(
    "--before-time",
    metavar="TIME",
    help="Delete what precedes the first record of this time or later: ISO 8601, or milliseconds.",
)
@click.option(
    "--offset-json-file",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Partitions and offsets in the format of kafka-delete-records.sh, in place of the others.",
)
@json_option
@bootstrap_option
def delete_records(
    scopes: tuple[str, ...],
    before: str | None,
    before_time: str | None,
    file: Path | None,
    as_json: bool,
    bootstrap: str | None,
) -> None:
    """Delete the oldest records of partitions, for good. Does not ask.

    Readers find the partition beginning at the new offset at once, on every replica. Disk space
    comes back when whole segments are below it.
    """
    if sum(each is not None for each in (before, before_time, file)) != 1:
        raise click.UsageError("Give one of --before, --before-time and --offset-json-file.")
    if bool(scopes) == (file is not None):
        raise click.UsageError("Say which partitions, or give --offset-json-file.")
    with open_cluster(bootstrap) as client:
        if file is not None:
            wanted = _of_file(file)
        elif before is not None:
            offset = _parse_offset(before)
            wanted = dict.fromkeys(parse_scope(client, scopes), offset)
        else:
            time_ms = parse_time(before_time or "", "--before-time")
            wanted = _at_time(client, parse_scope(client, scopes), time_ms)
        starts = Admin(client).topics.delete_records(wanted)
    found = sorted(starts.items())
    if as_json:
        print_json(
            [
                {"topic": each.topic, "partition": each.partition, "low_watermark": start}
                for each, start in found
            ]
        )
        return
    print_table(
        ("TOPIC", "PARTITION", "LOW WATERMARK"),
        ((each.topic, each.partition, start) for each, start in found),
    )


def _parse_offset(text: str) -> Offset:
    if text == "end":
        return _END
    offset = whole_number(text, INT64_MAX)
    if offset is None:
        raise click.UsageError(f"--before takes an offset or 'end', not '{text}'.")
    return Offset(offset)


def _at_time(
    client: ClusterClient, partitions: list[TopicPartition], time_ms: int
) -> dict[TopicPartition, Offset]:
    """The first offset of that time or later; the high watermark if all records are older."""
    found = list_offsets(client, dict.fromkeys(partitions, time_ms))
    return {each: _END if at.offset < 0 else at.offset for each, at in found.items()}


def _of_file(file: Path) -> Mapping[TopicPartition, Offset]:
    """`{"partitions": [{"topic": "orders", "partition": 0, "offset": 7}], "version": 1}`."""
    wanted: dict[TopicPartition, Offset] = {}
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        if document.get("version", 1) != 1:
            raise click.UsageError(f"{file} has the version {document['version']}; known is 1.")
        for each in document["partitions"]:
            partition = TopicPartition(str(each["topic"]), int(each["partition"]))
            if partition in wanted:
                raise click.UsageError(f"{file} names {partition} twice.")
            wanted[partition] = Offset(int(each["offset"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise click.UsageError(
            f"{file} is not like "
            '{"partitions": [{"topic": "orders", "partition": 0, "offset": 7}], "version": 1}.'
        ) from error
    if not wanted:
        raise click.UsageError(f"{file} names no partitions.")
    return wanted
