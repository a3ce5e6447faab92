"""The controller of a scenario: the real decisions, each made when the script says so.

No broker is the controller: a lock of the script's own keeps them from standing for election. The
decisions are those of `strandline.cluster.controller`, made from the metadata as they truly are;
rules that were given up are what the policy answers. Leaders' proposals wait here until the script
has them answered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final, NamedTuple

from strandline.cluster.controller import (
    InSyncProposal,
    PartitionAltered,
    alter_partitions,
    become_controller,
    bootstrap,
    reconcile,
)
from strandline.cluster.controller.state_writes import StateWrites, state_of
from strandline.cluster.controller.topic_writes import config_write, topic_creation
from strandline.cluster.image import ClusterImage, PartitionImage
from strandline.cluster.store import Operation, SessionId
from strandline.cluster.znodes import ConfigResource, ResourceKind, TopicNode
from strandline.errors import ErrorCode, InvariantViolated
from strandline.node.hosted_replica import HostedReplica
from strandline.node.in_sync_changes import InSyncChanges
from strandline.node.node import Node
from strandline.replication.in_sync import InSyncState
from strandline.sim.scenarios.replica import (
    PARTITION,
    TOPIC_ID,
    Replica,
    broker_id_of,
    name_of,
    names_of,
)
from strandline.sim.store import Store
from strandline.types import BrokerId, Instant, LeaderEpoch

_ID: Final = BrokerId(1000)
_SESSION: Final = SessionId(1_000_000)
_ROUNDS_MAX: Final = 10
_UNKNOWN_EPOCH: Final = -1


@dataclass(frozen=True, slots=True)
class Rules:
    """Which elections and writes are allowed; what the real decisions ask (`ControllerPolicy`)."""

    min_in_sync_replicas: int = 1
    has_eligible: bool = True
    """Eligible leader replicas (KIP-966); without them the last member in sync leads again,
    whatever it has lost."""
    allows_unclean: bool = False
    writes_directly: bool = False
    """Leaders write the state themselves, as before KIP-497: no broker epoch is compared."""

    is_deletion_enabled = False

    def min_in_sync(self, topic: str) -> int:
        """See `ControllerPolicy`. No set is too small for those who know no eligible replicas."""
        del topic
        return self.min_in_sync_replicas if self.has_eligible else 1

    def unclean_allowed(self, topic: str) -> bool:
        """See `ControllerPolicy`."""
        del topic
        return self.allows_unclean


class State(NamedTuple):
    """The partition's state as it is in the store; `partition_epoch` is its version."""

    replicas: str
    leader: str | None
    in_sync: str
    eligible: str
    leader_epoch: int
    partition_epoch: int

    @classmethod
    def of(cls, partition: PartitionImage) -> State:
        """What a script says of it."""
        return cls(
            "".join(map(name_of, partition.replicas)),
            name_of(partition.leader) if partition.has_leader else None,
            "".join(map(name_of, partition.in_sync_replicas)),
            "".join(map(name_of, partition.elr)),
            partition.leader_epoch,
            partition.partition_epoch,
        )

    def __str__(self) -> str:
        eligible = f", eligible {self.eligible}" if self.eligible else ""
        return (
            f"leader {self.leader or 'none'}, epoch {self.leader_epoch}, "
            f"in sync {self.in_sync or 'none'}{eligible}, version {self.partition_epoch}"
        )


