"""The decision about in-sync sets that leaders propose (AlterPartition: KIP-497, 841, 903).

A leader knows who keeps up, the controller knows who is registered: both must agree before a
replica joins. The order of the checks is part of the contract. A proposal that already came true
succeeds again, before its partition epoch is found to be old, because its answer may have been
lost (KAFKA-14144). One for the set as it is, at the version that it has, only moves the version.
A proposal with epochs that this image has not reached means that this broker
is behind, and perhaps no controller any more.

Members are named with the broker epoch under which the leader saw them fetch. So a replica that
was emptied and restarted cannot join on what its former self had fetched (KIP-903), and one that
is in the set and restarted has to leave it first: the reconciliation sees to that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from strandline.cluster.controller.decision import Decision, Refusal, duplicates
from strandline.cluster.controller.partition_repair import with_members
from strandline.cluster.controller.policy import ControllerPolicy, rules_of
from strandline.cluster.controller.standings import Brokers, Members, Standing
from strandline.cluster.controller.state_writes import StateWrites, state_of
from strandline.cluster.image import ClusterImage, PartitionImage
from strandline.errors import ErrorCode, ProtocolError
from strandline.types import NO_EPOCH, NO_LEADER, BrokerId, LeaderEpoch, TopicId, TopicPartition

UNKNOWN_BROKER_EPOCH: Final = -1
"""The leader did not see the member fetch yet. It may stay, but the epoch proves nothing."""


@dataclass(frozen=True, slots=True)
class InSyncProposal:
    """What a leader wants its in-sync set to be. Members come with their broker epochs (or -1)."""

    topic_id: TopicId
    partition: int
    leader_epoch: LeaderEpoch
    partition_epoch: int
    members: Sequence[tuple[BrokerId, int]]
    is_recovering: bool = False


@dataclass(frozen=True, slots=True)
class PartitionAltered:
    """What became of one proposal. Without a refusal the rest is the state that holds now."""

    topic_id: TopicId
    partition: int
    refusal: Refusal | None = None
    leader: BrokerId = NO_LEADER
    leader_epoch: LeaderEpoch = NO_EPOCH
    in_sync_replicas: tuple[BrokerId, ...] = ()
    partition_epoch: int = -1
    is_recovering: bool = False


def alter_partitions(
    image: ClusterImage,
    broker_id: BrokerId,
    broker_epoch: int,
    items: Sequence[InSyncProposal],
    policy: ControllerPolicy,
) -> Decision[PartitionAltered]:
    """Results in the order of the items. Raises STALE_BROKER_EPOCH for the whole request.

    Refusals: UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, NOT_CONTROLLER (the epochs of the
    request are newer), FENCED_LEADER_EPOCH, INVALID_UPDATE_VERSION, INVALID_REQUEST, and
    INELIGIBLE_REPLICA, after which nothing certainly happened.
    """
    sender = image.brokers.get(broker_id)
    if sender is None or sender.epoch != broker_epoch:
        raise ProtocolError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"Broker {broker_id} is not registered under the epoch {broker_epoch}.",
        )
    repeated = duplicates((item.topic_id, item.partition) for item in items)
    judge = _Judge(image, broker_id, policy)
    writes = StateWrites(image)
    results = []
    for item in items:
        try:
            if (item.topic_id, item.partition) in repeated:
                raise _refused(ErrorCode.INVALID_REQUEST, "The request names it more than once.")
            key, before = judge.find(item)
            after = judge.altered(key, before, item)
            # The committed set at its own version: a leader that gave up another proposal asks for
            # nothing but a new version, so that no attempt of that one can succeed any more.
            is_withdrawn = after is before and item.partition_epoch == before.partition_epoch
            is_new = state_of(after) != state_of(before)
            if is_new:
                writes.put(key, after)
            elif is_withdrawn:
                writes.put_again(key, after)
                is_new = True
            results.append(_accepted(item, after, epoch=before.partition_epoch + is_new))
        except ProtocolError as error:
            results.append(PartitionAltered(item.topic_id, item.partition, Refusal.of(error)))
    return Decision(tuple(results), writes.operations())


class _Judge:
    """The checks of one request, in their order."""

    def __init__(self, image: ClusterImage, sender: BrokerId, policy: ControllerPolicy) -> None:
        self._image = image
        self._sender = sender
        self._policy = policy
        self._brokers = Brokers(image)

    def find(self, item: InSyncProposal) -> tuple[TopicPartition, PartitionImage]:
        """The partition that is meant."""
        topic = self._image.topic_by_id(item.topic_id)
        if topic is None:
            raise _refused(ErrorCode.UNKNOWN_TOPIC_ID, "No topic has this id.")
        partition = topic.partitions.get(item.partition)
        if partition is None or partition.partition_epoch < 0:
            raise _refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic has no such partition.")
        return TopicPartition(topic.name, item.partition), partition

    def altered(
        self, key: TopicPartition, partition: PartitionImage, item: InSyncProposal
    ) -> PartitionImage:
        """The partition as proposed: the same one if it is so already. Raises why it may not."""
        self._check_leader(partition, item)
        proposed = {broker for broker, _ in item.members}
        if _is_so_already(partition, item):
            return partition
        self._check_version(partition, item)
        self._check_form(partition, item, proposed)
        rules = rules_of(self._policy, key.topic, partition)
        brokers = self._brokers.at(key)
        members = Members.of(partition, brokers, rules.min_in_sync)
        for broker, epoch in item.members:
            self._check_eligible(broker, epoch, members, brokers)
        changed = replace(partition, is_recovering=item.is_recovering)
        return with_members(changed, proposed, members, brokers, rules)

    def _check_leader(self, partition: PartitionImage, item: InSyncProposal) -> None:
        epochs = (item.leader_epoch, item.partition_epoch)
        if epochs[0] > partition.leader_epoch or epochs[1] > partition.partition_epoch:
            raise _refused(
                ErrorCode.NOT_CONTROLLER,
                f"The leader knows epochs {epochs} that this broker has not seen yet.",
            )
        if item.leader_epoch < partition.leader_epoch:
            raise _refused(
                ErrorCode.FENCED_LEADER_EPOCH,
                f"The leader epoch is {partition.leader_epoch}, not {item.leader_epoch}.",
            )
        if partition.leader != self._sender:
            raise _refused(ErrorCode.INVALID_REQUEST, f"Broker {partition.leader} is the leader.")

    def _check_version(self, partition: PartitionImage, item: InSyncProposal) -> None:
        if item.partition_epoch < partition.partition_epoch:
            raise _refused(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"The partition epoch is {partition.partition_epoch}, not {item.partition_epoch}.",
            )
        if not partition.leads_under(self._brokers.epochs[self._sender]):
            # It led under a former registration and will be told its new leader epoch.
            raise _refused(
                ErrorCode.INVALID_UPDATE_VERSION, "The leader has restarted since it was elected."
            )

    def _check_form(
        self, partition: PartitionImage, item: InSyncProposal, proposed: set[BrokerId]
    ) -> None:
        problem = None
        if len(proposed) != len(item.members):
            problem = "The proposed set names a broker more than once."
        elif not proposed <= set(partition.replicas):
            problem = "The proposed set has a broker to which the partition is not assigned."
        elif self._sender not in proposed:
            problem = "The leader is not in the set that it proposes."
        elif item.is_recovering and len(proposed) > 1:
            problem = "No replica can join while the leader recovers from an unclean election."
        elif item.is_recovering and not partition.is_recovering:
            problem = "A leader that has recovered cannot begin again."
        if problem is not None:
            raise _refused(ErrorCode.INVALID_REQUEST, problem)

    def _check_eligible(
        self, broker: BrokerId, epoch: int, members: Members, brokers: Brokers
    ) -> None:
        """Raise INELIGIBLE_REPLICA for who is gone, going, or not the one whom the leader saw."""
        registered = brokers.epochs.get(broker)
        if registered is None:
            problem = "is not registered, or its disk has failed"
        elif brokers.is_leaving(broker) and broker != self._sender:
            problem = "is shutting down"
        elif epoch not in (UNKNOWN_BROKER_EPOCH, registered):
            problem = f"is registered under the epoch {registered}, not {epoch}"
        elif epoch == UNKNOWN_BROKER_EPOCH and broker not in members.in_sync:
            problem = "has not fetched under its registration yet"
        elif broker in members.in_sync and members.standings[broker] is not Standing.PRESENT:
            problem = "has restarted since it was in sync"
        else:
            return
        raise _refused(ErrorCode.INELIGIBLE_REPLICA, f"Broker {broker} {problem}.")


def _is_so_already(partition: PartitionImage, item: InSyncProposal) -> bool:
    recorded = partition.in_sync_epochs
    return (
        {broker for broker, _ in item.members} == set(partition.in_sync_replicas)
        and item.is_recovering == partition.is_recovering
        and all(
            epoch in (UNKNOWN_BROKER_EPOCH, recorded.get(broker, epoch))
            for broker, epoch in item.members
        )
    )


def _accepted(item: InSyncProposal, partition: PartitionImage, *, epoch: int) -> PartitionAltered:
    return PartitionAltered(
        item.topic_id,
        item.partition,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        in_sync_replicas=partition.in_sync_replicas,
        partition_epoch=epoch,
        is_recovering=partition.is_recovering,
    )


def _refused(code: ErrorCode, message: str) -> ProtocolError:
    return ProtocolError(code, message)
