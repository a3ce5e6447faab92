"""How fast this broker may catch up with partitions that are to be slowed down (KIP-73).

Only partitions named by `follower.replication.throttled.replicas` are slowed, and only while they
lag: slowing one that is in sync would throw it out of the in-sync replicas. Their traffic is
counted in sync or not, so that the limit holds for all of it together.
"""

from __future__ import annotations

from typing import Final

from strandline.node.replica import Replica
from strandline.node.settings import Settings
from strandline.replication.throttle import Throttle
from strandline.types import BrokerId, Instant

_ALL: Final = "*"


class FollowerThrottle:
    """One limit for everything that this broker fetches."""

    def __init__(self, broker_id: BrokerId, settings: Settings) -> None:
        self._broker_id = broker_id
        self._settings = settings
        config = settings.broker
        self._throttle = Throttle(
            None,
            samples=config.replication_quota_window_num,
            sample_ms=config.replication_quota_window_size_seconds * 1000,
        )

    def record(self, replica: Replica, size_bytes: int, now: Instant) -> None:
        """Count what was fetched."""
        if replica.log.config.follower_replication_throttled_replicas and self._names(replica):
            self._throttle.record(size_bytes, now.monotonic_ms)

    def delay_ms(self, replica: Replica, *, is_in_sync: bool, now: Instant) -> int:
        """How long the partition has to wait before it is fetched again; usually 0."""
        if not replica.log.config.follower_replication_throttled_replicas or is_in_sync:
            return 0
        if not self._names(replica):
            return 0
        self._throttle.rate_bytes_per_s = self._settings.broker.follower_replication_throttled_rate
        return self._throttle.delay_ms(now.monotonic_ms)

    def _names(self, replica: Replica) -> bool:
        named = replica.log.config.follower_replication_throttled_replicas
        this = f"{replica.topic_partition.partition}:{self._broker_id}"
        return _ALL in named or this in named
