"""Where each replica of a partition stands, judged by broker epochs.

A partition's state records the broker epoch under which each member of the in-sync set, or of the
eligible leaders, was last known to be complete. Compared with the registrations of now, that tells
a member that stayed from one that is gone and from one that restarted, however much later the
controller looks (KIP-380). A registration says of which earlier ones nothing was lost (KIP-966): a
record from one of these still holds. Here it is only judged; what follows from it is
`partition_repair`'s to say.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto

from strandline.cluster.image import ClusterImage, PartitionImage
from strandline.types import BrokerId, TopicPartition


class Standing(Enum):
    """What became of a complete replica since its broker epoch was recorded."""

    PRESENT = auto()
    """Still that registration (or none was recorded)."""
    CLEAN = auto()
    """Registered anew, and lost nothing in between."""
    UNCLEAN = auto()
    """Registered anew after a crash, or with an older disk: the end of its log may be lost."""
    GONE = auto()
    """Not registered, or its disk failed: what it held is as it was, for all we know."""


class Brokers:
    """The registrations of one image, ready for many questions."""

    def __init__(self, image: ClusterImage) -> None:
        brokers = image.brokers
        self._image = image
        self._offline = {b: brokers[b].offline for b in brokers if brokers[b].offline}
        self.epochs: dict[BrokerId, int] = {b: brokers[b].epoch for b in brokers}
        self._leaving = frozenset(b for b in brokers if brokers[b].is_shutting_down)
        self.serving: dict[BrokerId, int] = {
            b: epoch for b, epoch in self.epochs.items() if b not in self._leaving
        }
        """Epochs of those that are here to stay."""

    def at(self, partition: TopicPartition) -> Brokers:
        """The brokers as far as this partition is concerned.

        One whose disk failed under its replica is not there for it, and for all others it is.
        """
        if not self._offline:
            return self
        failed = {b for b, offline in self._offline.items() if partition in offline}
        if not failed:
            return self
        there = {b: broker for b, broker in self._image.brokers.items() if b not in failed}
        return Brokers(replace(self._image, brokers=there))

    def serving_at(self, topic: str, partition: int) -> dict[BrokerId, int]:
        """`at(...).serving`, for looks at all partitions: mostly no disk has failed."""
        if not self._offline:
            return self.serving
        return self.at(TopicPartition(topic, partition)).serving

    def is_alive(self, broker: BrokerId) -> bool:
        return broker in self.epochs

    def is_leaving(self, broker: BrokerId) -> bool:
        """Whether the broker is alive and shutting down."""
        return broker in self._leaving

    def standing(self, broker: BrokerId, recorded: int | None) -> Standing:
        """Where a member stands that was complete under the recorded epoch."""
        epoch = self.epochs.get(broker)
        if epoch is None:
            return Standing.GONE
        if recorded is None or recorded == epoch:
            return Standing.PRESENT
        is_whole = self._image.brokers[broker].node.holds(recorded)
        return Standing.CLEAN if is_whole else Standing.UNCLEAN


@dataclass(frozen=True, slots=True)
class Members:
    """The replicas of one partition that were complete, each list in the order of assignment."""

    in_sync: tuple[BrokerId, ...]
    eligible: tuple[BrokerId, ...]
    """Of the eligible leaders those that still count: none while enough replicas are in sync,
    since then the high watermark moves without them (KIP-966)."""
    standings: dict[BrokerId, Standing]
    """Of all of the above."""
    lossy: tuple[BrokerId, ...]
    """Were complete once and restarted uncleanly since, now or before. Who was in sync longest
    stands first: the leader, then members of the in-sync set, then those who left it earlier."""

    @classmethod
    def of(cls, partition: PartitionImage, brokers: Brokers, min_in_sync: int) -> Members:
        """Judge the partition. Who is not assigned to it does not count."""
        replicas, epochs = partition.replicas, partition.in_sync_epochs
        in_sync = tuple(b for b in replicas if b in partition.in_sync_replicas)
        eligible: tuple[BrokerId, ...] = ()
        if len(in_sync) < min_in_sync:
            eligible = tuple(b for b in replicas if b in partition.elr and b not in in_sync)
        standings = {b: brokers.standing(b, epochs.get(b)) for b in (*in_sync, *eligible)}
        known: list[BrokerId] = []
        if len(in_sync) < min_in_sync or not partition.has_leader:
            # Under a leader with enough in sync the high watermark moves without those who left.
            known = [b for b in partition.last_known_elr if b in replicas and b not in standings]
        unclean = [b for b in standings if standings[b] is Standing.UNCLEAN]
        stayed = [b for b in unclean if b in in_sync]
        lossy = [*stayed, *known, *(b for b in unclean if b not in in_sync)]
        lossy.sort(key=lambda b: b != partition.leader)
        return cls(in_sync, eligible, standings, tuple(lossy))

    @property
    def complete(self) -> tuple[BrokerId, ...]:
        """The brokers that still hold every committed record, running or not."""
        return tuple(b for b in (*self.in_sync, *self.eligible) if b not in self.lossy)

    def standing_at(
        self, candidates: Iterable[BrokerId], *standings: Standing
    ) -> tuple[BrokerId, ...]:
        """Those of the candidates that stand so."""
        return tuple(b for b in candidates if self.standings[b] in standings)

    @property
    def counting(self) -> frozenset[BrokerId]:
        """The brokers that held every committed record, whatever they lost since: by contract all
        of them but one fewer than `min.insync.replicas` may lose what they wrote."""
        return frozenset((*self.in_sync, *self.eligible, *self.lossy))
