"""What passes between clients, leaders and followers of a scenario, as values.

This file knows the fields. Nothing here decides.
"""

from __future__ import annotations

from dataclasses import dataclass

from strandline.replication.follower import FetchAnswer
from strandline.sim.scenarios.replica import Replica
from strandline.types import LeaderEpoch, Offset


@dataclass(frozen=True, slots=True)
class Fetch:
    """A follower's fetch request for the one partition."""

    follower: str
    offset: Offset
    leader_epoch: LeaderEpoch
    last_fetched_epoch: LeaderEpoch
    log_start_offset: Offset
    broker_epoch: int
    one_batch: bool


@dataclass(frozen=True, slots=True)
class Reply:
    """What the leader answered it."""

    fetch: Fetch
    answer: FetchAnswer
    records: bytes


@dataclass(slots=True)
class Produce:
    """A write that waits for the high watermark."""

    value: str
    leader: Replica
    base_offset: Offset
    required: Offset
    deadline_ms: int | None
    is_duplicate: bool


@dataclass(frozen=True, slots=True)
class Write:
    """What a producer sends besides its values."""

    acks: str = "all"
    timeout_ms: int | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    sequence: int = -1
    is_transactional: bool = False
    loses_reply: bool = False
