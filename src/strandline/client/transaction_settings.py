"""How a transactional producer behaves. Knows no request."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

from strandline.client.backoff import (
    RETRY_BACKOFF_MAX_MS,
    RETRY_BACKOFF_MS,
    ExponentialBackoff,
)
from strandline.client.router import Coordinated, CoordinatorKey

TRANSACTION_TIMEOUT_MS: Final = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    """Times in milliseconds; defaults are Kafka's."""

    transactional_id: str
    """Of all producers with it the one that began last may write."""
    timeout_ms: int = TRANSACTION_TIMEOUT_MS
    """The coordinator aborts a transaction that is open for longer, and fences its producer."""
    request_timeout_ms: int = 30_000
    retry_backoff_ms: int = RETRY_BACKOFF_MS
    retry_backoff_max_ms: int = RETRY_BACKOFF_MAX_MS

    @property
    def coordinator_key(self) -> CoordinatorKey:
        """Whose coordinator is asked."""
        return CoordinatorKey(Coordinated.TRANSACTIONAL_ID, self.transactional_id)

    def backoff(self, random: Random) -> ExponentialBackoff:
        """Growing waits of something that is tried again."""
        return ExponentialBackoff(random, self.retry_backoff_ms, self.retry_backoff_max_ms)
