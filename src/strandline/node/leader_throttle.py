"""How much a leader sends to followers that are catching up (KIP-73).

The rate is the broker's, `leader.replication.throttled.rate`; which replicas it is for is the
topic's, `leader.replication.throttled.replicas`. A follower that is in sync is never held back, as
it would fall out of the in-sync set, but what it is sent counts.
"""

from __future__ import annotations

from typing import Final

from strandline.config.topic import LONG_MAX
from strandline.node.replica import Replica
from strandline.node.settings import Settings
from strandline.replication.throttle import Throttle
from strandline.types import BrokerId, Instant

_ALL: Final = "*"


class LeaderThrottle:
    """The limit of one broker, over all throttled partitions that it leads."""

    __slots__ = ("_settings", "_throttle")

    def __init__(self, settings: Settings) -> None:
        broker = settings.broker
        self._settings = settings
        self._throttle = Throttle(
            None,
            samples=broker.replication_quota_window_num,
            sample_ms=broker.replication_quota_window_size_seconds * 1000,
        )

    def holds_back(self, replica: Replica, follower: BrokerId, now: Instant) -> bool:
        """Whether the follower gets no records of this partition now."""
        leader = replica.leader
        if leader is None or follower in leader.in_sync.members or not self._covers(replica):
            return False
        rate = self._settings.broker.leader_replication_throttled_rate
        self._throttle.rate_bytes_per_s = None if rate == LONG_MAX else rate
        return self._throttle.is_exceeded(now.monotonic_ms)

    def record(self, replica: Replica, size_bytes: int, now: Instant) -> None:
        """A follower is sent records of this partition."""
        if self._covers(replica):
            self._throttle.record(size_bytes, now.monotonic_ms)

    def _covers(self, replica: Replica) -> bool:
        throttled = replica.log.config.leader_replication_throttled_replicas
        if not throttled:
            return False
        name = f"{replica.topic_partition.partition}:{self._settings.broker.node_id}"
        return _ALL in throttled or name in throttled
