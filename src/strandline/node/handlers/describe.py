"""DescribeCluster, DescribeTopicPartitions and DescribeLogDirs: what is there, and where."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Final, NamedTuple

from strandline.cluster.image import BrokerImage, PartitionImage, TopicImage
from strandline.cluster.topic_names import name_problem
from strandline.errors import ErrorCode, StorageError
from strandline.node.handlers.authorized import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from strandline.node.logs import Directory
from strandline.node.metadata import Metadata
from strandline.node.replicas import Replicas
from strandline.node.request import Request
from strandline.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from strandline.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from strandline.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from strandline.types import NO_LEADER, BrokerId, Instant, TopicPartition

_BROKER_ENDPOINTS: Final = 1
_CONTROLLER_ENDPOINTS: Final = 2
_PARTITIONS_MAX: Final = 2000
_UNKNOWN_LAG: Final = -1


class DescribeClusterHandler:
    """Answers DescribeCluster, versions 0 to 2 (KIP-700, KIP-919)."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata

    def handle(self, request: Request[DescribeClusterRequest], now: Instant) -> None:
        """List the brokers that are alive and, if asked for, those that are down (fenced)."""
        del now
        body, image = request.body, self._metadata.image
        if request.version >= 1 and body.endpoint_type != _BROKER_ENDPOINTS:
            known = body.endpoint_type == _CONTROLLER_ENDPOINTS
            code = (
                ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
            )
            request.reply(
                DescribeClusterResponse(
                    error_code=code,
                    error_message="This is a broker; it lists brokers (endpoint type 1) only.",
                )
            )
            return
        response = DescribeClusterResponse(
            cluster_id=image.cluster_id or "",
            controller_id=-1 if image.controller is None else image.controller,
        )
        listener = request.connection.listener
        for broker_id, reached in image.reached_by(listener).items():
            response.brokers.append(
                DescribeClusterBroker(
                    broker_id=broker_id,
                    host=reached.host,
                    port=reached.port,
                    rack=image.brokers[broker_id].rack,
                )
            )
        for broker_id, registration in image.fenced.items() if body.include_fenced_brokers else ():
            endpoint = registration.endpoint(listener)
            if endpoint is None:
                continue
            response.brokers.append(
                DescribeClusterBroker(
                    broker_id=broker_id,
                    host=endpoint.host,
                    port=endpoint.port,
                    rack=registration.rack,
                    is_fenced=True,
                )
            )
        if body.include_cluster_authorized_operations:
            response.cluster_authorized_operations = CLUSTER_OPERATIONS
        request.reply(response)


class DescribeTopicPartitionsHandler:
    """Answers DescribeTopicPartitions, version 0 (KIP-966): topics page by page."""

    def __init__(self, metadata: Metadata, internal_topics: frozenset[str]) -> None:
        self._metadata = metadata
        self._internal_topics = internal_topics

    def handle(self, request: Request[DescribeTopicPartitionsRequest], now: Instant) -> None:
        """Describe topics in the order of their names until the limit of partitions is reached."""
        del now
        body, image = request.body, self._metadata.image
        asked = {topic.name for topic in body.topics}
        reached = image.reached_by(request.connection.listener)
        names = sorted(asked or image.topics)
        cursor = body.cursor
        if cursor is not None:
            names = [name for name in names if name >= cursor.topic_name]
        response = DescribeTopicPartitionsResponse()
        room = max(1, min(body.response_partition_limit, _PARTITIONS_MAX))
        for name in names:
            topic = image.topics.get(name)
            if topic is None:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if name_problem(name) is not None:
                    code = ErrorCode.INVALID_TOPIC_EXCEPTION
                response.topics.append(
                    DescribeTopicPartitionsResponseTopic(error_code=code, name=name)
                )
                continue
            first = 0
            if cursor is not None and cursor.topic_name == name:
                first = cursor.partition_index
            numbers = [number for number in sorted(topic.partitions) if number >= first]
            if not room and numbers:
                response.next_cursor = Cursor(topic_name=name, partition_index=numbers[0])
                break
            response.topics.append(self._describe(topic, numbers[:room], reached))
            if len(numbers) > room:
                response.next_cursor = Cursor(topic_name=name, partition_index=numbers[room])
                break
            room -= len(numbers)
        request.reply(response)

    def _describe(
        self, topic: TopicImage, numbers: list[int], reached: Container[BrokerId]
    ) -> DescribeTopicPartitionsResponseTopic:
        described = DescribeTopicPartitionsResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.name in self._internal_topics,
            topic_authorized_operations=TOPIC_OPERATIONS,
        )
        brokers = self._metadata.image.brokers
        for number in numbers:
            partition = topic.partitions[number]
            # As from Kafka there is no error code, whatever is wrong with the leader.
            described.partitions.append(
                DescribeTopicPartitionsResponsePartition(
                    partition_index=number,
                    leader_id=partition.leader if partition.leader in reached else NO_LEADER,
                    leader_epoch=partition.leader_epoch,
                    replica_nodes=list(partition.replicas),
                    isr_nodes=list(partition.in_sync_replicas),
                    eligible_leader_replicas=list(partition.elr),
                    last_known_elr=list(partition.last_known_elr),
                    offline_replicas=offline_replicas(
                        TopicPartition(topic.name, number), partition, brokers, reached
                    ),
                )
            )
        return described


