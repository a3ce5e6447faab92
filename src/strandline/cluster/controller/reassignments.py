"""The decision to move partitions to other brokers (KIP-455), to change or cancel that, to list it.

A reassignment is written once and as a whole: the assignment becomes the target followed by those
that will have to leave, with `adding` and `removing` saying who is which. From then on replicas
that are being added fetch like any follower, and the reconciliation ends it when all of the target
is in sync (spec 2.6). Since the node has both the original and the target, any controller can go
on, change the target, or go back.

A change or a cancellation of a reassignment removes the replicas that it was adding and that the
new target does not have: they leave at once, with a new leader epoch, as in Kafka. It is refused
where that would leave committed records on fewer replicas than are promised (note 0054).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from strandline.cluster.assignment import Replicas
from strandline.cluster.controller.decision import (
    Decision,
    Refusal,
    duplicates,
    existing_partition,
    refuse_duplicate,
)
from strandline.cluster.controller.partition_repair import Rules, with_members
from strandline.cluster.controller.policy import ControllerPolicy, rules_of
from strandline.cluster.controller.standings import Brokers, Members
from strandline.cluster.controller.state_writes import StateWrites
from strandline.cluster.image import ClusterImage, PartitionImage
from strandline.errors import ErrorCode, ProtocolError
from strandline.types import BrokerId, LeaderEpoch, TopicPartition


@dataclass(frozen=True, slots=True)
class ReassignmentRequest:
    """Which brokers shall hold the partition, the preferred leader first; None: cancel."""

    partition: TopicPartition
    replicas: Sequence[BrokerId] | None


@dataclass(frozen=True, slots=True)
class ReassignmentAnswer:
    """The result of one request."""

    partition: TopicPartition
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True)
class OngoingReassignment:
    """A partition that is being moved. `replicas` has all, those being removed at the end."""

    partition: TopicPartition
    replicas: Replicas
    adding: Replicas
    removing: Replicas


def alter_reassignments(
    image: ClusterImage,
    wishes: Sequence[ReassignmentRequest],
    policy: ControllerPolicy,
    *,
    may_change_replication_factor: bool = True,
) -> Decision[ReassignmentAnswer]:
    """Results by first mention of each partition.

    Refusals: UNKNOWN_TOPIC_OR_PARTITION, INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR,
    NO_REASSIGNMENT_IN_PROGRESS (there is nothing to cancel), INVALID_REQUEST (duplicates).
    """
    repeated = duplicates(wish.partition for wish in wishes)
    brokers = Brokers(image)
    writes = StateWrites(image)
    results: dict[TopicPartition, ReassignmentAnswer] = {}
    for wish in wishes:
        key = wish.partition
        if key in results:
            continue
        try:
            refuse_duplicate(key, repeated)
            partition = existing_partition(image, key)
            target = _target(image, partition, wish.replicas)
            if not may_change_replication_factor and wish.replicas is not None:
                _check_factor(partition, target)
            after = _redirected(key, partition, target, brokers.at(key), policy)
            if after != partition:
                writes.put(key, after)
            results[key] = ReassignmentAnswer(key)
        except ProtocolError as error:
            results[key] = ReassignmentAnswer(key, Refusal.of(error))
    return Decision(tuple(results.values()), writes.operations())


def list_reassignments(
    image: ClusterImage, partitions: Sequence[TopicPartition] | None = None
) -> list[OngoingReassignment]:
    """What is being moved, of these partitions or of all, sorted."""
    if partitions is None:
        partitions = [
            TopicPartition(name, number)
            for name, topic in image.topics.items()
            for number in topic.node.adding_replicas.keys() | topic.node.removing_replicas.keys()
        ]
    ongoing = []
    for key in sorted(set(partitions)):
        partition = image.partition(key)
        if partition is not None and (partition.adding or partition.removing):
            ongoing.append(
                OngoingReassignment(key, partition.replicas, partition.adding, partition.removing)
            )
    return ongoing


def _original(partition: PartitionImage) -> Replicas:
    """Who held the partition before the reassignment that is going on, if one is."""
    return tuple(b for b in partition.replicas if b not in partition.adding)


def _target(
    image: ClusterImage, partition: PartitionImage, wanted: Sequence[BrokerId] | None
) -> Replicas:
    """Where the partition shall be; to cancel means to go back to where it was."""
    if wanted is None:
        if not (partition.adding or partition.removing):
            raise ProtocolError(
                ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "The partition is not being reassigned."
            )
        return _original(partition)
    target = tuple(wanted)
    strangers = [b for b in target if not image.is_registered(b) and b not in _original(partition)]
    if not target:
        problem = "The assignment has no replicas."
    elif len(set(target)) != len(target):
        problem = "The assignment names a broker more than once."
    elif strangers:
        problem = f"The assignment names broker {strangers[0]}, which is not registered."
    else:
        return target
    raise ProtocolError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)


def _check_factor(partition: PartitionImage, target: Replicas) -> None:
    """Held against the target of a move that is under way, as Kafka does."""
    current = len(partition.replicas) - len(partition.removing)
    if len(target) != current:
        raise ProtocolError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            # Kafka's words, which tools compare.
            f"The replication factor is changed from {current} to {len(target)}",
        )


def _redirected(
    key: TopicPartition,
    partition: PartitionImage,
    target: Replicas,
    brokers: Brokers,
    policy: ControllerPolicy,
) -> PartitionImage:
    """The partition on its way to the target. One that never had a leader has no records that
    would have to be copied first: it is there at once."""
    if partition.partition_epoch < 0:
        return replace(partition, replicas=target, adding=(), removing=())
    original = _original(partition)
    removing = tuple(b for b in original if b not in target)
    changed = replace(
        partition,
        replicas=(*target, *removing),
        adding=tuple(b for b in target if b not in original),
        removing=removing,
    )
    if set(partition.replicas) <= set(changed.replicas):
        return changed
    return _without_dropped(key, partition, changed, brokers, policy)


def _without_dropped(
    key: TopicPartition,
    before: PartitionImage,
    changed: PartitionImage,
    brokers: Brokers,
    policy: ControllerPolicy,
) -> PartitionImage:
    """The partition without replicas that were being added and are not wanted any more.

    They leave the in-sync set and do not lead. What stays must be enough (note 0054): committed
    records may be on those only that count now.
    """
    rules = rules_of(policy, key.topic, changed)
    members = Members.of(changed, brokers, rules.min_in_sync)
    _check_staying(before, brokers, rules_of(policy, key.topic, before), members, rules)
    changed = with_members(changed, members.in_sync, members, brokers, rules)
    leader = changed.leader
    if leader not in changed.replicas and changed.has_leader:
        whole = _whole(members) or members.in_sync
        leader = next((b for b in whole if b in brokers.serving), whole[0])
    return replace(changed, leader=leader, leader_epoch=LeaderEpoch(before.leader_epoch + 1))


def _check_staying(
    before: PartitionImage, brokers: Brokers, rules_before: Rules, staying: Members, rules: Rules
) -> None:
    """Refuse to give up replicas if the others would not be enough to keep what is committed."""
    known = Members.of(before, brokers, rules_before.min_in_sync)
    if (known.in_sync and not staying.in_sync) or (_whole(known) and not _whole(staying)):
        raise ProtocolError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Only replicas that would be given up are in sync with the partition.",
        )
    if len(staying.counting) < min(rules.min_in_sync, len(known.counting)):
        raise ProtocolError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Too few of the replicas that would stay are in sync ({len(staying.counting)}, and "
            f"min.insync.replicas is {rules.min_in_sync}): wait until another one has caught up, "
            "or name an assignment that keeps those that are in sync.",
        )


def _whole(members: Members) -> Replicas:
    """Members of the in-sync set that have lost nothing."""
    complete = members.complete
    return tuple(b for b in members.in_sync if b in complete)
