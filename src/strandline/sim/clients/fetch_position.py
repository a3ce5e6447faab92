"""Where a consumer stands in each of its partitions, and what it must find out before it reads on.

    unknown ── ListOffsets ──> standing ── new leader epoch ──> doubtful ── OffsetForLeaderEpoch ──┐
       ^                          ^ └── out of range, other topic id ──> unknown                   │
       └──────────────────────────┴──────────────────── the log ends before the position (KIP-320) ┘

A position is only ever changed by what was read, or honestly: whenever a consumer jumps, the
history is told (`Assigned`), so that a jump that nobody meant is found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from strandline.client.backoff import ExponentialBackoff
from strandline.sim.clients.client import place_of
from strandline.types import NO_EPOCH, NO_TOPIC_ID, BrokerId, LeaderEpoch, TopicId, TopicPartition


class EpochEnd(NamedTuple):
    """What a leader has answered to OffsetForLeaderEpoch."""

    leader_epoch: LeaderEpoch
    """In which it leads."""
    asked: LeaderEpoch
    end: int


@dataclass(slots=True, eq=False)
class FetchPosition:
    """A consumer's place in one partition."""

    at: TopicPartition
    backoff: ExponentialBackoff
    start: int
    """Where to begin: an offset, or `LATEST` or `EARLIEST`."""
    topic_id: TopicId = NO_TOPIC_ID
    place: str = ""
    """The partition in the history."""
    offset: int | None = None
    """What is read next; None: it must be found out."""
    epoch: LeaderEpoch = NO_EPOCH
    """The leader epoch of the last record before the position."""
    checked_epoch: LeaderEpoch = NO_EPOCH
    """The leader epoch in which the position is known to be in the log."""
    epoch_end: EpochEnd | None = None
    """What the last leader said that was asked for the end of an epoch."""
    is_busy: bool = False
    """Whether a request about it is on its way."""
    not_before_us: int = 0
    replica: BrokerId | None = None
    """A follower to read from, for as long as `replica_until_us` (KIP-392)."""
    replica_until_us: int = 0
    log_start: int = 0
    """The highest start of the log that was told."""
    lost_offset: int | None = None
    """What was out of range, until it is known where the log begins."""
    lost_epoch: LeaderEpoch = NO_EPOCH
    """The leader epoch of who said so."""
    end: int | None = None
    """Where a reader that stops at the end will have read everything."""

    def is_other_topic(self, topic_id: TopicId) -> bool:
        """Whether the topic has been made anew; then nothing is known of it."""
        if topic_id == self.topic_id:
            return False
        self.topic_id = topic_id
        self.place = place_of(self.at, topic_id)
        self.offset = self.end = self.replica = self.lost_offset = None
        self.epoch = self.checked_epoch = NO_EPOCH
        self.epoch_end = None
        self.log_start = 0
        return True