class _Described(NamedTuple):
    """A log in a directory, as Kafka tells of it."""

    partition: TopicPartition
    is_future: bool
    size_bytes: int
    lag: int
    """How far it is behind: the high watermark, or the log that it is a copy of."""


def _logs_in(directory: Directory, replicas: Replicas) -> Iterator[_Described]:
    for replica in replicas.in_directory(directory):
        yield _Described(replica.topic_partition, False, replica.log.size_bytes, 0)
    for at, future in directory.futures.items():
        source = replicas.find(at)
        lag = _UNKNOWN_LAG
        if source is not None:
            lag = source.log.log_end_offset - future.log_end_offset
        yield _Described(at, True, future.size_bytes, lag)


class DescribeLogDirsHandler:
    """Answers DescribeLogDirs, versions 1 to 5 (KIP-113, KIP-827)."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas

    def handle(self, request: Request[DescribeLogDirsRequest], now: Instant) -> None:
        """Tell the size of every hosted log, per log directory."""
        del now
        asked = request.body.topics
        wanted: set[TopicPartition] | None = None
        if asked is not None:
            wanted = {
                TopicPartition(topic.topic, number)
                for topic in asked
                for number in topic.partitions
            }
        response = DescribeLogDirsResponse()
        for directory in self._replicas.logs.directories:
            result = self._directory(directory)
            response.results.append(result)
            if result.error_code != ErrorCode.NONE:
                continue
            topics: dict[str, DescribeLogDirsTopic] = {}
            for found in sorted(_logs_in(directory, self._replicas)):
                partition = found.partition
                if wanted is not None and partition not in wanted:
                    continue
                topic = topics.get(partition.topic)
                if topic is None:
                    topic = topics[partition.topic] = DescribeLogDirsTopic(name=partition.topic)
                    result.topics.append(topic)
                topic.partitions.append(
                    DescribeLogDirsPartition(
                        partition_index=partition.partition,
                        partition_size=found.size_bytes,
                        offset_lag=found.lag,
                        is_future_key=found.is_future,
                    )
                )
        request.reply(response)

    def _directory(self, directory: Directory) -> DescribeLogDirsResult:
        """What can be said of the directory itself. An offline one is not touched any more."""
        result = DescribeLogDirsResult(log_dir=directory.path)
        files = self._replicas.logs.files
        if directory.offline_reason is None:
            try:
                result.total_bytes = files.total_bytes(directory.path)
                result.usable_bytes = files.free_bytes(directory.path)
            except StorageError as error:
                self._replicas.logs.take_offline(directory, error)
        if directory.offline_reason is not None:
            result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return result


def offline_replicas(
    key: TopicPartition,
    partition: PartitionImage,
    brokers: Mapping[BrokerId, BrokerImage],
    reached: Container[BrokerId],
) -> list[int]:
    """The assigned replicas that are of no use to a client: their brokers are not among those that
    it reaches, or their disks have failed."""
    return [b for b in partition.replicas if b not in reached or key in brokers[b].offline]
