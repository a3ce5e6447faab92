"""How hard a producer tries to deliver a batch."""

from __future__ import annotations

from dataclasses import dataclass

from strandline.client.backoff import RETRY_BACKOFF_MAX_MS, RETRY_BACKOFF_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducePolicy:
    """How long and how often is tried what. Times in milliseconds."""

    acks: int = -1
    repeats: bool = True
    """False: what may have reached a broker is not sent again, as with Kafka's `retries=0`."""
    batches_in_flight_max: int = 1
    """Per partition."""
    delivery_timeout_ms: int = 120_000
    topic_wait_ms: int = 3000
    """For how long a partition that the broker does not know may still appear."""
    retry_backoff_ms: int = RETRY_BACKOFF_MS
    retry_backoff_max_ms: int = RETRY_BACKOFF_MAX_MS
