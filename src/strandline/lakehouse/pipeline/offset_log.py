"""The exact offsets of a micro-batch, from the log of offsets that Spark keeps in a checkpoint.

    <checkpoint>/offsets/<batch>     v1
                                     {...what the batch runs with...}
                                     {...the source's end offsets...}

Spark writes that file before the batch runs, and it is the only place where the ends of a batch are
exact: its rows do not tell of gaps at the end of a range. This file knows the documents of the two
sources, ours and Spark's own connector for Kafka.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from strandline.lakehouse.pipeline.errors import PipelineFailed
from strandline.lakehouse.source.positions import Positions
from strandline.lakehouse.tables.identity import OffsetRange
from strandline.types import TopicId, TopicPartition

_VERSION: Final = "v1"
_NO_EPOCH: Final = -1
_NO_IDS: Final[Mapping[str, str]] = {}


class End(NamedTuple):
    """Behind the last offset of a batch in one partition, and what is known of its log there.

    `begin` is where the batch begins if not where the one before ended.
    """

    offset: int
    leader_epoch: int = _NO_EPOCH
    topic_id: str = ""
    begin: int | None = None


def ends_of(checkpoint: Path, batch_id: int) -> dict[TopicPartition, End]:
    """Where a batch ends. Raises `PipelineFailed` if this is not Spark's log as we know it."""
    path = checkpoint / "offsets" / str(batch_id)
    try:
        version, _, *sources = path.read_text().splitlines()
    except (OSError, ValueError) as error:
        raise PipelineFailed(f"{path} is not what Spark 4.2 keeps offsets in.") from error
    if version != _VERSION or len(sources) != 1:
        raise PipelineFailed(f"{path} is not what Spark 4.2 keeps offsets of one source in.")
    return parse_ends(sources[0])


def parse_ends(text: str) -> dict[TopicPartition, End]:
    """Read either source's document."""
    document = json.loads(text)
    if "version" not in document:
        return {
            TopicPartition(topic, int(number)): End(offset)
            for topic, partitions in document.items()
            for number, offset in partitions.items()
        }
    return ends_at(Positions.parse(text))


def ends_at(positions: Positions) -> dict[TopicPartition, End]:
    """The positions of our own source as ends."""
    return {
        partition: End(
            position.offset,
            position.epoch,
            _text(positions.topic_ids.get(partition.topic)),
            position.begin,
        )
        for partition, position in positions.at.items()
    }


def ranges_between(
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, End],
    topic_ids: Mapping[str, str] = _NO_IDS,
) -> tuple[OffsetRange, ...]:
    """What lies between; a partition that has just appeared begins at its first record.

    `topic_ids` are for ends without one: Spark's connector for Kafka knows topics by name only.

    Beside records stand empty ranges of partitions that have none, but begin behind 0: a table that
    never noted where they begin would miss their first offsets. It drops those that it has.
    """
    found, quiet = [], []
    for partition, end in ends.items():
        # A position says from where its step read until the next one: that may be in the table.
        start = max(starts.get(partition, 0), end.begin or 0)
        topic_id = end.topic_id or topic_ids.get(partition.topic, "")
        each = OffsetRange(*partition, start, end.offset, end.leader_epoch, topic_id)
        if start < end.offset:
            found.append(each)
        elif 0 < start == end.offset:
            quiet.append(each)
    return tuple(sorted(found + quiet)) if found else ()


def _text(topic_id: TopicId | None) -> str:
    return "" if topic_id is None else str(topic_id)
