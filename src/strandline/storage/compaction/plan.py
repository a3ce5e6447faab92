"""What one round of compaction is to do, and what became of it: values that cross threads.

This file knows names and numbers only. A plan is made on the node's thread from the log as it is
then, and carried out without the log: everything it needs of closed segments it finds in files that
no longer change, and everything that does change is copied into the plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from strandline.errors import InvalidSetting
from strandline.records.compacting import SLOT_BYTES
from strandline.storage.compaction.bounds import CleanableRange
from strandline.storage.transaction_index import AbortedTransaction
from strandline.types import Offset, TopicPartition

if TYPE_CHECKING:
    from strandline.storage.log_state import LogState

SECRET_BYTES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerSettings:
    """What one cleaner may use; the defaults are Kafka's for a single thread."""

    dedupe_buffer_bytes: int = 134_217_728
    """`log.cleaner.dedupe.buffer.size` divided by `log.cleaner.threads`."""
    load_factor: float = 0.9
    """`log.cleaner.io.buffer.load.factor`."""
    io_buffer_bytes: int = 524_288
    """`log.cleaner.io.buffer.size` divided by `log.cleaner.threads`; half is to read with."""

    def __post_init__(self) -> None:
        if int(self.dedupe_buffer_bytes // SLOT_BYTES * self.load_factor) <= 1:
            raise InvalidSetting(
                "log.cleaner.dedupe.buffer.size",
                f"log.cleaner.dedupe.buffer.size gives each cleaner {self.dedupe_buffer_bytes} "
                f"bytes, which is not enough for the offset of a single key.",
            )


@dataclass(frozen=True, slots=True)
class SegmentToClean:
    """A closed segment as the plan found it."""

    base_offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class LiveProducer:
    """A producer whose last batch must not disappear."""

    producer_id: int
    last_offset: int
    """Of its last record, or -1 when it has written none in its epoch."""
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningPlan:
    """One round of compaction of one log. `plan_cleaning` makes it, `carry_out` follows it."""

    topic_partition: TopicPartition
    directory: str
    cuts: int
    """How often the log had been cut when the plan was made: a later cut makes it void."""
    now_ms: int
    delete_retention_ms: int
    segment_bytes_max: int
    index_bytes_max: int
    index_interval_bytes: int
    first_dirty: Offset
    upper_bound: Offset
    segments: tuple[SegmentToClean, ...]
    """All segments below `upper_bound`, oldest first."""
    unsynced: tuple[int, ...]
    """Base offsets of those that may not be on disk yet."""
    aborted_behind: tuple[AbortedTransaction, ...]
    """Transactions with records in these segments whose abort markers come after them."""
    producers: tuple[LiveProducer, ...]
    """In increasing order of their ids."""
    settings: CleanerSettings
    secret: bytes
    """Keys the hash of this round."""

    @property
    def bytes_to_read(self) -> int:
        """How much the round reads if the map has room for all keys, for showing progress."""
        ends = [s.base_offset for s in self.segments[1:]] + [self.upper_bound]
        return sum(
            segment.size_bytes * (2 if end > self.first_dirty else 1)
            for segment, end in zip(self.segments, ends, strict=True)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningStats:
    """What a round has done so far."""

    bytes_mapped: int = 0
    bytes_read: int = 0
    """For copying, of segments with a total of so many bytes."""
    bytes_written: int = 0
    records_mapped: int = 0
    keys: int = 0
    map_is_full: bool = False
    """The round ended early, because the map had no room for more keys."""
    records_read: int = 0
    records_kept: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningResult:
    """One new segment, whole and durable under its temporary names, and what it stands for."""

    topic_partition: TopicPartition
    directory: str
    cuts: int
    base_offset: int
    replaced: tuple[int, ...]
    """Base offsets of the segments whose place it takes; the first is its own."""
    size_bytes: int
    stats: CleaningStats
    cleaned_to: Offset | None
    """In the last result of a round: the first dirty offset of the next."""

    @property
    def is_last(self) -> bool:
        return self.cleaned_to is not None


def plan_cleaning(
    log: LogState, found: CleanableRange, settings: CleanerSettings, now_ms: int
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
        cuts=log.cuts,
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


def _aborted_behind(log: LogState, upper_bound: Offset) -> tuple[AbortedTransaction, ...]:
    found: list[AbortedTransaction] = []
    for segment in log.segments.since(upper_bound):
        search = segment.transaction_index.collect_aborted(Offset(0), upper_bound)
        found += search.transactions
        if search.complete:
            break
    return tuple(found)
