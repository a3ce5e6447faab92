"""The decision to add partitions to topics. Existing partitions stay as they are.

Of very many new partitions only the first get a leader at once; the reconciliation elects the
others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

from strandline.cluster.assignment import Replicas, assign_more_replicas
from strandline.cluster.controller.decision import (
    Decision,
    Permit,
    Refusal,
    always,
    check_partitions_per_request,
    controller_epoch,
    duplicates,
    fenced_from_deletions,
    refuse_duplicate,
)
from strandline.cluster.controller.manual_assignment import (
    check_manual_replicas,
    check_one_runs,
)
from strandline.cluster.controller.placement import placeable
from strandline.cluster.controller.topic_writes import (
    ASSIGNED_REPLICA_BYTES,
    STATES_PER_MULTI,
    first_state,
    partition_creation,
)
from strandline.cluster.image import ClusterImage, TopicImage
from strandline.cluster.store import Operation, SetData
from strandline.cluster.topic_names import is_internal
from strandline.errors import ErrorCode, InvariantViolated, ProtocolError
from strandline.numerals import counted
from strandline.types import BrokerId, TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionsSpec:
    """How many partitions a topic shall have in all, and perhaps where the new ones go."""

    name: str
    partition_count: int
    assignments: Sequence[Sequence[BrokerId]] | None = None


@dataclass(frozen=True, slots=True)
class PartitionsAdded:
    """What became of one topic."""

    name: str
    partition_count: int = -1
    added: int = 0
    refusal: Refusal | None = None


def create_partitions(
    image: ClusterImage,
    specs: Sequence[PartitionsSpec],
    *,
    added_before: int = 0,
    validate_only: bool = False,
    permit: Permit = always,
) -> Decision[PartitionsAdded]:
    """Results by first mention of each topic. `permit` is asked about those that could grow.
    `added_before` are partitions that the same request has added to other topics.

    Refusals: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT,
    INVALID_REPLICATION_FACTOR, INVALID_REQUEST (duplicates), POLICY_VIOLATION.
    """
    repeated = duplicates(spec.name for spec in specs)
    results: dict[str, PartitionsAdded] = {}
    operations: list[Operation] = []
    total = 0
    for spec in specs:
        if spec.name in results:
            continue
        try:
            refuse_duplicate(spec.name, repeated)
            topic = _existing(image, spec)
            added = spec.partition_count - len(topic.partitions)
            check_partitions_per_request(added_before + total + added)
            states_max = max(0, STATES_PER_MULTI - total)
            addition = _addition(image, topic, _assignment(image, topic, spec), states_max)
            if not validate_only:
                permit(spec.name, added)
            operations += addition
            total += added
            results[spec.name] = PartitionsAdded(spec.name, spec.partition_count, added)
        except ProtocolError as error:
            results[spec.name] = PartitionsAdded(spec.name, refusal=Refusal.of(error))
    write = () if validate_only else fenced_from_deletions(image, operations)
    return Decision(tuple(results.values()), write)


def bytes_after(topic: TopicImage, spec: PartitionsSpec) -> int:
    """About how many bytes the assignment of the topic is, which is written as a whole."""
    return ASSIGNED_REPLICA_BYTES * max(spec.partition_count, 0) * topic.replication_factor


def _existing(image: ClusterImage, spec: PartitionsSpec) -> TopicImage:
    """The topic, if the wanted number is more than it has."""
    topic = image.topics.get(spec.name)
    if topic is None:
        raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no topic of this name.")
    if is_internal(spec.name):
        raise ProtocolError(
            ErrorCode.INVALID_PARTITIONS,
            f"The number of partitions of {spec.name} is fixed when it is made: what coordinators "
            "keep in it would be looked for in other partitions, and not be found.",
        )
    count = len(topic.partitions)
    if spec.partition_count <= count:
        raise ProtocolError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic has {counted(count, 'partition')}; {spec.partition_count} would not be "
            "more.",
        )
    return topic


def _assignment(image: ClusterImage, topic: TopicImage, spec: PartitionsSpec) -> list[Replicas]:
    existing = [topic.partitions[number].replicas for number in sorted(topic.partitions)]
    added = spec.partition_count - len(existing)
    if spec.assignments is None:
        return assign_more_replicas(
            placeable(image, topic.replication_factor),
            existing=existing,
            partition_count=added,
            replication_factor=topic.replication_factor,
        )
    if len(spec.assignments) != added:
        raise ProtocolError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"To be added: {counted(added, 'partition')}; assigned: {len(spec.assignments)}.",
        )
    assigned = []
    for number, brokers in enumerate(spec.assignments, start=len(existing)):
        replicas = check_manual_replicas(image, brokers, topic.replication_factor)
        check_one_runs(image, number, replicas)
        assigned.append(replicas)
    return assigned


def _addition(
    image: ClusterImage, topic: TopicImage, assignment: Sequence[Replicas], states_max: int
) -> list[Operation]:
    first = len(topic.partitions)
    new = dict(enumerate(assignment, start=first))
    node = replace(topic.node, partitions={**topic.node.partitions, **new})
    operations: list[Operation] = [SetData(node.path, node.encode(), topic.version)]
    for number, replicas in islice(new.items(), states_max):
        state = first_state(image, replicas, controller_epoch=controller_epoch(image))
        if state is None:
            raise InvariantViolated(f"Replicas {replicas} were chosen, but none is alive.")
        operations += partition_creation(TopicPartition(topic.name, number), state)
    return operations
