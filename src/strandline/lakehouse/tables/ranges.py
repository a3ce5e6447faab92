"""Whether a batch may follow what a table has, and which part of it is new.

Theory: the table's frontier decides, not the checkpoint that sent the batch. What lies below it is
there already and is cut off; what begins beyond it would leave a hole, and is refused unless the
hole was declared as lost. A log that is not the one the table was filled from (its topic id
differs, or its leader epoch went back) is refused, since its offsets mean other records. Pure: no
table, no files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from strandline.lakehouse.tables.errors import BadTable, RangeGap, RangeOverlap, TopicRecreated
from strandline.lakehouse.tables.identity import BatchIdentity, Frontier, OffsetRange
from strandline.lakehouse.tables.written import TaskWrite
from strandline.types import TopicPartition

Frontiers = Callable[[TopicPartition], Frontier | None]


def new_ranges(identity: BatchIdentity, frontiers: Frontiers) -> tuple[OffsetRange, ...]:
    """The parts of the batch's ranges that the table does not have.

    A declared loss at the frontier is taken into the range that follows it, so that ranges in a
    table's history are without holes. Raises TopicRecreated or RangeGap.
    """
    lost = {item.topic_partition: item for item in identity.lost}
    found = []
    for item in identity.ranges:
        frontier = frontiers(item.topic_partition)
        if frontier is None:
            gone = lost.get(item.topic_partition)
            start = gone.start if gone is not None and gone.end == item.start else item.start
            found.append(item._replace(start=start))
            continue
        _check_same_log(item, frontier)
        if item.end <= frontier.end:
            continue
        if item.start > frontier.end:
            _check_declared(item, frontier, lost.get(item.topic_partition))
        found.append(item._replace(start=frontier.end))
    return tuple(found)


def lost_now(identity: BatchIdentity, ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """The declared losses that lie in the new ranges; the others are in the table already."""
    new = {item.topic_partition: item for item in ranges}
    found = []
    for gone in identity.lost:
        within = new.get(gone.topic_partition)
        if within is not None and gone.end > within.start:
            found.append(gone._replace(start=max(gone.start, within.start)))
    return tuple(found)


def check_files(ranges: Iterable[OffsetRange], writes: Sequence[TaskWrite]) -> None:
    """Every row that was written must lie in a new range; raises RangeOverlap or BadTable."""
    new = {item.topic_partition: item for item in ranges}
    for write in writes:
        for file in (*write.files, *write.dead_letters, *write.late):
            for rows in file.offsets:
                place = TopicPartition(rows.topic, rows.partition)
                within = new.get(place)
                if within is None or rows.least < within.start:
                    raise RangeOverlap(
                        f"The file {file.path} has offset {rows.least} of {place}, which the table "
                        "has already; the batch must be written again."
                    )
                if rows.greatest >= within.end:
                    raise BadTable(
                        f"The file {file.path} has offset {rows.greatest} of {place}, "
                        f"which is not in the batch's {within}."
                    )


def _check_same_log(item: OffsetRange, frontier: Frontier) -> None:
    place = item.topic_partition
    if item.topic_id and frontier.topic_id and item.topic_id != frontier.topic_id:
        raise TopicRecreated(
            f"The topic {item.topic} was deleted and created again: the table has offsets up to "
            f"{frontier.end} of {place} of the topic {frontier.topic_id}, "
            f"and the batch is of {item.topic_id}. Fill a new table from the new topic."
        )
    if 0 <= item.leader_epoch < frontier.leader_epoch and item.end > frontier.end:
        raise TopicRecreated(
            f"The log of {place} is not the one that the table was filled from: its leader epoch "
            f"at offset {item.end} is {item.leader_epoch}, and the table has epoch "
            f"{frontier.leader_epoch} at offset {frontier.end}."
        )


def _check_declared(item: OffsetRange, frontier: Frontier, gone: OffsetRange | None) -> None:
    if gone is None or gone.start > frontier.end or gone.end != item.start:
        raise RangeGap(
            f"The batch begins at offset {item.start} of {item.topic_partition}, but the table "
            f"ends at {frontier.end}: {item.start - frontier.end} offsets would be missing."
        )