class Controller:
    """See the module. Every method writes to the store at once; brokers hear of it as they can."""

    def __init__(self, store: Store, rules: Rules) -> None:
        self._store = store
        self.rules = rules
        existing = {node.path for node in store.tree.view().nodes}
        self._write(bootstrap(existing, random=Random(0)))
        self._write(become_controller(self._image, _ID, now_ms=0))

    @property
    def _image(self) -> ClusterImage:
        return self._store.image

    @property
    def partition(self) -> PartitionImage:
        """The partition as it truly is."""
        found = self._image.partition(PARTITION)
        if found is None:
            raise InvariantViolated("The scenario's topic was not made yet.")
        return found

    def _write(self, operations: Sequence[Operation]) -> None:
        if operations:
            self._store.apply(operations, _SESSION)

    def _put(self, partition: PartitionImage) -> None:
        writes = StateWrites(self._image)
        writes.put(PARTITION, partition)
        self._write(writes.operations())

    # -- What a script decides ---------------------------------------------------------------

    def create(self, replicas: str, in_sync: str, settings: Mapping[str, str]) -> None:
        """Make the topic, which has these settings: the first replica leads."""
        assigned = tuple(map(broker_id_of, replicas))
        members = tuple(map(broker_id_of, in_sync))
        state = PartitionImage(
            assigned,
            members,
            assigned[0],
            LeaderEpoch(0),
            in_sync_epochs={each: self._image.brokers[each].epoch for each in sorted(members)},
        )
        node = TopicNode(PARTITION.topic, TOPIC_ID, {PARTITION.partition: assigned})
        overrides = {
            "file.delete.delay.ms": "0",
            "min.insync.replicas": str(self.rules.min_in_sync_replicas),
            **settings,
        }
        resource = ConfigResource(ResourceKind.TOPIC, PARTITION.topic)
        self._write(
            [
                *config_write(self._image, resource, overrides),
                *topic_creation(node, {PARTITION.partition: state_of(state, controller_epoch=1)}),
            ]
        )

    def elect(self, name: str, leader_epoch: int, in_sync: str, *, is_unclean: bool) -> None:
        """Write a state that the script decides on."""
        before = self.partition
        members = tuple(map(broker_id_of, in_sync)) or before.in_sync_replicas
        known = {each: broker.epoch for each, broker in self._image.brokers.items()}
        epochs = {**before.in_sync_epochs, **known}
        self._put(
            replace(
                before,
                leader=broker_id_of(name),
                leader_epoch=LeaderEpoch(leader_epoch),
                in_sync_replicas=members,
                elr=(),
                last_known_elr=(),
                is_recovering=is_unclean,
                in_sync_epochs={each: epochs[each] for each in sorted(members) if each in epochs},
            )
        )

    def prefer(self, name: str) -> None:
        """Move leadership to a member of the in-sync set that has not restarted since."""
        before, broker_id = self.partition, broker_id_of(name)
        broker = self._image.brokers.get(broker_id)
        if broker is None or broker_id == before.leader:
            return
        if before.in_sync_epochs.get(broker_id) == broker.epoch and (
            broker_id in before.in_sync_replicas
        ):
            epoch = LeaderEpoch(before.leader_epoch + 1)
            self._put(replace(before, leader=broker_id, leader_epoch=epoch))

    def reassign(self, names: str) -> None:
        """The partition is now assigned to these brokers; the leader stays."""
        before = self.partition
        replicas = tuple(map(broker_id_of, names))
        members = tuple(each for each in replicas if each in before.in_sync_replicas)
        self._put(replace(before, replicas=replicas, in_sync_replicas=members))

    def set_min_in_sync(self, minimum: int) -> None:
        """`min.insync.replicas` of the topic changes."""
        self.rules = replace(self.rules, min_in_sync_replicas=minimum)
        resource = ConfigResource(ResourceKind.TOPIC, PARTITION.topic)
        overrides = {**self._image.overrides(resource), "min.insync.replicas": str(minimum)}
        self._write(config_write(self._image, resource, overrides))

    # -- What the real one decides -----------------------------------------------------------

    def run(self) -> bool:
        """Look at who is registered, and write what follows; whether anything did."""
        for number in range(_ROUNDS_MAX):
            operations = reconcile(self._image, self.rules).operations
            if not operations:
                return number > 0
            self._write(operations)
        raise InvariantViolated("The controller never comes to rest.")

    def alter(
        self, replica: Replica, proposals: Sequence[InSyncProposal]
    ) -> tuple[PartitionAltered, ...]:
        """Decide about the in-sync set that a leader proposes. Raises STALE_BROKER_EPOCH."""
        if self.rules.writes_directly:
            proposals = [
                replace(
                    each, members=[(member, self._epoch_of(member)) for member, _ in each.members]
                )
                for each in proposals
            ]
        epoch = replica.machine.node.membership.broker_epoch
        decision = alter_partitions(self._image, replica.broker_id, epoch, proposals, self.rules)
        self._write(decision.operations)
        return decision.results

    def _epoch_of(self, member: BrokerId) -> int:
        """That of whatever process is registered now: none is compared then."""
        broker = self._image.brokers.get(member)
        return _UNKNOWN_EPOCH if broker is None else broker.epoch


class HeldProposals(InSyncChanges):
    """The way of a node's proposals to the controller: they go when the script says so."""

    def __init__(self, node: Node, say: Callable[[str], None]) -> None:
        """`say` is told what the leader wants, in words."""
        super().__init__(
            node.metadata,
            node.settings,
            node.membership,
            node.controller_loop,
            node.peers,
            node.timers,
        )
        self._say = say
        self._said: InSyncState | None = None

    def propose(self, replica: HostedReplica, now: Instant) -> None:
        """See `InSyncChanges`."""
        super().propose(replica, now)
        leader = replica.leader
        if leader is not None and leader.in_sync is not self._said:
            self._said = leader.in_sync
            proposed, members = names_of(leader.in_sync.proposed), names_of(leader.in_sync.members)
            name = name_of(leader.broker_id)
            self._say(f"{name} proposes in sync {proposed} instead of {members}")

    def act(self, now: Instant) -> None:
        """Nothing goes out by itself."""

    def take(self) -> list[InSyncProposal]:
        """What is proposed; `answered` has to follow."""
        return self._take()

    def answered(self, answer: tuple[PartitionAltered, ...] | ErrorCode, now: Instant) -> None:
        """The controller's answer arrives; of a code for the whole request the outcome is open."""
        if isinstance(answer, ErrorCode):
            self._failed(answer.name, now)
        else:
            self._answered(answer, now)
