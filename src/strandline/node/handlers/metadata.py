"""Metadata: brokers, topics and leaders; creates topics that a client is about to use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from strandline.cluster.controller import Refusal, always
from strandline.cluster.image import TopicImage
from strandline.cluster.topic_names import name_problem
from strandline.cluster.znodes import Endpoint
from strandline.errors import ErrorCode
from strandline.node.client_quotas import ClientQuotas
from strandline.node.handlers.authorized import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from strandline.node.handlers.describe import offline_replicas
from strandline.node.metadata import Metadata
from strandline.node.request import Request
from strandline.node.settings import Settings
from strandline.node.topic_creation import TopicCreation
from strandline.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from strandline.types import NO_LEADER, NO_TOPIC_ID, BrokerId, Instant, TopicPartition

_IDS_SINCE: Final = 12
_ALL_REPLICAS_SINCE: Final = 1
_LISTENERS_SINCE: Final = 6
"""Clients know LISTENER_NOT_FOUND."""


class MetadataHandler:
    """Answers Metadata, versions 0 to 13."""

    def __init__(
        self,
        metadata: Metadata,
        settings: Settings,
        creation: TopicCreation,
        internal_topics: frozenset[str],
        quotas: ClientQuotas,
    ) -> None:
        self._metadata = metadata
        self._settings = settings
        self._creation = creation
        self._internal_topics = internal_topics
        self._quotas = quotas

    def handle(self, request: Request[MetadataRequest], now: Instant) -> None:
        """Describe what is asked for, after creating what is missing and may be created."""
        body = request.body
        topics = body.topics
        if topics is None or (request.version == 0 and not topics):
            self._reply(request, self._metadata.image.topics.values())
            return
        is_by_id = any(topic.topic_id != NO_TOPIC_ID for topic in topics)
        if request.version < _IDS_SINCE and (
            is_by_id or any(topic.name is None for topic in topics)
        ):
            request.reply(
                MetadataResponse(
                    topics=[
                        MetadataResponseTopic(
                            error_code=ErrorCode.INVALID_REQUEST,
                            name=topic.name or "",
                            topic_id=topic.topic_id,
                        )
                        for topic in topics
                    ]
                )
            )
            return
        if is_by_id:
            self._by_id(request)
            return
        names = list(dict.fromkeys(topic.name or "" for topic in topics))
        missing = [name for name in names if name not in self._metadata.image.topics]
        if not (
            missing
            and body.allow_auto_topic_creation
            and self._settings.broker.auto_create_topics_enable
        ):
            self._by_name(request, names, {})
            return

        def created(refused: dict[str, Refusal], at: Instant) -> None:
            del at
            self._by_name(request, names, {name: why.code for name, why in refused.items()})

        # Strict: a topic that is not made stays unknown, which clients of all versions are told.
        mutations = self._quotas.mutations(request, strict=True, now=now)
        permit = always if mutations is None else mutations.take
        self._creation.ensure(missing, created, now, permit)

    def _by_name(
        self, request: Request[MetadataRequest], names: list[str], refused: dict[str, ErrorCode]
    ) -> None:
        image = self._metadata.image
        found: list[TopicImage | MetadataResponseTopic] = []
        for name in names:
            topic = image.topics.get(name)
            if topic is not None:
                found.append(topic)
                continue
            code = ErrorCode.INVALID_TOPIC_EXCEPTION
            if refused.get(name) is not code and name_problem(name) is None:
                # Whatever kept the topic from being created may pass: clients retry on this.
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            found.append(MetadataResponseTopic(error_code=code, name=name))
        self._reply(request, found)

    def _by_id(self, request: Request[MetadataRequest]) -> None:
        image = self._metadata.image
        found: list[TopicImage | MetadataResponseTopic] = []
        for asked in dict.fromkeys(topic.topic_id for topic in request.body.topics or ()):
            if asked == NO_TOPIC_ID:
                continue
            unknown = MetadataResponseTopic(
                error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=asked
            )
            found.append(image.topic_by_id(asked) or unknown)
        self._reply(request, found)

    def _describe(
        self,
        request: Request[MetadataRequest],
        topic: TopicImage,
        reached: Mapping[BrokerId, Endpoint],
    ) -> MetadataResponseTopic:
        brokers = self._metadata.image.brokers
        answer = MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.name in self._internal_topics,
        )
        if request.body.include_topic_authorized_operations:
            answer.topic_authorized_operations = TOPIC_OPERATIONS
        for number, partition in topic.partitions.items():
            code = ErrorCode.LEADER_NOT_AVAILABLE
            if partition.leader in reached:
                code = ErrorCode.NONE
            elif partition.leader in brokers and request.version >= _LISTENERS_SINCE:
                code = ErrorCode.LISTENER_NOT_FOUND
            described = MetadataResponsePartition(
                error_code=code,
                partition_index=number,
                leader_id=partition.leader if code is ErrorCode.NONE else NO_LEADER,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.in_sync_replicas),
                offline_replicas=offline_replicas(
                    TopicPartition(topic.name, number), partition, brokers, reached
                ),
            )
            if request.version < _ALL_REPLICAS_SINCE:
                _leave_out_unavailable(described)
            answer.partitions.append(described)
        return answer

    def _reply(
        self,
        request: Request[MetadataRequest],
        found: Iterable[TopicImage | MetadataResponseTopic],
    ) -> None:
        """Answer with topics that are to be described, and with such as are refused."""
        image = self._metadata.image
        reached = image.reached_by(request.connection.listener)
        response = MetadataResponse(
            cluster_id=image.cluster_id,
            controller_id=-1 if image.controller is None else image.controller,
            topics=[
                self._describe(request, each, reached) if isinstance(each, TopicImage) else each
                for each in found
            ],
            brokers=[
                MetadataResponseBroker(
                    node_id=broker_id,
                    host=endpoint.host,
                    port=endpoint.port,
                    rack=image.brokers[broker_id].rack,
                )
                for broker_id, endpoint in reached.items()
            ],
        )
        if request.body.include_cluster_authorized_operations:
            response.cluster_authorized_operations = CLUSTER_OPERATIONS
        request.reply(response)


def _leave_out_unavailable(described: MetadataResponsePartition) -> None:
    """Name only replicas that can be reached, and say that there are others: version 0 has no
    place for those that are offline, and its clients connect to all that are named."""
    offline = set(described.offline_replicas)
    there = [broker for broker in described.replica_nodes if broker not in offline]
    in_sync = [broker for broker in described.isr_nodes if broker not in offline]
    is_short = (there, in_sync) != (described.replica_nodes, described.isr_nodes)
    if is_short and described.error_code == ErrorCode.NONE:
        described.error_code = ErrorCode.REPLICA_NOT_AVAILABLE
    described.replica_nodes, described.isr_nodes = there, in_sync
