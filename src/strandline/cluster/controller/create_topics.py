"""The decision to create topics (KIP-464 defaults, manual assignments, Kafka's checks and codes).

Topics of one request stand and fall on their own; those that can be made are made in one multi.
Of very many partitions only the first get a leader in it; the reconciliation elects the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from strandline.cluster.assignment import Replicas, assign_replicas
from strandline.cluster.controller.decision import (
    Decision,
    Permit,
    Refusal,
    always,
    check_partitions_per_request,
    controller_epoch,
    duplicates,
    fenced,
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
    config_write,
    first_state,
    topic_creation,
)
from strandline.cluster.identifiers import random_uuid
from strandline.cluster.image import ClusterImage
from strandline.cluster.store import Operation
from strandline.cluster.topic_names import (
    CLUSTER_METADATA,
    can_collide,
    case_key,
    collision_key,
    name_problem,
)
from strandline.cluster.znodes import ConfigResource, ResourceKind, TopicNode
from strandline.config.alter import replace_topic
from strandline.config.broker import BrokerConfig
from strandline.errors import ErrorCode, InvariantViolated, ProtocolError
from strandline.types import BrokerId, TopicId

USE_DEFAULT: Final = -1


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic that a client wants. Either numbers (-1: the broker's default) or `assignments`."""

    name: str
    partition_count: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    assignments: Sequence[tuple[int, Sequence[BrokerId]]] = ()
    """Partition numbers with their replicas, the preferred leader first."""
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicCreated:
    """What became of one topic. After a refusal only `name` and `refusal` mean something."""

    name: str
    topic_id: TopicId | None = None
    partition_count: int = -1
    replication_factor: int = -1
    overrides: Mapping[str, str] = field(default_factory=dict)
    refusal: Refusal | None = None


def create_topics(
    image: ClusterImage,
    specs: Sequence[TopicSpec],
    broker: BrokerConfig,
    *,
    wanted: int | None = None,
    validate_only: bool = False,
    ignores_case: bool = False,
    permit: Permit = always,
    random: Random,
) -> Decision[TopicCreated]:
    """Results by first mention of each name. `wanted` are the partitions that the whole request
    asks for, where these topics are a part of it. With `ignores_case` names that differ only in
    case exclude each other: their logs would be one directory. `permit` is asked about topics that
    could be made. Refusals carry Kafka's codes, and what `permit` raises:

    INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR,
    INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG, INVALID_REQUEST, POLICY_VIOLATION.
    """
    repeated = duplicates(spec.name for spec in specs)
    if wanted is None:
        wanted = partitions_wanted(specs, broker)
    creation = _Creation(image, broker, random, specs, always if validate_only else permit)
    if ignores_case:
        creation.exclude_other_cases()
    results: dict[str, TopicCreated] = {}
    for spec in specs:
        if spec.name in results:
            continue
        try:
            refuse_duplicate(spec.name, repeated)
            check_partitions_per_request(wanted)
            results[spec.name] = creation.create(spec)
        except ProtocolError as error:
            results[spec.name] = TopicCreated(spec.name, refusal=Refusal.of(error))
    operations = () if validate_only else fenced(image, creation.operations)
    return Decision(tuple(results.values()), operations)


