"""What the transaction coordinator can be told to do differently, under Kafka's names."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """The coordinator's settings; each default is that of Kafka 4.3."""

    timeout_max_ms: int = 15 * 60_000
    """`transaction.max.timeout.ms`."""
    abort_interval_ms: int = 10_000
    """`transaction.abort.timed.out.transaction.cleanup.interval.ms`."""
    id_expiration_ms: int = 7 * 24 * 3_600_000
    """`transactional.id.expiration.ms`."""
    expiry_interval_ms: int = 3_600_000
    """`transaction.remove.expired.transaction.cleanup.interval.ms`."""
    join_wait_max_ms: int = 100
    """`add.partitions.to.txn.retry.backoff.max.ms`: how long partitions that are to join the next
    transaction of a producer wait for the end of its last one. 0: they are refused, as in Kafka."""
    append_timeout_ms: int = 30_000
    """`request.timeout.ms`: how long an append may take before its request is refused."""
    retry_ms: int = 100
    """How long after a refused append the end of a transaction is written again."""
    aborted_per_turn: int = 200
    """How many transactions are timed out at once; others are served in between. Kafka does all."""
    expired_per_turn: int = 1_000
    """How many ids are forgotten at once; others are served in between. Kafka forgets all."""
