"""What the replicas of one node share: the other brokers, the settings, the wheels of the node.

A replica decides about one partition. Whatever it needs to know beyond that (who is alive, under
which registration; which lag is allowed) and whatever it sets in motion (wake-ups, timers,
proposals to the controller, syncs) it finds here.
"""

from __future__ import annotations

from typing import Protocol

from strandline.errors import InvariantViolated
from strandline.node.hosted_replica import HostedReplica
from strandline.node.ledger.keeping import Ledgers
from strandline.node.logs import Logs
from strandline.node.metadata import Metadata
from strandline.node.purgatory import Purgatory, Watched
from strandline.node.settings import Settings
from strandline.node.timers import Timers
from strandline.replication.policies import DEFAULT, Policies
from strandline.replication.progress import NO_BROKER_EPOCH
from strandline.storage.log import Log
from strandline.types import BrokerId, Instant, TopicPartition


class Proposals(Protocol):
    """The way of a leader's change of its in-sync set to the controller."""

    def propose(self, replica: HostedReplica, now: Instant) -> None:
        """Ask the controller to commit `replica.leader.in_sync.proposed`.

        The answer comes back by its `in_sync_committed` or `in_sync_refused`.
        """


class ReplicaHost:
    """See the module. `proposals` is set by the node before any partition has a second replica."""

    __slots__ = (
        "arrivals",
        "broker_id",
        "flushable",
        "ledgers",
        "logs",
        "metadata",
        "policies",
        "proposals",
        "purgatory",
        "settings",
        "timers",
    )

    def __init__(
        self,
        logs: Logs,
        metadata: Metadata,
        settings: Settings,
        purgatory: Purgatory,
        timers: Timers,
    ) -> None:
        self.broker_id = BrokerId(settings.broker.node_id)
        self.logs = logs
        self.ledgers = Ledgers(logs, metadata, settings)
        self.metadata = metadata
        self.settings = settings
        self.purgatory = purgatory
        self.timers = timers
        self.policies: Policies = DEFAULT
        self.proposals: Proposals | None = None
        self.arrivals = Watched()
        """Changes when a partition begins to be hosted here, for fetches that named it before."""
        self.flushable: dict[Log, None] = {}
        """Logs that want to be synced."""

    @property
    def lag_max_ms(self) -> int:
        """How far a follower may be behind in time and still count as in sync."""
        return self.settings.broker.replica_lag_time_max_ms

    @property
    def stopping(self) -> frozenset[BrokerId]:
        """The brokers that are shutting down; none while this one is itself.

        Of brokers that stop together none needs to leave an in-sync set: whichever is back first
        may then lead.
        """
        brokers = self.metadata.image.brokers
        found = frozenset(b for b, broker in brokers.items() if broker.is_shutting_down)
        return found if self.broker_id not in found else frozenset()

    def is_alive(self, broker_id: BrokerId) -> bool:
        """Whether the broker is registered."""
        return broker_id in self.metadata.image.brokers

    def is_there(self, broker_id: BrokerId, partition: TopicPartition) -> bool:
        """Whether the broker is registered, and the disk under its replica has not failed."""
        broker = self.metadata.image.brokers.get(broker_id)
        return broker is not None and partition not in broker.offline

    def is_stale(self, broker_id: BrokerId, broker_epoch: int) -> bool:
        """Whether the broker has registered anew since it sent a fetch with that epoch (D-04)."""
        if broker_epoch == NO_BROKER_EPOCH:
            return False
        broker = self.metadata.image.brokers.get(broker_id)
        return broker is not None and broker.epoch > broker_epoch

    def may_join(self, broker_id: BrokerId, broker_epoch: int, partition: TopicPartition) -> bool:
        """Whether a follower that fetches under that registration may be in an in-sync set.

        It must be alive, not be shutting down (KAFKA-15021, KIP-841), have the partition on a disk
        that works (KIP-112), and still be the process that fetched (KIP-903). A process that has
        not heard of its registration yet fetches without an epoch: it may be another one by the
        time at which the proposal is decided, so it has to fetch again first.
        """
        broker = self.metadata.image.brokers.get(broker_id)
        return (
            broker is not None
            and not broker.is_shutting_down
            and partition not in broker.offline
            and broker_epoch == broker.epoch
        )

    def propose(self, replica: HostedReplica, now: Instant) -> None:
        """Have the replica's change of its in-sync set proposed to the controller."""
        if self.proposals is None:
            raise InvariantViolated("A replica set has more than one member, but no controller.")
        self.proposals.propose(replica, now)