class _Creation:
    """The topics of one request, made one after the other."""

    def __init__(
        self,
        image: ClusterImage,
        broker: BrokerConfig,
        random: Random,
        specs: Sequence[TopicSpec],
        permit: Permit,
    ) -> None:
        self._image = image
        self._permit = permit
        self._broker = broker
        self._random = random
        # Only names with '.' or '_' can collide: most requests need not look at all topics.
        self._collidable = (
            {collision_key(name): name for name in image.topics if can_collide(name)}
            if any(can_collide(spec.name) for spec in specs)
            else {}
        )
        self._cases: dict[str, str] | None = None
        """Where case is ignored: the names there are, by `case_key`."""
        self.operations: list[Operation] = []
        self._states_left = STATES_PER_MULTI

    def exclude_other_cases(self) -> None:
        """Refuse names that differ only in case from others."""
        self._cases = {case_key(name): name for name in self._image.topics}

    def create(self, spec: TopicSpec) -> TopicCreated:
        """Decide one topic, or raise why not."""
        self._check_name(spec.name)
        overrides = _overrides(spec.configs, self._broker)
        assignment = self._manual(spec) if spec.assignments else self._automatic(spec)
        self._permit(spec.name, len(assignment))
        topic_id = random_uuid(self._random)
        node = TopicNode(spec.name, topic_id, dict(enumerate(assignment)))
        states = {}
        for number, replicas in enumerate(assignment):
            state = first_state(
                self._image, replicas, controller_epoch=controller_epoch(self._image)
            )
            if state is None:
                raise InvariantViolated(f"Replicas {replicas} were chosen, but none is alive.")
            if self._states_left > 0:
                self._states_left -= 1
                states[number] = state
        resource = ConfigResource(ResourceKind.TOPIC, spec.name)
        self.operations += config_write(self._image, resource, overrides)
        self.operations += topic_creation(node, states)
        if can_collide(spec.name):
            self._collidable[collision_key(spec.name)] = spec.name
        if self._cases is not None:
            self._cases[case_key(spec.name)] = spec.name
        return TopicCreated(spec.name, topic_id, len(assignment), len(assignment[0]), overrides)

    def _check_name(self, name: str) -> None:
        if name == CLUSTER_METADATA:
            raise ProtocolError(
                ErrorCode.INVALID_REQUEST, f"The name {CLUSTER_METADATA} is reserved."
            )
        if name in self._image.topics:
            raise ProtocolError(
                ErrorCode.TOPIC_ALREADY_EXISTS, f"The topic {name!r} exists already."
            )
        if problem := name_problem(name):
            raise ProtocolError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        other = self._collidable.get(collision_key(name)) if can_collide(name) else None
        if other is not None:
            raise ProtocolError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"The name {name!r} differs only in '.' and '_' from the topic {other!r}.",
            )
        other = None if self._cases is None else self._cases.get(case_key(name))
        if other is not None:
            raise ProtocolError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"The name {name!r} differs only in case from the topic {other!r}, and the file "
                "system of this broker would make one directory of both.",
            )

    def _manual(self, spec: TopicSpec) -> list[Replicas]:
        for given, what in (
            (spec.replication_factor, "replication factor"),
            (spec.partition_count, "number of partitions"),
        ):
            if given != USE_DEFAULT:
                raise ProtocolError(
                    ErrorCode.INVALID_REQUEST,
                    f"With a manual assignment, the {what} must be {USE_DEFAULT}, not {given}.",
                )
        by_number: dict[int, Replicas] = {}
        factor: int | None = None
        for number, brokers in spec.assignments:
            if number in by_number:
                raise ProtocolError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"Partition {number} is assigned more than once.",
                )
            replicas = check_manual_replicas(self._image, brokers, factor)
            check_one_runs(self._image, number, replicas)
            by_number[number] = replicas
            factor = len(replicas)
        if by_number.keys() != set(range(len(by_number))):
            raise ProtocolError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "The assigned partitions must be numbered from 0 without gaps.",
            )
        return [by_number[number] for number in range(len(by_number))]

    def _automatic(self, spec: TopicSpec) -> list[Replicas]:
        factor, count = spec.replication_factor, spec.partition_count
        if factor < USE_DEFAULT or factor == 0:
            raise ProtocolError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"The replication factor must be positive, or -1 for the default, not {factor}.",
            )
        if count < USE_DEFAULT or count == 0:
            raise ProtocolError(
                ErrorCode.INVALID_PARTITIONS,
                f"The number of partitions must be positive, or -1 for the default, not {count}.",
            )
        if factor == USE_DEFAULT:
            factor = self._broker.default_replication_factor
        return assign_replicas(
            placeable(self._image, factor),
            partition_count=self._broker.num_partitions if count == USE_DEFAULT else count,
            replication_factor=factor,
            random=self._random,
        )


def _overrides(configs: Mapping[str, str | None], broker: BrokerConfig) -> dict[str, str]:
    """The settings of a new topic, checked. Raises INVALID_CONFIG."""
    unset = sorted(name for name, value in configs.items() if value is None)
    if unset:
        raise ProtocolError(
            ErrorCode.INVALID_CONFIG, f"A topic setting needs a value: {', '.join(unset)}."
        )
    return replace_topic(configs.items(), broker)


def bytes_wanted(spec: TopicSpec, broker: BrokerConfig) -> int:
    """About how many bytes the assignment and the settings of the topic are."""
    if spec.assignments:
        replicas = sum(len(brokers) for _, brokers in spec.assignments)
    else:
        factor = max(spec.replication_factor, broker.default_replication_factor)
        replicas = partitions_wanted([spec], broker) * factor
    settings = sum(len(name) + len(value or "") for name, value in spec.configs.items())
    return settings + ASSIGNED_REPLICA_BYTES * replicas


def partitions_wanted(specs: Sequence[TopicSpec], broker: BrokerConfig) -> int:
    """Partitions of all topics together; a number that is refused anyway counts nothing."""
    total = 0
    for spec in specs:
        if spec.assignments:
            total += len(spec.assignments)
        elif spec.partition_count == USE_DEFAULT:
            total += broker.num_partitions
        else:
            total += max(spec.partition_count, 0)
    return total
