"""Which offsets a rebuild reads: everything the table holds, some partitions, or a stretch of time.

Pure: offsets in, offsets out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from strandline.lakehouse.pipeline.start_offsets import LogFacts
from strandline.lakehouse.tables.identity import Frontier, OffsetRange
from strandline.types import TopicPartition


def selection(
    frontiers: Mapping[TopicPartition, Frontier],
    facts: LogFacts,
    *,
    partitions: Collection[int] = (),
    since: Mapping[TopicPartition, int] | None = None,
    until: Mapping[TopicPartition, int] | None = None,
) -> tuple[OffsetRange, ...]:
    """The ranges that the table holds and the log still has, cut to what was asked for.

    `partitions` are numbers, all by default. `since` and `until` are offsets per partition: the
    first that is wanted, and the first that is not.
    """
    found = []
    for partition, frontier in sorted(frontiers.items()):
        if partitions and partition.partition not in partitions:
            continue
        start = max(frontier.start, facts.earliest[partition], (since or {}).get(partition, 0))
        end = min(frontier.end, (until or {}).get(partition, frontier.end))
        if start < end:
            found.append(
                OffsetRange(
                    *partition, start, end, frontier.leader_epoch, facts.topic_text(partition.topic)
                )
            )
    return tuple(found)


def batches(ranges: Sequence[OffsetRange], rows: int) -> list[tuple[OffsetRange, ...]]:
    """Cut ranges into commits of about so many offsets, each going on where the last one ended."""
    share = max(1, rows // max(1, len(ranges)))
    left = list(ranges)
    found = []
    while left:
        found.append(tuple(each._replace(end=min(each.end, each.start + share)) for each in left))
        left = [
            each._replace(start=each.start + share)
            for each in left
            if each.start + share < each.end
        ]
    return found
