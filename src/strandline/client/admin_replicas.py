"""Who leads and where replicas live: elections, and moves of partitions to other brokers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from strandline.client.cluster import ClusterClient
from strandline.client.connection import Connection
from strandline.client.offsets import outcome
from strandline.client.refusal import check, refusal
from strandline.errors import ErrorCode, ProtocolError
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from strandline.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from strandline.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from strandline.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from strandline.types import BrokerId, TopicPartition

Outcomes = dict[TopicPartition, ProtocolError | None]
"""What became of each partition: None where it was done."""


class Election(IntEnum):
    """Who may be elected; Kafka's numbers (KIP-460)."""

    PREFERRED = 0
    """The first assigned replica, if it is in sync."""
    UNCLEAN = 1
    """Any live replica, where no replica in sync is alive. Records may be lost."""


@dataclass(frozen=True, slots=True)
class Move:
    """A partition on its way to other brokers (KIP-455)."""

    partition: TopicPartition
    replicas: tuple[BrokerId, ...]
    """All that it has now, the coming and the going ones included."""
    adding: tuple[BrokerId, ...]
    removing: tuple[BrokerId, ...]


class ReplicaAdmin:
    """See the module."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    def elect(self, partitions: Iterable[TopicPartition] | None, election: Election) -> Outcomes:
        """Elect leaders, of all partitions if none are given: then only of those that need it."""
        request = ElectLeadersRequest(
            election_type=election,
            topic_partitions=None
            if partitions is None
            else [
                TopicPartitions(topic=name, partitions=numbers)
                for name, numbers in _by_topic(partitions).items()
            ],
            timeout_ms=self._timeout_ms,
        )

        def attempt(connection: Connection) -> Outcomes:
            response = connection.call(ApiKey.ELECT_LEADERS, ElectLeadersResponse, request)
            check(response.error_code, None, "the election")
            return _outcomes(
                (
                    TopicPartition(topic.topic, each.partition_id),
                    each.error_code,
                    each.error_message,
                )
                for topic in response.replica_election_results
                for each in topic.partition_result
            )

        outcomes = self._cluster.retry_on_controller(attempt)
        self._cluster.forget({partition.topic for partition in outcomes})
        return outcomes

    def move(self, targets: Mapping[TopicPartition, Sequence[BrokerId] | None]) -> Outcomes:
        """Begin to move partitions to these brokers, the preferred leader first. None for the
        brokers calls a move off. Moves go on after this; see `moves`."""
        topics: dict[str, ReassignableTopic] = {}
        for partition, brokers in targets.items():
            topic = topics.setdefault(partition.topic, ReassignableTopic(name=partition.topic))
            topic.partitions.append(
                ReassignablePartition(
                    partition_index=partition.partition,
                    replicas=None if brokers is None else list(brokers),
                )
            )
        request = AlterPartitionReassignmentsRequest(
            topics=list(topics.values()), timeout_ms=self._timeout_ms
        )

        def attempt(connection: Connection) -> Outcomes:
            response = connection.call(
                ApiKey.ALTER_PARTITION_REASSIGNMENTS, AlterPartitionReassignmentsResponse, request
            )
            check(response.error_code, response.error_message, "the move")
            return _outcomes(
                (
                    TopicPartition(topic.name, each.partition_index),
                    each.error_code,
                    each.error_message,
                )
                for topic in response.responses
                for each in topic.partitions
            )

        return self._cluster.retry_on_controller(attempt)

    def moves(self, partitions: Iterable[TopicPartition] | None = None) -> list[Move]:
        """The moves that are under way, of all partitions or of some."""
        request = ListPartitionReassignmentsRequest(
            topics=None
            if partitions is None
            else [
                ListPartitionReassignmentsTopics(name=name, partition_indexes=numbers)
                for name, numbers in _by_topic(partitions).items()
            ],
            timeout_ms=self._timeout_ms,
        )

        def attempt(connection: Connection) -> list[Move]:
            response = connection.call(
                ApiKey.LIST_PARTITION_REASSIGNMENTS, ListPartitionReassignmentsResponse, request
            )
            check(response.error_code, response.error_message, "the list of moves")
            return [
                Move(
                    TopicPartition(topic.name, each.partition_index),
                    tuple(map(BrokerId, each.replicas)),
                    tuple(map(BrokerId, each.adding_replicas)),
                    tuple(map(BrokerId, each.removing_replicas)),
                )
                for topic in response.topics
                for each in topic.partitions
            ]

        return sorted(self._cluster.retry_on_controller(attempt), key=lambda move: move.partition)

    def eligible_leaders(self, topics: Iterable[str]) -> dict[TopicPartition, tuple[BrokerId, ...]]:
        """Brokers that are not in sync and may lead all the same, where there are any (KIP-966).

        They hold every committed record. Nothing from a broker that knows nothing of this.
        """
        wanted = [TopicRequest(name=name) for name in sorted(set(topics))]

        def attempt() -> dict[TopicPartition, tuple[BrokerId, ...]]:
            connection = self._cluster.any_connection()
            found: dict[TopicPartition, tuple[BrokerId, ...]] = {}
            if not wanted or not connection.serves(ApiKey.DESCRIBE_TOPIC_PARTITIONS):
                return found
            cursor: Cursor | None = None
            while True:
                request = DescribeTopicPartitionsRequest(topics=wanted, cursor=cursor)
                page = connection.call(
                    ApiKey.DESCRIBE_TOPIC_PARTITIONS, DescribeTopicPartitionsResponse, request
                )
                found.update(_eligible(page))
                if page.next_cursor is None or page.next_cursor == cursor:
                    return found
                cursor = page.next_cursor

        return self._cluster.retry(attempt)

    @property
    def _timeout_ms(self) -> int:
        return self._cluster.settings.request_timeout_ms


def _eligible(
    page: DescribeTopicPartitionsResponse,
) -> Iterator[tuple[TopicPartition, tuple[BrokerId, ...]]]:
    for topic in page.topics:
        for each in topic.partitions:
            if each.eligible_leader_replicas:
                at = TopicPartition(topic.name or "", each.partition_index)
                yield at, tuple(map(BrokerId, each.eligible_leader_replicas))


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    grouped: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        grouped.setdefault(topic, []).append(number)
    return grouped


def _outcomes(answers: Iterable[tuple[TopicPartition, int, str | None]]) -> Outcomes:
    outcomes: Outcomes = {}
    for partition, code, message in answers:
        if code == ErrorCode.NOT_CONTROLLER:
            raise refusal(code, message, "")  # all of it is asked again elsewhere
        outcomes[partition] = outcome(code, message, f"partition {partition}")
    return outcomes
