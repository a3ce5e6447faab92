"""What one partition remembers about one idempotent or transactional producer.

This file is the record itself; it must not know rules (`producer_checks`) or files
(`producer_snapshot`). Batches are kept as plain tuples, since one is made for each append.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

from strandline.records.batch import SEQUENCE_MAX
from strandline.types import NO_OFFSET, NO_SEQUENCE, NO_TIMESTAMP, Offset, ProducerEpoch, ProducerId

BATCHES_REMEMBERED: Final = 5
"""A producer may have this many requests in flight and still be recognised (KIP-98)."""

RememberedBatch: TypeAlias = tuple[int, int, int, int]
"""(last sequence, last offset, last offset delta, max timestamp)."""


class CompletedBatch(NamedTuple):
    """A batch that was appended before: the answer to a client that sends it again."""

    first_sequence: int
    last_sequence: int
    first_offset: Offset
    last_offset: Offset
    timestamp: int


class ProducerEntry:
    """State of one producer id. Only `ProducerStates` changes it."""

    __slots__ = (
        "active_ms",
        "batches",
        "coordinator_epoch",
        "epoch",
        "in_sequence",
        "is_partial",
        "last_timestamp",
        "next_sequence",
        "producer_id",
        "transaction_first_offset",
    )

    def __init__(self, producer_id: ProducerId, epoch: ProducerEpoch) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = -1
        self.last_timestamp = -1
        self.active_ms = NO_TIMESTAMP
        """When this process noted a batch of it, by the broker's own clock."""
        self.transaction_first_offset: Offset = NO_OFFSET
        """Where its open transaction starts in this partition; `NO_OFFSET` without one."""
        self.batches: deque[RememberedBatch] = deque(maxlen=BATCHES_REMEMBERED)
        """The newest batches of the current epoch, oldest first."""
        self.next_sequence = 0
        """What the next batch of this epoch must start with. Follows from `batches`."""
        self.in_sequence = True
        """The batches follow one another, so the next one in sequence repeats none of them.
        Not so where coordinator or leader wrote sequences that no client could."""
        self.is_partial = False
        """Older batches of the current epoch may lie in the log that are not in `batches`: the
        entry comes from a snapshot, which names the last batch only."""

    def remember(self, last_sequence: int, last_offset: int, delta: int, timestamp: int) -> None:
        """Note an appended batch of the current epoch."""
        self.batches.append((last_sequence, last_offset, delta, timestamp))
        self.next_sequence = 0 if last_sequence == SEQUENCE_MAX else last_sequence + 1
        self.last_timestamp = timestamp

    def enter_epoch(self, epoch: ProducerEpoch) -> None:
        """Sequence numbers start again in a new epoch, so older batches are forgotten."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()
            self.next_sequence = 0
            self.in_sequence = True
            self.is_partial = False

    def may_repeat_unseen(self, epoch: int, first_sequence: int, last_sequence: int) -> bool:
        """Whether a batch with these sequence numbers may be in the log without being known here.

        Sequences wrap, so what is at most half their range behind the next one counts as older.
        """
        behind = (self.next_sequence - first_sequence) & SEQUENCE_MAX
        return (
            self.is_partial
            and epoch == self.epoch
            and len(self.batches) < BATCHES_REMEMBERED
            and 0 < behind <= SEQUENCE_MAX // 2
            and self.find_batch(first_sequence, last_sequence) is None
        )

    def recall(self, older: list[RememberedBatch]) -> None:
        """Put batches of the current epoch, oldest first, in front of those that are known.

        From now on the entry counts as complete, whether or not they fill it.
        """
        self.is_partial = False
        kept = [*older, *self.batches][-BATCHES_REMEMBERED:]
        self.batches = deque(kept, maxlen=BATCHES_REMEMBERED)
        self.in_sequence = self.in_sequence and all(
            first_sequence_of(later) == (earlier[0] + 1) & SEQUENCE_MAX
            for earlier, later in pairwise(kept)
        )

    def find_batch(self, first_sequence: int, last_sequence: int) -> CompletedBatch | None:
        """The remembered batch of the current epoch with exactly these sequence numbers."""
        for batch in self.batches:
            if batch[0] == last_sequence and first_sequence_of(batch) == first_sequence:
                last_offset = batch[1]
                return CompletedBatch(
                    first_sequence,
                    last_sequence,
                    Offset(last_offset - batch[2]),
                    Offset(last_offset),
                    batch[3],
                )
        return None

    @property
    def first_known_offset(self) -> Offset:
        """Where the oldest known batch starts; `NO_OFFSET` without one."""
        return Offset(self.batches[0][1] - self.batches[0][2]) if self.batches else NO_OFFSET

    @property
    def last_sequence(self) -> int:
        return self.batches[-1][0] if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> Offset:
        return Offset(self.batches[-1][1]) if self.batches else NO_OFFSET

    @property
    def has_open_transaction(self) -> bool:
        return self.transaction_first_offset >= 0

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        """Idle for too long; a producer with an open transaction never is."""
        return not self.has_open_transaction and now_ms - self.last_active_ms >= expiration_ms

    @property
    def last_active_ms(self) -> int:
        """The time from which its idleness counts.

        Clients set the timestamps of records as they like: one that copies old records is at work
        all the same, and would be unprotected from duplicates if it was forgotten (Kafka counts
        from the timestamps only).
        """
        return max(self.last_timestamp, self.active_ms)


def first_sequence_of(batch: RememberedBatch) -> int:
    """The sequence number of the batch's first record; sequences wrap from 2^31-1 to 0."""
    return (batch[0] - batch[2]) & SEQUENCE_MAX
