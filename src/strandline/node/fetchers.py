"""Which other broker every followed partition is fetched from, and by which fetcher.

One fetcher per source broker, or `num.replica.fetchers` of them, among which the partitions are
spread. This file knows who follows whom; `fetcher` knows how. A replica that begins to follow in
another leader epoch starts anew even if the leader is the same (KAFKA-7164): its log may have to
be truncated again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from strandline.errors import InvariantViolated
from strandline.node.fetcher import Fetcher, FetcherMeans
from strandline.node.fetcher_throttle import FollowerThrottle
from strandline.node.metadata import Metadata
from strandline.node.peers import Peers
from strandline.node.replica import Replica
from strandline.node.settings import Settings
from strandline.node.timers import Timers
from strandline.protocol.messages.fetch import ReplicaState
from strandline.types import BrokerId, Instant, LeaderEpoch, TopicPartition

CHANNEL: Final = "fetch"


@dataclass(frozen=True, slots=True)
class _Placed:
    """Where a replica is fetched, and for which leader epoch."""

    fetcher: Fetcher
    leader_epoch: LeaderEpoch


class Fetchers:
    """Every replica that follows is in exactly one fetcher, that of its leader (I-09)."""

    def __init__(
        self,
        broker_id: BrokerId,
        metadata: Metadata,
        settings: Settings,
        peers: Peers,
        timers: Timers,
    ) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self._settings = settings
        self._means = FetcherMeans(
            ReplicaState(replica_id=broker_id),
            settings,
            peers,
            timers,
            FollowerThrottle(broker_id, settings),
        )
        self._fetchers: dict[tuple[BrokerId, int], Fetcher] = {}
        self._placed: dict[Replica, _Placed] = {}
        self._note_own_epoch()

    def follow(self, replica: Replica, leader: BrokerId, now: Instant) -> None:
        """Fetch the replica from that leader, in the leader epoch that the replica is in."""
        at = self._place(leader, replica.topic_partition)
        placed = self._placed.get(replica)
        if placed is not None:
            if self._fetchers.get(at) is placed.fetcher:
                if placed.leader_epoch == replica.leader_epoch:
                    return
            else:
                self.forget(replica)
        fetcher = self._fetchers.get(at)
        if fetcher is None:
            channel = f"{CHANNEL}-{at[1]}"
            fetcher = self._fetchers[at] = Fetcher(leader, channel, self._means)
        self._placed[replica] = _Placed(fetcher, replica.leader_epoch)
        fetcher.follow(replica, now)

    def forget(self, replica: Replica) -> None:
        """The replica leads, has no leader, or is not kept here any more."""
        placed = self._placed.pop(replica, None)
        if placed is None:
            return
        placed.fetcher.forget(replica)
        if not len(placed.fetcher):
            placed.fetcher.close()
            self._fetchers = {
                at: fetcher
                for at, fetcher in self._fetchers.items()
                if fetcher is not placed.fetcher
            }

    def starts_saved(self, replicas: Iterable[Replica]) -> None:
        """The starts of these logs were written down: leaders that are followed are to hear of it.

        Most are with the answer that raised them. One that a full disk did not take at once, or
        that retention raised here, is not: its leader may have nothing new to tell for long.
        """
        for replica in replicas:
            placed = self._placed.get(replica)
            if placed is not None:
                placed.fetcher.start_saved(replica)

    def check(self, replica: Replica) -> None:
        """Raise `InvariantViolated` unless the replica is in exactly the fetcher of its leader, in
        its leader epoch, or in none if it follows no leader (I-09). To be asked between two turns.
        """
        if replica.is_retired:
            return
        placed = self._placed.get(replica)
        found = [fetcher for fetcher in self._fetchers.values() if fetcher.has(replica)]
        if replica.following is None:
            if placed is None and not found:
                return
            problem = f"{len(found)} fetchers fetch it, and it follows no leader"
        elif placed is None or found != [placed.fetcher]:
            problem = f"{len(found)} fetchers fetch it, and it follows broker {replica.leader_id}"
        elif (placed.fetcher.source, placed.leader_epoch) == (
            replica.leader_id,
            replica.leader_epoch,
        ):
            return
        else:
            problem = (
                f"it follows broker {replica.leader_id} in epoch {replica.leader_epoch}, but is "
                f"fetched from {placed.fetcher.source} in epoch {placed.leader_epoch}"
            )
        raise InvariantViolated(f"{problem}.", invariant="I-09")

    def brokers_changed(self, now: Instant) -> None:
        """Brokers came or went: fetch from those that can be reached now."""
        is_renewed = self._note_own_epoch()
        for fetcher in self._fetchers.values():
            if is_renewed:
                fetcher.renew(now)
            else:
                fetcher.wake(now)

    def _place(self, leader: BrokerId, partition: TopicPartition) -> tuple[BrokerId, int]:
        count = max(1, self._settings.broker.num_replica_fetchers)
        if count == 1:
            return leader, 0
        return leader, (crc32(partition.topic.encode()) + partition.partition) % count

    def _note_own_epoch(self) -> bool:
        """Say in the next fetches which registration of this broker is speaking (KIP-903).

        Returns whether it is another one than before. Without any the last is kept: leaders know
        then that this replica may not join.
        """
        own = self._metadata.image.brokers.get(self._broker_id)
        if own is None or own.epoch == self._means.identity.replica_epoch:
            return False
        self._means.identity.replica_epoch = own.epoch
        return True
