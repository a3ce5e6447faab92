"""One step of a stream: from the positions behind its last batch to those behind its next.

This file decides; it sends no requests. `facts` are what the cluster says, `losses` what becomes of
records that are not there any more.

- A partition goes on where it was, as long as the log is the one that was read: the topic has the
  same id, the log still has what was read of the epoch in which the position was taken, and it has
  not lost what comes next.
- A partition that is new begins at its earliest offset, and so does each one of a new topic.
- What a step takes is limited in proportion to what waits.
"""

from __future__ import annotations

from collections.abc import Mapping

from strandline.lakehouse.source.facts import Facts
from strandline.lakehouse.source.losses import Losses
from strandline.lakehouse.source.positions import Position, Positions
from strandline.types import TopicPartition


def next_positions(
    start: Positions, facts: Facts, losses: Losses, *, at_most: int | None
) -> Positions:
    """The end of the next batch; equal to `start` if there is nothing to read."""
    begins = begins_of(start, facts, losses)
    waiting = {
        partition: facts.ends[partition].offset - begin
        for partition, begin in begins.items()
        if facts.ends[partition].offset > begin
    }
    taken = shares(waiting, at_most)
    ids = facts.topic_ids
    at: dict[TopicPartition, Position] = {}
    for partition, begin in begins.items():
        before = start.at.get(partition)
        goes_on = (
            before is not None
            and before.offset == begin
            and start.topic_ids[partition.topic] == ids[partition.topic]
        )
        count = taken.get(partition, 0)
        if goes_on and before is not None and not count:
            at[partition] = before
        else:
            epoch = facts.ends[partition].leader_epoch
            at[partition] = Position(begin + count, epoch, None if goes_on else begin)
    topics = {partition.topic for partition in at}
    return Positions({name: each for name, each in ids.items() if name in topics}, at)


def begins_of(start: Positions, facts: Facts, losses: Losses) -> dict[TopicPartition, int]:
    """From where each partition that there is now is read, after what is lost was reported."""
    begins = dict(facts.earliest)
    for partition, position in sorted(start.at.items()):
        begin = _goes_on_at(partition, position, start, facts, losses)
        if begin is not None:
            begins[partition] = begin
    for partition, earliest in facts.earliest.items():
        name = partition.topic
        is_known_topic = name in start.topic_ids and start.topic_ids[name] == facts.topic_ids[name]
        if earliest and is_known_topic and partition not in start.at:
            losses.report(
                f"Partition {partition} is new and begins at offset {earliest}: the records before "
                "it were deleted unread."
            )
    return begins


def _goes_on_at(
    partition: TopicPartition, position: Position, start: Positions, facts: Facts, losses: Losses
) -> int | None:
    """Where it goes on; None if the partition of that topic is gone."""
    topic = facts.topics.get(partition.topic)
    if topic is None:
        losses.report(
            f"Topic '{partition.topic}' is gone: whatever came after offset {position.offset} of "
            f"partition {partition} was deleted unread."
        )
        return None
    if topic.topic_id != start.topic_ids[partition.topic]:
        losses.report(
            f"Topic '{partition.topic}' was deleted and made again: whatever the old one had after "
            f"offset {position.offset} of partition {partition} was deleted unread."
        )
        return None
    if partition not in facts.ends:
        losses.report(f"There is no partition {partition} any more.")
        return None
    kept = facts.epoch_ends.get(partition)
    end = facts.ends[partition].offset
    common = end if kept is None or kept.end_offset < 0 else kept.end_offset
    if common < position.offset and (kept is not None or position.epoch < 0):
        losses.report(
            f"Partition {partition} was read up to offset {position.offset} in leader epoch "
            f"{position.epoch}, but its log has only {common} of that: records that were read are "
            "lost, and others may have their offsets."
        )
        return common
    earliest = facts.earliest[partition]
    if position.offset < earliest:
        losses.report(
            f"Partition {partition} begins at offset {earliest}: the records from "
            f"{position.offset} on, which were to be read next, were deleted."
        )
        return earliest
    return position.offset


def shares(waiting: Mapping[TopicPartition, int], at_most: int | None) -> dict[TopicPartition, int]:
    """How many offsets to take of each partition, in proportion to how many wait there.

    At least one where any wait, so that no partition starves beside a large one; with more
    partitions than `at_most` the sum is therefore larger.
    """
    total = sum(waiting.values())
    if at_most is None or total <= at_most:
        return dict(waiting)
    return {
        partition: min(count, max(1, count * at_most // total))
        for partition, count in waiting.items()
    }
