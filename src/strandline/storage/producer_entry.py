"""What one partition remembers about one idempotent or transactional producer.

This file is the record itself; it must not know rules (`producer_checks`) or files
(`producer_snapshot`). Batches are kept as plain tuples, since one is made for each append.
"""

from __future__ import annotations

from collections import deque
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
