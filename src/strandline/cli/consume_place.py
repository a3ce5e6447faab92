"""Where `strandline consume` begins, and what it says of a place that is not in the log.

This file knows which offsets a log has. It must not know how records are printed.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import click

from strandline.cli.moments import parse_time
from strandline.client.cluster import ClusterClient
from strandline.client.fetching import FetchedRecords
from strandline.client.offsets import EARLIEST, LATEST, list_offsets_now
from strandline.client.start import Start
from strandline.errors import ErrorCode, ProtocolError
from strandline.numerals import INT64_MAX, whole_number
from strandline.types import Offset, TopicPartition


def parse_start(offset: str | None, timestamp: str | None) -> Start | None:
    """What --offset or --timestamp mean; None without either. Raises `click.UsageError`."""
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
    number = whole_number(digits, INT64_MAX)
    if number is None:
        raise click.UsageError(
            f"--offset takes earliest, latest, an offset, or -N, not '{offset}'."
        )
    return Start.at_offset(number) if offset == digits else Start.latest(number)


def check_start(
    client: ClusterClient, partitions: Iterable[TopicPartition], start: Start | None
) -> None:
    """Raise `ProtocolError` (OFFSET_OUT_OF_RANGE) if `start` names an offset that one of the
    partitions does not have. Their ends count: the next record gets that offset.

    A partition whose leader does not answer now is left to the fetch, which waits for the leader
    and is refused then: it costs the other partitions nothing.
    """
    if start is None or start != Start.at_offset(start.value):
        return
    wanted = sorted(partitions)
    starts, ends = (
        client.retry_on_topics(
            partial(list_offsets_now, client, dict.fromkeys(wanted, which)),
            {each.topic for each in wanted},
        )[0]
        for which in (EARLIEST, LATEST)
    )
    for each in wanted:
        if each not in starts or each not in ends:
            continue
        begin, end = starts[each].offset, ends[each].offset
        if not begin <= start.value <= end:
            raise ProtocolError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                _outside(Offset(start.value), each, begin, end) + ".",
            )


class Places:
    """Says where reading goes on elsewhere than where it had come to: a consumer resets positions
    that are not in the log (auto.offset.reset), and tells that by its records only."""

    def __init__(self) -> None:
        self._expected: dict[TopicPartition, Offset] = {}

    def begin(self, partition: TopicPartition, offset: Offset) -> None:
        """This is the position from which the partition is to be read."""
        self._expected[partition] = offset

    def follow(self, fetched: FetchedRecords) -> None:
        """Records have come, or the answer that there are none."""
        at = fetched.topic_partition
        found = fetched.records[0].offset if fetched.records else fetched.next_offset
        expected = self._expected.get(at)
        self._expected[at] = fetched.next_offset
        # Offsets that compaction has taken are missing inside of the log, and that is no reset.
        if expected is None or (found >= expected and expected >= fetched.log_start_offset):
            return
        if found < expected <= fetched.end_offset:
            why = f"The log of partition {at} was cut below offset {expected} and has grown since"
        else:
            why = _outside(expected, at, fetched.log_start_offset, fetched.end_offset)
        click.echo(f"{why}: reading goes on at {found} (auto.offset.reset).", err=True)


def _outside(offset: Offset, partition: TopicPartition, begin: Offset, end: Offset) -> str:
    if begin == end:
        has = f"is empty and ends at {end}"
    elif begin + 1 == end:
        has = f"has only offset {begin}"
    else:
        has = f"has the offsets {begin} to {end - 1}"
    return f"Offset {offset} is outside of the log of partition {partition}, which {has}"
