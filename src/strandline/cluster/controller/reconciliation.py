"""The controller's rule: write what should be so, given the image, until nothing is left to write.

`reconcile` does not ask what changed. It compares every partition with who is registered
(`partition_repair`), looks for partitions that were never led, and for topics whose deletion was
asked for. So a controller needs no memory: one that takes over in the middle of a failover, of a
reassignment or of a deletion goes on from the image (F-14, F-16, F-20). Brokers follow what is
written, so no client is to be answered.

A decision is bounded, since one multi has a limited size; partitions without a leader come first,
deletions last: one that is long, or that the store refuses again and again, keeps no partition from
its leader.
It is decided again after its multi until it is empty. What is to be done depends on the order of
names only, so that two controllers with equal images decide alike.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice
from typing import Final

from strandline.cluster.controller.decision import Decision, controller_epoch, fenced_from_deletions
from strandline.cluster.controller.events import (
    DeletionDropped,
    Event,
    LeaderElected,
    LeaderLost,
    MembersChanged,
    PartitionMoved,
    PartitionStarted,
    RestartedLeaderElected,
    TopicRemoved,
    UncleanElection,
)
from strandline.cluster.controller.partition_repair import Choice, Repair, is_settled, repaired
from strandline.cluster.controller.policy import ControllerPolicy, rules_of
from strandline.cluster.controller.standings import Brokers
from strandline.cluster.controller.state_writes import BYTES_PER_MULTI, StateWrites, can_write
from strandline.cluster.controller.topic_writes import (
    REMOVED,
    STATES_PER_MULTI,
    first_state,
    missing_partition_creation,
    removal_step,
)
from strandline.cluster.image import ClusterImage, ImageDelta, PartitionImage, TopicImage
from strandline.cluster.store import Delete, Operation
from strandline.cluster.znodes import deletion_path, state_path, topic_path
from strandline.types import TopicPartition

PARTITIONS_PER_MULTI: Final = 100

LEADERS_PER_MULTI: Final = 25
"""Partitions whose leader or in-sync set one multi changes. Fewer than of the others: the brokers
that lead from then on have the most to do for each, and serve no client meanwhile."""


def reconcile(
    image: ClusterImage,
    policy: ControllerPolicy,
    touched: Collection[TopicPartition] | None = None,
    *,
    is_ahead: bool = False,
    repairs_max: int = LEADERS_PER_MULTI,
    passed_over: Collection[str] = (),
) -> Decision[Event]:
    """What should be written, and as events what that means. Empty: all is as it should be.

    `touched` limits the look to these partitions; None looks at all. A limited look is enough
    only if a look at all found nothing but deletions to do in an image before and `touched` has
    what changed since (`touched_by`). One that `is_ahead` is at a part of what is to be done
    (`work_ahead`) and decides no deletion: other work may come first. Topics that are `passed_over`
    are not removed.
    """
    decision = _repairs(image, policy, touched, most=repairs_max)
    if not decision.operations:
        decision = _first_elections(image, policy, touched)
    if not decision.operations and not is_ahead:
        decision = _deletions(image, policy, passed_over)
    return decision


def touched_by(delta: ImageDelta) -> Collection[TopicPartition] | None:
    """Partitions that `reconcile` must look at after this step of the image; None: all."""
    if delta.brokers_changed or delta.configs_changed or delta.controller_changed:
        return None
    if delta.unreadable_changed or delta.deletions_changed:
        return None
    return delta.partitions_changed


def events_of(key: TopicPartition, before: PartitionImage, repair: Repair) -> Iterator[Event]:
    """What the repair of a partition means."""
    after, choice = repair.partition, repair.choice
    if after.replicas != before.replicas:
        left = tuple(b for b in before.replicas if b not in after.replicas)
        yield PartitionMoved(key, after.replicas, left)
    if choice is Choice.UNCLEAN:
        passed_over = (*before.in_sync_replicas, *before.elr)
        yield UncleanElection(key, after.leader, after.leader_epoch, passed_over)
    elif choice is Choice.RESTARTED:
        yield RestartedLeaderElected(key, after.leader, after.leader_epoch)
    elif choice is Choice.NONE_LEFT and before.has_leader:
        yield LeaderLost(key, before.leader, (*after.in_sync_replicas, *after.elr))
    elif choice is Choice.COMPLETE or after.leader != before.leader:
        yield LeaderElected(
            key, after.leader, before.leader, after.leader_epoch, after.in_sync_replicas
        )
    elif after.replicas == before.replicas:
        yield MembersChanged(key, after.in_sync_replicas, after.elr)


def _deletions(
    image: ClusterImage, policy: ControllerPolicy, passed_over: Collection[str]
) -> Decision[Event]:
    """Carry out the first deletion that was asked for by a node; a huge one in several steps.

    The request is for the topic that was there when the node was made. It is dropped, and not
    carried out, if that is gone and there is another one of its name.
    """
    for name in sorted(image.requested_deletions):
        if name in passed_over or topic_path(name) in image.unreadable:
            continue
        if not image.is_being_deleted(name) or not policy.is_deletion_enabled:
            request = Delete(deletion_path(name))
            return Decision((DeletionDropped(name),), fenced_from_deletions(image, [request]))
        operations, left = removal_step(image, image.topics[name], PARTITIONS_PER_MULTI)
        if not left:
            operations.append(REMOVED)
        return Decision((TopicRemoved(name, left),), fenced_from_deletions(image, operations))
    return Decision(())


def work_ahead(
    image: ClusterImage, policy: ControllerPolicy, *, repairs: int, starts: int
) -> set[TopicPartition]:
    """Partitions to look at for the first of what `reconcile` would do: so many that are not as
    they should be, in the order in which it repairs them, and one of so many topics that have
    partitions without a state."""
    repaired_ones = (key for key, _, _ in _repairable(image, policy, None))
    started_ones = (
        TopicPartition(name, 0) for name, topic in _topics(image, None) if not topic.is_started
    )
    return {*islice(repaired_ones, repairs), *islice(started_ones, starts)}


def _repairs(
    image: ClusterImage,
    policy: ControllerPolicy,
    touched: Collection[TopicPartition] | None,
    *,
    most: int,
) -> Decision[Event]:
    """Elections, departures from in-sync sets, ends of reassignments.

    No election shares a multi with the end of a reassignment, which rewrites its topic's whole
    assignment: no leader waits for what may be more than the store takes.
    """
    writes = StateWrites(image)
    events: list[Event] = []
    elects = moves = False
    for key, partition, repair in _repairable(image, policy, touched):
        is_election = repair.choice is not Choice.STAYS
        is_move = repair.partition.replicas != partition.replicas
        if (elects and is_move) or (moves and is_election):
            break
        elects, moves = elects or is_election, moves or is_move
        writes.put(key, repair.partition)
        events += events_of(key, partition, repair)
        if writes.count >= most or writes.size >= BYTES_PER_MULTI:
            break
    return Decision(tuple(events), writes.operations())


def _repairable(
    image: ClusterImage, policy: ControllerPolicy, touched: Collection[TopicPartition] | None
) -> Iterator[tuple[TopicPartition, PartitionImage, Repair]]:
    """Partitions that are not as they should be, and how they should be; by name, those without
    a leader first. Not those of which a node would be written that cannot be read."""
    brokers = Brokers(image)
    for is_urgent in (True, False):
        for key, partition in _unsettled(image, touched, brokers):
            there = brokers.at(key)
            if is_urgent is _has_its_leader(partition, there):
                continue
            repair = repaired(partition, there, rules_of(policy, key.topic, partition))
            if repair.partition != partition and can_write(image, key, repair.partition):
                yield key, partition, repair


def _first_elections(
    image: ClusterImage, _: ControllerPolicy, touched: Collection[TopicPartition] | None
) -> Decision[Event]:
    """First leaders for partitions that are assigned and have no state yet.

    They are what is left to do of a huge topic, or of one whose creator wrote no more than the
    assignment. Where no replica is alive, the partition waits.
    """
    events: list[Event] = []
    operations: list[Operation] = []
    for name, topic in _topics(image, touched):
        if topic.is_started or topic_path(name) in image.unreadable:
            continue
        states = {}
        for number in sorted(topic.partitions.keys() - topic.states.keys()):
            if len(events) >= STATES_PER_MULTI:
                break
            if state_path(TopicPartition(name, number)) in image.unreadable:
                continue
            state = first_state(
                image,
                topic.partitions[number].replicas,
                controller_epoch=controller_epoch(image),
            )
            if state is not None:
                states[number] = state
                events.append(PartitionStarted(TopicPartition(name, number), state.leader))
        operations += missing_partition_creation(topic, states)
    return Decision(tuple(events), fenced_from_deletions(image, operations))


def _topics(
    image: ClusterImage, touched: Collection[TopicPartition] | None
) -> Iterator[tuple[str, TopicImage]]:
    """Topics to look at, by name, without those that are being deleted."""
    names = image.topics.keys() if touched is None else {key.topic for key in touched}
    for name in sorted(names):
        topic = image.topics.get(name)
        if topic is not None and not image.is_being_deleted(name):
            yield name, topic


def _unsettled(
    image: ClusterImage, touched: Collection[TopicPartition] | None, brokers: Brokers
) -> Iterator[tuple[TopicPartition, PartitionImage]]:
    """Partitions with a state that a quick look does not find in order, by name."""
    if touched is not None:
        for key in sorted(touched):
            partition = image.partition(key)
            if partition is None or partition.partition_epoch < 0:
                continue
            if image.is_being_deleted(key.topic):
                continue
            if not is_settled(partition, brokers.at(key).serving):
                yield key, partition
        return
    for name, topic in _topics(image, None):
        unsettled = [
            number
            for number, partition in topic.partitions.items()
            if partition.partition_epoch >= 0
            and not is_settled(partition, brokers.serving_at(name, number))
        ]
        for number in sorted(unsettled):
            yield TopicPartition(name, number), topic.partitions[number]


def _has_its_leader(partition: PartitionImage, brokers: Brokers) -> bool:
    """Whether the leader is there; if not, the partition cannot be used until it is repaired."""
    epoch = brokers.epochs.get(partition.leader)
    return epoch is not None and partition.leads_under(epoch)
