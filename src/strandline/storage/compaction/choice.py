"""Which log to compact next: the dirtiest of those that are due.

This file knows how candidates compare. It must not know which logs a broker has.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from strandline.storage.compaction.bounds import CleanableRange, cleanable_range
from strandline.storage.log import Log
from strandline.types import Offset


class Candidate(NamedTuple):
    """A compacted log that is not being compacted, and the first dirty offset in its checkpoint."""

    log: Log
    checkpoint: Offset | None


class Choice(NamedTuple):
    """A log that is due, and what of it."""

    log: Log
    range: CleanableRange


def choose(candidates: Iterable[Candidate], now_ms: int) -> Choice | None:
    """The due log with the greatest share of cleanable bytes; None when none is due.

    Raises `StorageError`.
    """
    best: Choice | None = None
    for log, checkpoint in candidates:
        found = cleanable_range(log, checkpoint, now_ms)
        if found.due(log.config).is_now and (best is None or _key(log, found) < _key(*best)):
            best = Choice(log, found)
    return best


def _key(log: Log, found: CleanableRange) -> tuple[float, str, int]:
    # By name where the shares are equal, so that the choice does not depend on any order.
    return (-found.ratio, log.topic_partition.topic, log.topic_partition.partition)
