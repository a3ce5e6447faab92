"""Elections that a client asks for (ElectLeaders, KIP-460), and the way back to preferred leaders.

The preferred leader of a partition is the first of its assigned replicas; assignments are spread so
that all brokers lead alike as long as preferred leaders lead. After a broker was away it leads
nothing until leadership is given back, which the controller does by itself now and then.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from strandline.cluster.controller.decision import Decision, Refusal, existing_partition
from strandline.cluster.controller.events import Event
from strandline.cluster.controller.partition_repair import Choice, Repair, repaired
from strandline.cluster.controller.policy import ControllerPolicy, rules_of
from strandline.cluster.controller.reconciliation import LEADERS_PER_MULTI, events_of
from strandline.cluster.controller.standings import Brokers
from strandline.cluster.controller.state_writes import StateWrites, can_write
from strandline.cluster.image import ClusterImage, PartitionImage
from strandline.errors import ErrorCode, ProtocolError
from strandline.types import BrokerId, LeaderEpoch, TopicPartition


class ElectionKind(IntEnum):
    """What may be asked for, by the number on the wire."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class Elected:
    """What became of one partition."""

    partition: TopicPartition
    refusal: Refusal | None = None
    events: tuple[Event, ...] = ()
    """What it means if it is written."""


def elect_leaders(
    image: ClusterImage,
    kind: ElectionKind,
    partitions: Sequence[TopicPartition] | None,
    policy: ControllerPolicy,
) -> Decision[Elected]:
    """Results by first mention. None: all partitions; those that need no election are then left
    out of the results.

    Refusals: UNKNOWN_TOPIC_OR_PARTITION, ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE,
    ELIGIBLE_LEADERS_NOT_AVAILABLE.
    """
    brokers = Brokers(image)
    writes = StateWrites(image)
    results: list[Elected] = []
    keys = _all_partitions(image) if partitions is None else dict.fromkeys(partitions)
    for key in keys:
        try:
            partition = existing_partition(image, key)
            if kind is ElectionKind.PREFERRED:
                repair = _preferred(partition, brokers.at(key))
            else:
                repair = _unclean(key, partition, brokers.at(key), policy)
            writes.put(key, repair.partition)
            results.append(Elected(key, events=tuple(events_of(key, partition, repair))))
        except ProtocolError as error:
            if partitions is not None or error.code is not ErrorCode.ELECTION_NOT_NEEDED:
                results.append(Elected(key, Refusal.of(error)))
    return Decision(tuple(results), writes.operations())


def imbalanced(image: ClusterImage, *, percent_max: int) -> frozenset[BrokerId]:
    """The brokers that lead too few of the partitions that prefer them.

    Too few: of more than so many percent of those partitions another replica is the leader
    (`leader.imbalance.per.broker.percentage`).
    """
    preferring = Counter(
        image.topics[key.topic].partitions[key.partition].replicas[0]
        for key in _all_partitions(image)
    )
    return frozenset(
        broker
        for broker, keys in _led_elsewhere(image).items()
        if len(keys) * 100 > percent_max * preferring[broker]
    )


def rebalance(image: ClusterImage, to_lead: Collection[BrokerId]) -> Decision[Event]:
    """Give leadership of all partitions that prefer these brokers back to them.

    Partitions that are being moved are left alone, and so are those whose preferred leader could
    not lead. Bounded: call it again until it is empty, with the same brokers. What is `imbalanced`
    is not to be asked in between: that would end it as soon as few enough are left.
    """
    brokers = Brokers(image)
    writes = StateWrites(image)
    events: list[Event] = []
    for broker, keys in sorted(_led_elsewhere(image).items()):
        if broker not in to_lead:
            continue
        for key in keys:
            partition = image.topics[key.topic].partitions[key.partition]
            if writes.count >= LEADERS_PER_MULTI:
                break
            if _may_return(partition, brokers.at(key)) and not image.is_being_deleted(key.topic):
                repair = _led_by(partition, broker)
                if not can_write(image, key, repair.partition):
                    continue
                writes.put(key, repair.partition)
                events += events_of(key, partition, repair)
    return Decision(tuple(events), writes.operations())


def _led_elsewhere(image: ClusterImage) -> dict[BrokerId, list[TopicPartition]]:
    """The partitions that another replica leads, by their preferred leader."""
    elsewhere: dict[BrokerId, list[TopicPartition]] = defaultdict(list)
    for key in _all_partitions(image):
        partition = image.topics[key.topic].partitions[key.partition]
        preferred = partition.replicas[0]
        if partition.leader != preferred:
            elsewhere[preferred].append(key)
    return elsewhere


def _all_partitions(image: ClusterImage) -> Iterator[TopicPartition]:
    for name, topic in sorted(image.topics.items()):
        for number in sorted(topic.states.keys() & topic.partitions.keys()):
            yield TopicPartition(name, number)


def _preferred(partition: PartitionImage, brokers: Brokers) -> Repair:
    preferred = partition.replicas[0]
    if partition.leader == preferred:
        raise ProtocolError(
            ErrorCode.ELECTION_NOT_NEEDED, f"The preferred leader {preferred} leads already."
        )
    if not _can_lead(partition, preferred, brokers):
        raise ProtocolError(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            f"The preferred leader {preferred} is not in sync, or not alive.",
        )
    return _led_by(partition, preferred)


def _unclean(
    key: TopicPartition, partition: PartitionImage, brokers: Brokers, policy: ControllerPolicy
) -> Repair:
    """The partition with any leader, a complete one if there is one."""
    if partition.partition_epoch < 0:
        raise ProtocolError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            "The partition gets its first leader as soon as one of its replicas is alive.",
        )
    epoch = brokers.epochs.get(partition.leader)
    if epoch is not None and partition.leads_under(epoch):
        raise ProtocolError(
            ErrorCode.ELECTION_NOT_NEEDED, f"Broker {partition.leader} leads the partition."
        )
    rules = rules_of(policy, key.topic, partition, unclean_allowed=True)
    repair = repaired(partition, brokers, rules)
    if not repair.partition.has_leader:
        raise ProtocolError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "No replica of the partition is alive."
        )
    return repair


def _may_return(partition: PartitionImage, brokers: Brokers) -> bool:
    is_moving = partition.adding or partition.removing
    return not is_moving and _can_lead(partition, partition.replicas[0], brokers)


def _can_lead(partition: PartitionImage, broker: BrokerId, brokers: Brokers) -> bool:
    """Whether the broker is in sync, is the registration that was recorded, and will stay."""
    epoch = brokers.serving.get(broker)
    is_known = epoch is not None and partition.in_sync_epochs.get(broker) == epoch
    return is_known and broker in partition.in_sync_replicas


def _led_by(partition: PartitionImage, leader: BrokerId) -> Repair:
    epoch = LeaderEpoch(partition.leader_epoch + 1)
    return Repair(replace(partition, leader=leader, leader_epoch=epoch), Choice.COMPLETE)
