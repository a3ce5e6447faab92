"""The controller's decisions: made by the real ones, on an image of three brokers and a partition.

This file knows how a `World` becomes an image, and an operation on the store a `World` again. It
decides nothing itself. Which replica the controller prefers hangs on the order of the assignment;
every replica is tried as the first one, so that the names of the brokers do not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from strandline.cluster.controller import (
    ElectionKind,
    InSyncProposal,
    alter_partitions,
    elect_leaders,
)
from strandline.cluster.controller.partition_repair import Choice, repaired
from strandline.cluster.controller.partition_repair import Rules as TopicRules
from strandline.cluster.controller.standings import Brokers
from strandline.cluster.image import (
    BrokerImage,
    ClusterImage,
    PartitionImage,
    TopicImage,
    Versioned,
)
from strandline.cluster.store import Operation, SessionId, SetData, Zxid
from strandline.cluster.znodes import (
    BrokerNode,
    PartitionStateNode,
    TopicNode,
    state_path,
)
from strandline.errors import ErrorCode, ProtocolError
from strandline.types import BrokerId, LeaderEpoch, TopicId, TopicPartition
from tests.sim.modelcheck.rules import Bounds
from tests.sim.modelcheck.values import NO_REPLICA, Delayed, Replica

_TOPIC: Final = "t"
_KEY: Final = TopicPartition(_TOPIC, 0)
_TOPIC_ID: Final = TopicId(int=1)
_OLD_VERSION: Final = 0
_VERSION: Final = 1


class Standing(NamedTuple):
    """What the controller knows of one broker, and has written of its replica."""

    is_registered: bool
    life: int
    unbroken_since: int
    is_in_sync: bool
    is_eligible: bool
    was_complete: bool
    recorded: int

    @classmethod
    def of(cls, replica: Replica) -> Standing:
        """That of a replica. Who is not registered has no life that the controller could know."""
        is_registered = replica.is_registered
        return cls(
            is_registered,
            replica.life if is_registered else 0,
            replica.unbroken_since if is_registered else 0,
            replica.is_in_sync,
            replica.is_eligible,
            replica.was_complete,
            replica.recorded,
        )


class Known(NamedTuple):
    """All that the controller decides by."""

    standings: tuple[Standing, ...]
    leader: int
    leader_epoch: int
    is_recovering: bool


class Written(NamedTuple):
    """A new version of the partition's state."""

    leader: int
    leader_epoch: int
    is_recovering: bool
    standings: tuple[Standing, ...]
    choice: Choice | None = None


class Refused(NamedTuple):
    """A proposal that is not followed."""

    code: ErrorCode


@dataclass(frozen=True, slots=True)
class _Policy:
    """The settings of the topic."""

    bounds: Bounds
    is_deletion_enabled: bool = True

    def min_in_sync(self, topic: str) -> int:
        """See `ControllerPolicy`."""
        del topic
        return self.bounds.min_in_sync

    def unclean_allowed(self, topic: str) -> bool:
        """See `ControllerPolicy`."""
        del topic
        return self.bounds.unclean


class Controlling:
    """See the module."""

    def __init__(self, bounds: Bounds) -> None:
        self._policy = _Policy(bounds)
        self._rules = TopicRules(min(bounds.min_in_sync, bounds.replicas), bounds.unclean)

    def repairs(self, known: Known) -> list[Written]:
        """What the controller may do by itself; nothing if all is as it should be."""
        found: dict[Written, None] = {}
        for first in range(len(known.standings)):
            image = _image(known, first)
            before = image.topics[_TOPIC].partitions[0]
            repair = repaired(before, Brokers(image), self._rules)
            if repair.partition != before:
                found[_written(known, repair.partition, repair.choice)] = None
        return list(found)

    def preferred(self, known: Known, first: int) -> Written | None:
        """The election of a preferred leader that leads not yet; None if it is refused."""
        image = _image(known, first)
        decision = elect_leaders(image, ElectionKind.PREFERRED, [_KEY], self._policy)
        after = _after(image, decision.operations)
        return None if after is None else _written(known, after, Choice.COMPLETE)

    def answer(self, known: Known, proposal: Delayed) -> Written | Refused | None:
        """What becomes of a proposal; None if it is what holds already."""
        image = _image(known, 0)
        item = InSyncProposal(
            _TOPIC_ID,
            0,
            LeaderEpoch(proposal.epoch),
            _VERSION if proposal.is_current else _OLD_VERSION,
            [(BrokerId(member), life) for member, life in proposal.members],
        )
        try:
            decision = alter_partitions(
                image, BrokerId(proposal.sender), proposal.life, [item], self._policy
            )
        except ProtocolError as error:
            return Refused(error.code)
        (result,) = decision.results
        if result.refusal is not None:
            return Refused(result.refusal.code)
        after = _after(image, decision.operations)
        return None if after is None else _written(known, after, None)


