"""Replicas in the log directories of their brokers: have them moved from one to another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from strandline.client.admin_cluster import ClusterAdmin
from strandline.client.admin_replicas import Outcomes
from strandline.client.cluster import ClusterClient
from strandline.client.offsets import outcome
from strandline.errors import ProtocolError
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from strandline.types import BrokerId, TopicPartition


@dataclass(frozen=True, slots=True)
class LogMove:
    """A replica on its way to another log directory of its broker (KIP-113)."""

    partition: TopicPartition
    broker: BrokerId
    path: str
    """Where it goes."""
    size_bytes: int
    """What is there by now."""
    lag: int
    """How many offsets the copy is behind; -1 if the broker cannot say."""


@dataclass(frozen=True, slots=True)
class LogMoves:
    """Moves by partition and broker, and the brokers that did not say which they have, and why."""

    found: tuple[LogMove, ...]
    unanswered: Mapping[BrokerId, ProtocolError]


class LogDirAdmin:
    """See the module."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    def move(self, partitions: Iterable[TopicPartition], broker: BrokerId, path: str) -> Outcomes:
        """Have a broker's replicas moved to one of its directories. To where they are calls a move
        off. Moves go on after this; see `moves`."""
        topics: dict[str, AlterReplicaLogDirTopic] = {}
        for partition in partitions:
            topic = topics.setdefault(
                partition.topic, AlterReplicaLogDirTopic(name=partition.topic)
            )
            topic.partitions.append(partition.partition)
        request = AlterReplicaLogDirsRequest(
            dirs=[AlterReplicaLogDir(path=path, topics=list(topics.values()))]
        )

        def attempt() -> Outcomes:
            response = self._cluster.connection_to(broker).call(
                ApiKey.ALTER_REPLICA_LOG_DIRS, AlterReplicaLogDirsResponse, request
            )
            return {
                TopicPartition(topic.topic_name, each.partition_index): outcome(
                    each.error_code, None, f"partition {each.partition_index}"
                )
                for topic in response.results
                for each in topic.partitions
            }

        return self._cluster.retry(attempt)

    def moves(self, brokers: Iterable[BrokerId] | None = None) -> LogMoves:
        """The moves that are under way on these brokers, on all by default.

        Which brokers are asked, for how long, and what is raised: as `log_directories` has it.
        """
        told = ClusterAdmin(self._cluster).log_directories(brokers)
        found = [
            LogMove(
                partition, directory.broker, directory.path, replica.size_bytes, replica.offset_lag
            )
            for directory in told.found
            for partition, replica in directory.replicas.items()
            if replica.is_future
        ]
        found.sort(key=lambda each: (each.partition, each.broker))
        return LogMoves(tuple(found), told.unanswered)
