"""How much of what is there one batch of a stream takes. Numbers in, numbers out."""

from __future__ import annotations

from collections.abc import Mapping

from strandline.types import TopicPartition


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
