"""Making the plan for one round of compaction from a log as it is now.

This file knows what of a log a round must be told, since it runs without the log.
"""

from __future__ import annotations

from typing import Final

from strandline.storage.compaction.bounds import CleanableRange
from strandline.storage.compaction.plan import (
    CleanerSettings,
    CleaningPlan,
    LiveProducer,
    SegmentToClean,
)
from strandline.storage.log import Log
from strandline.storage.transaction_index import AbortedTransaction
from strandline.types import Offset

SECRET_BYTES: Final = 16


def plan_cleaning(
    log: Log, found: CleanableRange, settings: CleanerSettings, now_ms: int
) -> CleaningPlan | None:
    """The plan to compact what `found` says is cleanable; None when that is nothing.

    Draws the secret of the round from the log's random numbers. Raises `StorageError`.
    """
    if found.cleanable_bytes == 0:
        return None
    upper_bound = found.first_uncleanable
    below = [segment for segment in log.segments.all if segment.base_offset < upper_bound]
    synced = log.segments.index_of(log.recovery_point)
    return CleaningPlan(
        topic_partition=log.topic_partition,
        directory=log.directory,
        truncations=log.offsets.truncations,
        now_ms=now_ms,
        delete_retention_ms=log.config.delete_retention_ms,
        segment_bytes_max=log.config.segment_bytes,
        index_bytes_max=log.config.segment_index_bytes,
        index_interval_bytes=log.config.index_interval_bytes,
        first_dirty=found.first_dirty,
        upper_bound=upper_bound,
        segments=tuple(SegmentToClean(s.base_offset, s.size) for s in below),
        unsynced=tuple(segment.base_offset for segment in below[synced:]),
        aborted_behind=_aborted_behind(log, upper_bound),
        producers=tuple(
            LiveProducer(producer_id, entry.last_offset, entry.epoch)
            for producer_id, entry in sorted(log.producers.active.items())
        ),
        settings=settings,
        secret=log.random.randbytes(SECRET_BYTES),
    )


def _aborted_behind(log: Log, upper_bound: Offset) -> tuple[AbortedTransaction, ...]:
    found: list[AbortedTransaction] = []
    for segment in log.segments.since(upper_bound):
        search = segment.transaction_index.collect_aborted(Offset(0), upper_bound)
        found += search.transactions
        if search.complete:
            break
    return tuple(found)
