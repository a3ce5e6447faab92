"""The settings of a member of a share group. Knows no names of theirs in files."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

from strandline.client.arguments import check_name
from strandline.client.backoff import (
    RETRY_BACKOFF_MAX_MS,
    RETRY_BACKOFF_MS,
    ExponentialBackoff,
)
from strandline.client.router import Coordinated, CoordinatorKey
from strandline.errors import InvalidSetting

IMPLICIT: Final = "implicit"
EXPLICIT: Final = "explicit"
MODES: Final = (IMPLICIT, EXPLICIT)
ACQUIRE_MODES: Final = {"batch_optimized": 0, "record_limit": 1}
"""The values of `share.acquire.mode`, with their numbers in requests (KIP-1206)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareSettings:
    """Times in milliseconds, sizes in bytes; defaults are Kafka's."""

    group: str
    mode: str = IMPLICIT
    """One of `MODES`: whether the next call accepts what `poll` returned, or the program says what
    became of each record."""
    acquire_mode: int = ACQUIRE_MODES["batch_optimized"]
    """Whether brokers hand out whole batches, or not more records than asked for."""
    max_poll_records: int = 500
    min_bytes: int = 1
    max_bytes: int = 50 * 1024 * 1024
    max_wait_ms: int = 500
    rack: str = ""
    checks_crc: bool = True
    request_timeout_ms: int = 30_000
    operation_timeout_ms: int = 60_000
    """For how long an acknowledgement is tried again."""
    retry_backoff_ms: int = RETRY_BACKOFF_MS
    retry_backoff_max_ms: int = RETRY_BACKOFF_MAX_MS

    def __post_init__(self) -> None:
        check_name("group.id", self.group)
        if self.max_poll_records < 1:
            raise InvalidSetting("max.poll.records", "max.poll.records must be 1 at least.")

    @property
    def coordinator_key(self) -> CoordinatorKey:
        """Whose coordinator a member asks."""
        return CoordinatorKey(Coordinated.GROUP, self.group)

    def backoff(self, random: Random) -> ExponentialBackoff:
        """Growing waits of something that is tried again."""
        return ExponentialBackoff(random, self.retry_backoff_ms, self.retry_backoff_max_ms)
