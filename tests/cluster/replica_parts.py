"""What the miniature world of `replica_world` is made of: machines, and requests between them."""

from __future__ import annotations

from dataclasses import dataclass, field

from strandline.cluster.controller import InSyncProposal
from strandline.cluster.image import ClusterImage, PartitionImage
from strandline.cluster.store import NO_SESSION, SessionId
from strandline.cluster.znodes import NO_PREVIOUS_EPOCH
from strandline.types import NO_EPOCH, BrokerId, LeaderEpoch, TopicPartition

T0 = TopicPartition("t", 0)
Record = tuple[int, int]
"""Leader epoch and a number that is never used again."""


@dataclass(slots=True)
class Joining:
    """A follower that was proposed; the high watermark heeds it until more is known."""

    follower: BrokerId
    broker_epoch: int
    partition_epoch: int


@dataclass(frozen=True, slots=True)
class Request:
    """A proposal on its way to the controller."""

    sender: BrokerId
    broker_epoch: int
    item: InSyncProposal

    def is_from(self, broker: Broker) -> bool:
        """Whether it is what that leader waits to hear about."""
        joining = broker.joining
        return joining is not None and (
            self.broker_epoch == broker.epoch
            and self.item.leader_epoch == broker.leads_epoch
            and self.item.partition_epoch == joining.partition_epoch
            and (joining.follower, joining.broker_epoch) in self.item.members
        )


@dataclass(slots=True)
class Broker:
    """A machine: its disk, and its process while that runs."""

    broker_id: BrokerId
    log: list[Record] = field(default_factory=list)
    marker: int = NO_PREVIOUS_EPOCH
    """What the next registration names as the one since which nothing was lost."""
    honoured: set[int] = field(default_factory=set)
    """Registrations of which nothing was lost: the truth that the controller has to guess."""
    is_running: bool = False
    is_wounded: bool = False
    """Went down uncleanly, and was not in sync since."""
    session: SessionId = NO_SESSION
    epoch: int = -1
    view: ClusterImage = field(default_factory=ClusterImage)
    high_watermark: int = 0
    leads_epoch: LeaderEpoch = NO_EPOCH
    start: int = 0
    progress: dict[BrokerId, tuple[int, int]] = field(default_factory=dict)
    """Log end and broker epoch of followers, in this leader epoch."""
    joining: Joining | None = None

    @property
    def led(self) -> PartitionImage | None:
        """The partition, if this process believes to lead it."""
        partition = self.view.partition(T0)
        if partition is None or not self.is_running or partition.leader != self.broker_id:
            return None
        return partition if partition.leads_under(self.epoch) else None
