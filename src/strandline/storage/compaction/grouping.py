"""Which neighbouring segments become one: what compaction leaves is small, and files should not be.

This file knows sizes and the limits of a segment (Kafka's Cleaner.groupSegmentsBySize). It must not
know files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

SPAN_MAX: Final = 2**31 - 1
"""An index entry has 31 bits for the distance of an offset from its segment's base."""


class SegmentSizes(NamedTuple):
    """A segment as the grouping sees it. Sizes in bytes."""

    base_offset: int
    log: int
    offset_index: int
    time_index: int


def group_segments(
    segments: Sequence[SegmentSizes],
    *,
    segment_bytes_max: int,
    index_bytes_max: int,
    upper_bound: int,
) -> list[list[SegmentSizes]]:
    """Neighbours in groups that fit into one segment each before anything is dropped from them.

    A segment that is too large alone is a group of its own. `upper_bound` is where the last ends.
    """
    groups: list[list[SegmentSizes]] = []
    ends = [segment.base_offset for segment in segments[1:]] + [upper_bound]
    for segment, end in zip(segments, ends, strict=True):
        group = groups[-1] if groups else None
        if group is not None and _fits(
            [*group, segment], segment_bytes_max, index_bytes_max, end - 1
        ):
            group.append(segment)
        else:
            groups.append([segment])
    return groups


def _fits(
    group: Sequence[SegmentSizes], segment_bytes_max: int, index_bytes_max: int, last_offset: int
) -> bool:
    return (
        sum(segment.log for segment in group) <= segment_bytes_max
        and sum(segment.offset_index for segment in group) <= index_bytes_max
        and sum(segment.time_index for segment in group) <= index_bytes_max
        # An empty segment adds no offsets, however far away it is.
        and (group[-1].log == 0 or last_offset - group[0].base_offset <= SPAN_MAX)
    )
