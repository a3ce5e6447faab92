"""What one round of compaction is to do, and what became of it: values that cross threads.

This file knows names and numbers only. A plan is made on the node's thread from the log as it is
then (`planner`), and carried out without the log: everything it needs of closed segments it finds
in files that no longer change, and everything that does change is copied into the plan.
"""

from __future__ import annotations

from dataclasses import dataclass

from strandline.errors import InvalidSetting
from strandline.records.compacting import SLOT_BYTES
from strandline.storage.transaction_index import AbortedTransaction
from strandline.types import Offset, TopicPartition


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
                "bytes, of which log.cleaner.io.buffer.load.factor lets it fill "
                f"{self.load_factor}: not enough for the offset of a single key.",
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
    """One round of compaction of one log. `planner` makes it, `carry_out` follows it."""

    topic_partition: TopicPartition
    directory: str
    truncations: int
    """Of the log when the plan was made: a later truncation makes it void."""
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
    truncations: int
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