def _image(known: Known, first: int) -> ClusterImage:
    count = len(known.standings)
    order = [BrokerId(first), *(BrokerId(n) for n in range(count) if n != first)]
    partition = _partition(known, order)
    state = PartitionStateNode(
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        in_sync_replicas=partition.in_sync_replicas,
        controller_epoch=1,
        is_recovering=partition.is_recovering,
        in_sync_epochs=partition.in_sync_epochs,
        elr=partition.elr,
        last_known_elr=partition.last_known_elr,
    )
    topic = TopicImage(
        TopicNode(_TOPIC, _TOPIC_ID, {0: tuple(order)}),
        0,
        {0: partition},
        {0: Versioned(state, _VERSION)},
    )
    return ClusterImage(
        controller_epoch=Versioned(1, 1),
        brokers={
            BrokerId(number): BrokerImage(
                BrokerNode(BrokerId(number), (), previous_epoch=_previous(standing)),
                Zxid(standing.life),
                SessionId(standing.life),
            )
            for number, standing in enumerate(known.standings)
            if standing.is_registered
        },
        topics={_TOPIC: topic},
        topic_names={_TOPIC_ID: _TOPIC},
    )


def _previous(standing: Standing) -> int:
    return standing.unbroken_since if standing.unbroken_since < standing.life else -1


def _partition(known: Known, order: Sequence[BrokerId]) -> PartitionImage:
    standings = known.standings
    return PartitionImage(
        replicas=tuple(order),
        in_sync_replicas=tuple(b for b in order if standings[b].is_in_sync),
        leader=BrokerId(known.leader),
        leader_epoch=LeaderEpoch(known.leader_epoch),
        partition_epoch=_VERSION,
        is_recovering=known.is_recovering,
        in_sync_epochs={b: standings[b].recorded for b in sorted(order) if standings[b].recorded},
        elr=tuple(b for b in order if standings[b].is_eligible),
        last_known_elr=tuple(b for b in order if standings[b].was_complete),
    )


def _after(image: ClusterImage, operations: Sequence[Operation]) -> PartitionImage | None:
    """The partition as the operations write it; None if they write nothing."""
    path = state_path(_KEY)
    for operation in operations:
        if isinstance(operation, SetData) and operation.path == path:
            node = PartitionStateNode.decode(_KEY, operation.data)
            return replace(
                image.topics[_TOPIC].partitions[0],
                leader=node.leader,
                leader_epoch=node.leader_epoch,
                in_sync_replicas=node.in_sync_replicas,
                is_recovering=node.is_recovering,
                in_sync_epochs=node.in_sync_epochs,
                elr=node.elr,
                last_known_elr=node.last_known_elr,
            )
    return None


def _written(known: Known, partition: PartitionImage, choice: Choice | None) -> Written:
    standings = []
    for number, standing in enumerate(known.standings):
        broker = BrokerId(number)
        standings.append(
            standing._replace(
                is_in_sync=broker in partition.in_sync_replicas,
                is_eligible=broker in partition.elr,
                was_complete=broker in partition.last_known_elr,
                recorded=partition.in_sync_epochs.get(broker, 0),
            )
        )
    leader = partition.leader if partition.has_leader else NO_REPLICA
    return Written(
        leader, partition.leader_epoch, partition.is_recovering, tuple(standings), choice
    )
