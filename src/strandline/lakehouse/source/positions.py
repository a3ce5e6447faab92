"""Offsets of many partitions, as a stream's checkpoint keeps them.

    {"version": 1,
     "topics": {"flights": {"id": "YjK3...", "partitions": {"0": {"offset": 23, "epoch": 4}}}}}

`offset` is the next one to be read. `epoch` is the leader epoch in which the log stood when the
position was taken: a log that later has less of that epoch than was read has been cut and written
anew. `id` tells a topic from another of the same name. `from` stands beside `offset` where reading
did not go on from the position before: in partitions that are new, and behind a loss. So what a
pair of documents means never depends on what is in the log by now.

Documents are canonical, because Spark compares them as text: equal positions, equal text. This file
knows no log.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from strandline.errors import StrandlineError
from strandline.lakehouse.reading.settings import OffsetRange
from strandline.storage.kafka_uuid import format_uuid, parse_uuid
from strandline.types import TopicId, TopicPartition

_VERSION: Final = 1


class BadPositions(StrandlineError):
    """A checkpoint's offsets cannot be understood. The sentence says what is wrong."""


class Position(NamedTuple):
    """Where to go on in one partition."""

    offset: int
    epoch: int = -1
    begin: int | None = None
    """From where this step read, if not from the position before."""


@dataclass(frozen=True, slots=True)
class Positions:
    """See the module. Every partition's topic is in `topic_ids`, with None if it has no id."""

    topic_ids: Mapping[str, TopicId | None] = field(default_factory=dict)
    at: Mapping[TopicPartition, Position] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        topic_ids: Mapping[str, TopicId | None],
        offsets: Mapping[TopicPartition, tuple[int, int]],
    ) -> Positions:
        """From offsets with their epochs; topics without any are left out."""
        topics = {partition.topic for partition in offsets}
        return cls(
            {name: topic_id for name, topic_id in topic_ids.items() if name in topics},
            {partition: Position(*each) for partition, each in offsets.items()},
        )

    @classmethod
    def parse(cls, document: str | Mapping[str, Any]) -> Positions:
        """Read a document, or its text. Raises `BadPositions`."""
        try:
            read = json.loads(document) if isinstance(document, str) else document
            if read["version"] != _VERSION:
                raise BadPositions(
                    f"The checkpoint's offsets have the version {read['version']}; this release "
                    f"reads version {_VERSION}."
                )
            topic_ids: dict[str, TopicId | None] = {}
            at: dict[TopicPartition, Position] = {}
            for name, topic in read["topics"].items():
                topic_ids[name] = parse_uuid(topic["id"]) if topic["id"] else None
                for number, each in topic["partitions"].items():
                    at[TopicPartition(name, int(number))] = Position(
                        int(each["offset"]), int(each["epoch"]), each.get("from")
                    )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadPositions(
                f"The checkpoint's offsets are not those of this source ({error!r}). A query that "
                "changes its source needs a new checkpoint."
            ) from error
        return cls(topic_ids, at)

    def document(self) -> dict[str, Any]:
        """What `parse` reads, for JSON."""
        topics: dict[str, Any] = {
            name: {"id": format_uuid(topic_id) if topic_id else "", "partitions": {}}
            for name, topic_id in sorted(self.topic_ids.items())
        }
        for (name, number), position in sorted(self.at.items()):
            entry = {"offset": position.offset, "epoch": position.epoch}
            if position.begin is not None:
                entry["from"] = position.begin
            topics[name]["partitions"][str(number)] = entry
        return {"version": _VERSION, "topics": topics}


def ranges_between(start: Positions, end: Positions) -> list[OffsetRange]:
    """What is read to get from one to the other, in the order of the partitions."""
    ranges: list[OffsetRange] = []
    for partition, position in sorted(end.at.items()):
        topic_id = end.topic_ids[partition.topic]
        before = start.at.get(partition)
        if position == before and start.topic_ids[partition.topic] == topic_id:
            continue
        begin = position.begin
        if begin is None:
            begin = before.offset if before is not None else 0
        if begin < position.offset:
            ranges.append(
                OffsetRange(
                    topic=partition.topic,
                    partition=partition.partition,
                    start=begin,
                    end=position.offset,
                    topic_id=topic_id,
                    leader_epoch=position.epoch,
                )
            )
    return ranges
