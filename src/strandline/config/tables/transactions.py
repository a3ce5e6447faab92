"""Producer identities and transactions."""

from __future__ import annotations

from typing import Final

from strandline.config.allowed import ANYTHING, at_least
from strandline.config.setting import Setting
from strandline.config.tables.words import (
    BOOLEAN,
    CLUSTER_WIDE,
    HIGH,
    INT,
    LOW,
    NO_EFFECT,
    REFUSED,
    SERVED,
    SHORT,
)

# This is read as a table: a setting takes two lines here instead of ten.
# fmt: off
TRANSACTIONS: Final[tuple[Setting, ...]] = (
    Setting("add.partitions.to.txn.retry.backoff.max.ms", INT, 100, HIGH, at_least(0), NO_EFFECT,
            "How long the broker retries to add a partition to a transaction."),
    Setting("add.partitions.to.txn.retry.backoff.ms", INT, 20, HIGH, at_least(1), NO_EFFECT,
            "Pause between those attempts."),
    Setting("producer.id.expiration.check.interval.ms", INT, 600_000, LOW, at_least(1), SERVED,
            "How often idle producer ids are looked for.", internal=True),
    Setting("producer.id.expiration.ms", INT, 86_400_000, LOW, at_least(1), SERVED,
            "Idle time after which a partition forgets a producer id.", update=CLUSTER_WIDE),
    Setting("transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, 10_000, LOW,
            at_least(1), NO_EFFECT,
            "How often transactions past their timeout are looked for."),
    Setting("transaction.max.timeout.ms", INT, 900_000, HIGH, at_least(1), NO_EFFECT,
            "Longest transaction timeout that a producer may ask for."),
    Setting("transaction.partition.verification.enable", BOOLEAN, True, LOW, ANYTHING, NO_EFFECT,
            "Whether a partition must be part of the transaction that writes to it.",
            update=CLUSTER_WIDE),
    Setting("transaction.remove.expired.transaction.cleanup.interval.ms", INT, 3_600_000, LOW,
            at_least(1), NO_EFFECT,
            "How often expired transactional ids are looked for."),
    Setting("transaction.state.log.load.buffer.size", INT, 5_242_880, HIGH, at_least(1), NO_EFFECT,
            "Bytes read at once when transaction state is loaded."),
    Setting("transaction.state.log.min.isr", INT, 2, HIGH, at_least(1), NO_EFFECT,
            "min.insync.replicas of __transaction_state."),
    Setting("transaction.state.log.num.partitions", INT, 50, HIGH, at_least(1), NO_EFFECT,
            "Partitions of __transaction_state; never change it once the topic exists."),
    Setting("transaction.state.log.replication.factor", SHORT, 3, HIGH, at_least(1), NO_EFFECT,
            "Replicas of __transaction_state."),
    Setting("transaction.state.log.segment.bytes", INT, 104_857_600, HIGH, at_least(1), NO_EFFECT,
            "Segment size of __transaction_state."),
    Setting("transaction.two.phase.commit.enable", BOOLEAN, False, LOW, ANYTHING, REFUSED,
            "Two-phase commit with an external coordinator."),
    Setting("transactional.id.expiration.ms", INT, 604_800_000, HIGH, at_least(1), NO_EFFECT,
            "Idle time after which a transactional id is forgotten."),
)
# fmt: on
