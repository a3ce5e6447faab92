"""What a simulated reader knows of a partition beside its position, which the client's core has.

    unknown ── ListOffsets ──> `client.fetch_positions` ── out of range, other topic id ──> unknown

A position is only ever changed by what was read, or honestly: whenever a consumer jumps, the
history is told (`Assigned`), so that a jump that was not meant is found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from strandline.client.backoff import ExponentialBackoff
from strandline.client.fetch_positions import FetchPositions
from strandline.sim.clients.client import place_of
from strandline.types import NO_EPOCH, NO_TOPIC_ID, LeaderEpoch, TopicId, TopicPartition


class EpochEnd(NamedTuple):
    """A leader's answer to OffsetForLeaderEpoch."""

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
    core: FetchPositions
    topic_id: TopicId = NO_TOPIC_ID
    place: str = ""
    """The partition in the history."""
    epoch_end: EpochEnd | None = None
    """The last answer to a request for the end of a leader epoch."""
    is_busy: bool = False
    """Whether a request about it is on its way."""
    not_before_us: int = 0
    log_start: int = 0
    """The highest log start offset in an answer so far."""
    lost_offset: int | None = None
    """The offset that was out of range, until the log start offset is known."""
    lost_epoch: LeaderEpoch = NO_EPOCH
    """The leader epoch of who said so."""
    end: int | None = None
    """Where a reader that stops at the end will have read everything."""

    @property
    def offset(self) -> int | None:
        """The next offset to read; None: it must be looked up."""
        return self.core.offsets.get(self.at)

    @property
    def epoch(self) -> LeaderEpoch:
        """The leader epoch of the last record before the position."""
        return self.core.epoch(self.at)

    def is_other_topic(self, topic_id: TopicId) -> bool:
        """Whether the topic has been made anew; then nothing is known of it."""
        if topic_id == self.topic_id:
            return False
        self.topic_id = topic_id
        self.place = place_of(self.at, topic_id)
        self.core.drop([self.at])
        self.end = self.lost_offset = self.epoch_end = None
        self.log_start = 0
        return True
