"""Ranges into tasks: a partition of a topic may be read by several tasks at once.

Tasks read a log that does not change below its end, so where it is cut makes no difference to what
is read. Spark's own source has the same two options; its rows come in the same order per task.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from strandline.lakehouse.reading.settings import OffsetRange
from strandline.lakehouse.source.options import SplitLimits


def split(ranges: Sequence[OffsetRange], splitting: SplitLimits) -> list[OffsetRange]:
    """The ranges, cut until no piece is too long and there are enough of them.

    There are fewer than asked for only if there are fewer offsets. Order is kept.
    """
    lengths = [each.end - each.start for each in ranges]
    longest = splitting.records_at_most
    pieces = [1 if longest is None else -(-length // longest) for length in lengths]
    missing = min(splitting.partitions_at_least or 0, sum(lengths)) - sum(pieces)
    # One cut more for whichever has the longest pieces, until there are enough.
    by_length = [
        (-length / count, at)
        for at, (length, count) in enumerate(zip(lengths, pieces, strict=True))
    ]
    heapq.heapify(by_length)
    for _ in range(missing):
        at = by_length[0][1]
        pieces[at] += 1
        heapq.heapreplace(by_length, (-lengths[at] / pieces[at], at))
    return [
        piece for each, count in zip(ranges, pieces, strict=True) for piece in _cut(each, count)
    ]


def _cut(whole: OffsetRange, count: int) -> Iterator[OffsetRange]:
    length = whole.end - whole.start
    edges = [whole.start + length * at // count for at in range(count + 1)]
    for start, end in pairwise(edges):
        yield replace(whole, start=start, end=end)
