"""Settings of Kafka's ZooKeeper era, which Kafka 4 does not have any more.

A Strandline cluster of several machines keeps its metadata in ZooKeeper, so these live on here,
under their old names and with their last defaults (Kafka 3.9).
"""

from __future__ import annotations

from typing import Final

from strandline.config.allowed import ANYTHING, at_least
from strandline.config.setting import Setting
from strandline.config.tables.words import HIGH, INT, LONG, MEDIUM, SERVED, STRING

_GONE: Final = "Kafka 4 has no such setting; as in Kafka 3.9."

# This is read as a table: a setting takes two lines here instead of ten.
# fmt: off
ZOOKEEPER: Final[tuple[Setting, ...]] = (
    Setting("controlled.shutdown.max.retries", INT, 3, MEDIUM, at_least(0), SERVED,
            "How many pauses a stopping broker waits for its leadership to move.",
            deviation=_GONE),
    Setting("controlled.shutdown.retry.backoff.ms", LONG, 5000, MEDIUM, at_least(0), SERVED,
            "Length of one such pause.",
            deviation=_GONE),
    Setting("leader.imbalance.per.broker.percentage", INT, 10, HIGH, at_least(0), SERVED,
            "Share of a broker's preferred partitions that others may lead before leadership "
            "moves back.",
            deviation=_GONE),
    Setting("zookeeper.connect", STRING, None, HIGH, ANYTHING, SERVED,
            "ZooKeeper servers, host:port[,host:port...][/chroot]. Not set: metadata is kept in "
            "the first log directory, and the cluster lives in one process.",
            deviation=_GONE),
    Setting("zookeeper.connection.timeout.ms", INT, None, HIGH, at_least(1), SERVED,
            "How long a starting broker waits for a ZooKeeper server. Not set: as long as "
            "zookeeper.session.timeout.ms, but not less than 18 seconds.",
            deviation=_GONE + " There, a short session shortens it."),
    Setting("zookeeper.session.timeout.ms", INT, 18_000, HIGH, at_least(1), SERVED,
            "Silence after which the cluster takes a broker for dead.",
            deviation=_GONE),
)
# fmt: on
