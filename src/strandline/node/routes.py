"""Which handler answers which API. What is not listed here is not advertised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from strandline.groups.coordinator import GroupCoordinator
from strandline.groups.settings import GroupSettings
from strandline.node.fetch_sessions import FetchSessions
from strandline.node.group_host import GroupHost
from strandline.node.handlers.api_versions import ApiVersionsHandler
from strandline.node.handlers.configs import ConfigsHandler
from strandline.node.handlers.delete_records import DeleteRecordsHandler
from strandline.node.handlers.describe import (
    DescribeClusterHandler,
    DescribeLogDirsHandler,
    DescribeTopicPartitionsHandler,
)
from strandline.node.handlers.fetch import FetchHandler
from strandline.node.handlers.groups import (
    FindCoordinatorHandler,
    GroupAdminHandler,
    MembershipHandler,
    OffsetsHandler,
)
from strandline.node.handlers.init_producer_id import InitProducerIdHandler
from strandline.node.handlers.list_offsets import ListOffsetsHandler, OffsetForLeaderEpochHandler
from strandline.node.handlers.metadata import MetadataHandler
from strandline.node.handlers.produce import ProduceHandler
from strandline.node.handlers.topics import TopicsHandler
from strandline.node.producer_ids import ProducerIds
from strandline.node.request import Handler
from strandline.protocol.apis import ApiKey
from strandline.records.codec import Codec

if TYPE_CHECKING:
    from strandline.node.node import Node


@dataclass(frozen=True, slots=True)
class Routes:
    """The handlers by API key, and the parts that the node itself needs."""

    handlers: Mapping[int, Handler]
    api_versions: ApiVersionsHandler
    groups: GroupHost


def build_routes(node: Node, random: Random) -> Routes:
    """Every handler of a node, wired to the parts that it uses."""
    broker = node.settings.broker
    replicas, metadata = node.replicas, node.metadata
    groups = GroupHost(
        GroupCoordinator(
            _group_settings(node), random, partition_count=broker.offsets_topic_num_partitions
        ),
        replicas,
        node.timers,
        Codec(broker.offsets_topic_compression_codec),
    )
    sessions = FetchSessions(broker.max_incremental_fetch_session_cache_slots, random)
    topics = TopicsHandler(node.controller, node.settings, random)
    configs = ConfigsHandler(metadata, node.controller, node.settings, node.broker_id)
    membership = MembershipHandler(groups)
    offsets = OffsetsHandler(groups, metadata)
    group_admin = GroupAdminHandler(groups)
    internal = replicas.internal_topics
    handlers: dict[int, Handler] = {
        ApiKey.PRODUCE: ProduceHandler(replicas, node.purgatory).handle,
        ApiKey.FETCH: FetchHandler(
            replicas, sessions, node.purgatory, answer_bytes_max=broker.fetch_max_bytes
        ).handle,
        ApiKey.LIST_OFFSETS: ListOffsetsHandler(replicas).handle,
        ApiKey.METADATA: MetadataHandler(metadata, node.settings, node.creation, internal).handle,
        ApiKey.OFFSET_COMMIT: offsets.commit,
        ApiKey.OFFSET_FETCH: offsets.fetch,
        ApiKey.FIND_COORDINATOR: FindCoordinatorHandler(metadata, groups, node.creation).handle,
        ApiKey.JOIN_GROUP: membership.join,
        ApiKey.HEARTBEAT: membership.heartbeat,
        ApiKey.LEAVE_GROUP: membership.leave,
        ApiKey.SYNC_GROUP: membership.sync,
        ApiKey.DESCRIBE_GROUPS: group_admin.describe,
        ApiKey.LIST_GROUPS: group_admin.list,
        ApiKey.CREATE_TOPICS: topics.create_topics,
        ApiKey.DELETE_TOPICS: topics.delete_topics,
        ApiKey.DELETE_RECORDS: DeleteRecordsHandler(replicas).handle,
        ApiKey.INIT_PRODUCER_ID: InitProducerIdHandler(
            ProducerIds(node.controller, node.broker_id)
        ).handle,
        ApiKey.OFFSET_FOR_LEADER_EPOCH: OffsetForLeaderEpochHandler(replicas).handle,
        ApiKey.DESCRIBE_CONFIGS: configs.describe,
        ApiKey.ALTER_CONFIGS: configs.alter,
        ApiKey.DESCRIBE_LOG_DIRS: DescribeLogDirsHandler(replicas).handle,
        ApiKey.CREATE_PARTITIONS: topics.create_partitions,
        ApiKey.DELETE_GROUPS: group_admin.delete,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: configs.incremental_alter,
        ApiKey.OFFSET_DELETE: offsets.delete,
        ApiKey.DESCRIBE_CLUSTER: DescribeClusterHandler(metadata).handle,
        ApiKey.LIST_CONFIG_RESOURCES: configs.list_resources,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: DescribeTopicPartitionsHandler(metadata, internal).handle,
    }
    api_versions = ApiVersionsHandler([ApiKey(key) for key in handlers])
    handlers[ApiKey.API_VERSIONS] = api_versions.handle
    return Routes(handlers, api_versions, groups)


def _group_settings(node: Node) -> GroupSettings:
    broker = node.settings.broker
    return GroupSettings(
        session_timeout_min_ms=broker.group_min_session_timeout_ms,
        session_timeout_max_ms=broker.group_max_session_timeout_ms,
        initial_rebalance_delay_ms=broker.group_initial_rebalance_delay_ms,
        members_max=broker.group_max_size,
        offset_metadata_max=broker.offset_metadata_max_bytes,
        offset_commit_timeout_ms=broker.offsets_commit_timeout_ms,
        offsets_retention_ms=broker.offsets_retention_ms,
        offsets_retention_check_interval_ms=broker.offsets_retention_check_interval_ms,
    )
