"""The cluster as a whole: its brokers and their log directories."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from strandline.client.by_broker import ask_each_broker
from strandline.client.cluster import ClusterClient
from strandline.client.connection import Connection
from strandline.client.metadata import BrokerInfo
from strandline.client.offsets import outcome
from strandline.client.refusal import check
from strandline.client.settings import Address
from strandline.errors import ErrorCode, ProtocolError
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from strandline.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from strandline.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from strandline.types import BrokerId, TopicPartition

UNKNOWN_BYTES: Final = -1
_FENCED_SINCE: Final = 2


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """Who is in the cluster."""

    cluster_id: str | None
    controller: BrokerId | None
    brokers: tuple[BrokerInfo, ...]
    fenced: tuple[BrokerInfo, ...] = ()
    """Members that are down. Brokers that do not serve DescribeCluster 2 do not tell them."""


@dataclass(frozen=True, slots=True)
class ReplicaSize:
    """One replica's place on disk; `is_future` while it moves to another directory."""

    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDirectoryInfo:
    """A log directory of a broker. Totals are -1 where the broker is too old to tell them."""

    broker: BrokerId
    path: str
    error: ProtocolError | None
    total_bytes: int
    usable_bytes: int
    replicas: dict[TopicPartition, ReplicaSize]


@dataclass(frozen=True, slots=True)
class LogDirectories:
    """What brokers said of their log directories, in the order of the brokers' ids."""

    found: tuple[LogDirectoryInfo, ...]
    unanswered: Mapping[BrokerId, ProtocolError]
    """The brokers that said nothing, and why."""


class ClusterAdmin:
    """See the module."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    def describe(self) -> ClusterDescription:
        """The brokers that are alive, and those that are down, in the order of their ids."""
        view = self._cluster.refresh()
        brokers = tuple(view.brokers[each] for each in sorted(view.brokers))
        fenced = self._cluster.retry(self._fenced)
        return ClusterDescription(view.cluster_id, view.controller, brokers, fenced)

    def _fenced(self) -> tuple[BrokerInfo, ...]:
        connection = self._cluster.any_connection()
        key = ApiKey.DESCRIBE_CLUSTER
        if not connection.serves(key) or connection.version_for(key) < _FENCED_SINCE:
            return ()
        request = DescribeClusterRequest(include_fenced_brokers=True)
        response = connection.call(key, DescribeClusterResponse, request)
        check(response.error_code, response.error_message, "the cluster")
        found = sorted(
            (each for each in response.brokers if each.is_fenced), key=lambda each: each.broker_id
        )
        return tuple(
            BrokerInfo(BrokerId(each.broker_id), Address(each.host, each.port), each.rack)
            for each in found
        )

    def unregister(self, broker: BrokerId) -> None:
        """Have the cluster forget a broker that is down and will not come back.

        Raises ProtocolError: BROKER_ID_NOT_REGISTERED, or INVALID_REQUEST of one that runs.
        """

        def ask() -> None:
            response = self._cluster.any_connection().call(
                ApiKey.UNREGISTER_BROKER,
                UnregisterBrokerResponse,
                UnregisterBrokerRequest(broker_id=broker),
            )
            check(response.error_code, response.error_message, f"broker {broker}")

        self._cluster.retry(ask)

    def log_directories(self, brokers: Iterable[BrokerId] | None = None) -> LogDirectories:
        """The log directories of these brokers, of all by default, with the sizes of all replicas.

        A broker that does not answer is asked again for as long as an operation may take
        (`operation_timeout_ms`), and is then among `unanswered`, as is one that refuses. Of all
        brokers, one that leaves the cluster meanwhile is left out; one that was named has
        BROKER_NOT_AVAILABLE. Raises `ProtocolError` if no broker tells who is in the cluster.
        """
        answers, unanswered = ask_each_broker(self._cluster, _ask_log_directories, brokers)
        found = tuple(
            _directory(broker, each)
            for broker, response in answers.items()
            for each in response.results
        )
        return LogDirectories(found, unanswered)


def sizes_by_partition(directories: Iterable[LogDirectoryInfo]) -> dict[TopicPartition, int]:
    """The largest replica of each partition: what its log takes."""
    sizes: dict[TopicPartition, int] = {}
    for directory in directories:
        for partition, replica in directory.replicas.items():
            if not replica.is_future:
                sizes[partition] = max(sizes.get(partition, 0), replica.size_bytes)
    return sizes


def _ask_log_directories(connection: Connection) -> DescribeLogDirsResponse:
    response = connection.call(
        ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsResponse, DescribeLogDirsRequest(topics=None)
    )
    check(response.error_code, None, "the log directories")
    return response


def _directory(broker: BrokerId, result: DescribeLogDirsResult) -> LogDirectoryInfo:
    error: ProtocolError | None = None
    if result.error_code != ErrorCode.NONE:
        error = outcome(result.error_code, None, f"log directory {result.log_dir}")
    return LogDirectoryInfo(
        broker,
        result.log_dir,
        error,
        result.total_bytes,
        result.usable_bytes,
        {
            TopicPartition(topic.name, each.partition_index): ReplicaSize(
                each.partition_size, each.offset_lag, each.is_future_key
            )
            for topic in result.topics
            for each in topic.partitions
        },
    )
