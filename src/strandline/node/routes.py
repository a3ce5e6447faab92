"""Which handler answers which API. What is not listed here is not advertised.

Handlers are imported and made when their API is first asked for: a broker pays, in start-up time
and in memory, for what its clients use.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from random import Random
from typing import TYPE_CHECKING, Final

from strandline.node.parts import NodeParts
from strandline.node.request import Handler, Request
from strandline.protocol.apis import PRIVATE, ApiKey

if TYPE_CHECKING:
    from strandline.node.fetch_sessions import FetchSessions
    from strandline.node.handlers.fetch import FetchHandler

_NOT_ADVERTISED: Final = frozenset({ApiKey.ALTER_PARTITION, *PRIVATE})
"""Served, but of no use to Kafka's clients."""

Family = Callable[[], Mapping[int, Handler]]
"""Makes the handlers of APIs that belong together."""


class Routes:
    """The handlers of one node."""

    def __init__(self, node: NodeParts, random: Random) -> None:
        self._node = node
        self._random = random
        self.fetch_sessions: FetchSessions | None = None
        self.fetches: FetchHandler | None = None
        """Both None before the first fetch."""
        self._made: dict[int, Handler] = {}
        self._families: dict[int, Family] = {
            ApiKey.API_VERSIONS: self._api_versions,
            ApiKey.PRODUCE: self._produce,
            ApiKey.FETCH: self._fetch,
            ApiKey.LIST_OFFSETS: self._offsets,
            ApiKey.OFFSET_FOR_LEADER_EPOCH: self._offsets,
            ApiKey.METADATA: self._metadata,
            ApiKey.DESCRIBE_CLUSTER: self._describe,
            ApiKey.DESCRIBE_TOPIC_PARTITIONS: self._describe,
            ApiKey.DESCRIBE_LOG_DIRS: self._describe,
            ApiKey.ALTER_REPLICA_LOG_DIRS: self._log_dirs,
            ApiKey.UNREGISTER_BROKER: self._unregister_broker,
            ApiKey.UPDATE_FEATURES: self._update_features,
            ApiKey.SASL_HANDSHAKE: self._sasl,
            ApiKey.SASL_AUTHENTICATE: self._sasl,
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: self._scram_users,
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS: self._scram_users,
            ApiKey.CREATE_DELEGATION_TOKEN: self._delegation_tokens,
            ApiKey.RENEW_DELEGATION_TOKEN: self._delegation_tokens,
            ApiKey.EXPIRE_DELEGATION_TOKEN: self._delegation_tokens,
            ApiKey.DESCRIBE_DELEGATION_TOKEN: self._delegation_tokens,
            ApiKey.CREATE_TOPICS: self._topics,
            ApiKey.DELETE_TOPICS: self._topics,
            ApiKey.CREATE_PARTITIONS: self._topics,
            ApiKey.ELECT_LEADERS: self._elections,
            ApiKey.ALTER_PARTITION_REASSIGNMENTS: self._elections,
            ApiKey.LIST_PARTITION_REASSIGNMENTS: self._elections,
            ApiKey.ALTER_PARTITION: self._alter_partition,
            ApiKey.DELETE_RECORDS: self._delete_records,
            ApiKey.DESCRIBE_CONFIGS: self._configs,
            ApiKey.ALTER_CONFIGS: self._configs,
            ApiKey.INCREMENTAL_ALTER_CONFIGS: self._configs,
            ApiKey.LIST_CONFIG_RESOURCES: self._configs,
            ApiKey.DESCRIBE_CLIENT_QUOTAS: self._quotas,
            ApiKey.ALTER_CLIENT_QUOTAS: self._quotas,
            ApiKey.DESCRIBE_ACLS: self._acls,
            ApiKey.CREATE_ACLS: self._acls,
            ApiKey.DELETE_ACLS: self._acls,
            ApiKey.INIT_PRODUCER_ID: self._init_producer_id,
            ApiKey.FIND_COORDINATOR: self._groups,
            ApiKey.JOIN_GROUP: self._groups,
            ApiKey.SYNC_GROUP: self._groups,
            ApiKey.HEARTBEAT: self._groups,
            ApiKey.LEAVE_GROUP: self._groups,
            ApiKey.OFFSET_COMMIT: self._groups,
            ApiKey.OFFSET_FETCH: self._groups,
            ApiKey.OFFSET_DELETE: self._groups,
            ApiKey.LIST_GROUPS: self._groups,
            ApiKey.DESCRIBE_GROUPS: self._groups,
            ApiKey.DELETE_GROUPS: self._groups,
            ApiKey.TXN_OFFSET_COMMIT: self._txn_offset_commit,
            ApiKey.ADD_PARTITIONS_TO_TXN: self._transactions,
            ApiKey.ADD_OFFSETS_TO_TXN: self._transactions,
            ApiKey.END_TXN: self._transactions,
            ApiKey.DESCRIBE_TRANSACTIONS: self._transactions,
            ApiKey.LIST_TRANSACTIONS: self._transactions,
            ApiKey.WRITE_TXN_MARKERS: self._partition_producers,
            ApiKey.DESCRIBE_PRODUCERS: self._partition_producers,
            ApiKey.CONSUMER_GROUP_HEARTBEAT: self._group_heartbeats,
            ApiKey.CONSUMER_GROUP_DESCRIBE: self._group_heartbeats,
            ApiKey.SHARE_GROUP_HEARTBEAT: self._share_groups,
            ApiKey.SHARE_GROUP_DESCRIBE: self._share_groups,
            ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: self._share_groups,
            ApiKey.ALTER_SHARE_GROUP_OFFSETS: self._share_groups,
            ApiKey.DELETE_SHARE_GROUP_OFFSETS: self._share_groups,
            ApiKey.SHARE_FETCH: self._share_fetches,
            ApiKey.SHARE_ACKNOWLEDGE: self._share_fetches,
            ApiKey.INITIALIZE_SHARE_GROUP_STATE: self._share_states,
            ApiKey.READ_SHARE_GROUP_STATE: self._share_states,
            ApiKey.WRITE_SHARE_GROUP_STATE: self._share_states,
            ApiKey.DELETE_SHARE_GROUP_STATE: self._share_states,
            ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: self._share_states,
            ApiKey.INSPECT: self._inspect,
        }

    @property
    def served(self) -> Collection[int]:
        """The keys of all APIs that have a handler."""
        return self._families.keys()

    def find(self, api_key: int) -> Handler | None:
        """The handler of an API, or None if it is not served."""
        handler = self._made.get(api_key)
        if handler is None:
            family = self._families.get(api_key)
            if family is None:
                return None
            self._made.update(self._guarded(family()))
            handler = self._made[api_key]
        return handler

    def _guarded(self, handlers: Mapping[int, Handler]) -> Mapping[int, Handler]:
        """The handlers, each behind the question whether the client may."""
        authority = self._node.authority
        if authority is None:
            return handlers
        from strandline.node.authorization.guarded import guarded

        return {key: guarded(key, handler, authority) for key, handler in handlers.items()}

    def refuse_version(self, request: Request[None]) -> None:
        """Answer ApiVersions in a version that is not known here."""
        from strandline.node.handlers.api_versions import ApiVersionsHandler

        ApiVersionsHandler(self._served(), self._node.metadata).handle_unknown_version(request)

    def _served(self) -> list[ApiKey]:
        return [ApiKey(key) for key in self._families if key not in _NOT_ADVERTISED]

    def _api_versions(self) -> Mapping[int, Handler]:
        from strandline.node.handlers.api_versions import ApiVersionsHandler

        handler = ApiVersionsHandler(self._served(), self._node.metadata)
        return {ApiKey.API_VERSIONS: handler.handle}

    def _produce(self) -> Mapping[int, Handler]:
        from strandline.node.handlers.produce import ProduceHandler
        from strandline.node.handlers.produce_slices import ProduceSlices

        node = self._node
        slices = ProduceSlices(node.timers, node.outbox, node.quotas)
        handler = ProduceHandler(node.replicas, node.transactions, node.settings, slices)
        return {ApiKey.PRODUCE: handler.handle}

    def _fetch(self) -> Mapping[int, Handler]:
        from strandline.node.fetch_sessions import FetchSessions
        from strandline.node.handlers.fetch import FetchHandler

        node, broker = self._node, self._node.settings.broker
        sessions = FetchSessions(broker.max_incremental_fetch_session_cache_slots, self._random)
        handler = FetchHandler(
            node.replicas, sessions, node.purgatory, node.settings, node.quotas, node.authority
        )
        self.fetch_sessions, self.fetches = sessions, handler
        return {ApiKey.FETCH: handler.handle}

    def _offsets(self) -> Mapping[int, Handler]:
        from strandline.node.handlers.list_offsets import (
            ListOffsetsHandler,
            OffsetForLeaderEpochHandler,
        )

        replicas = self._node.replicas
        return {
            ApiKey.LIST_OFFSETS: ListOffsetsHandler(replicas).handle,
            ApiKey.OFFSET_FOR_LEADER_EPOCH: OffsetForLeaderEpochHandler(replicas).handle,
        }

    def _metadata(self) -> Mapping[int, Handler]:
        from strandline.node.handlers.metadata import MetadataHandler

        node = self._node
        handler = MetadataHandler(
            node.metadata, node.settings, node.creation, node.replicas.internal_topics, node.quotas
        )
        return {ApiKey.METADATA: handler.handle}

    def _describe(self) -> Mapping[int, Handler]:
        from strandline.node.handlers.describe import (
            DescribeClusterHandler,
            DescribeLogDirsHandler,
            DescribeTopicPartitionsHandler,
        )

        node = self._node
        topics = DescribeTopicPartitionsHandler(node.metadata, node.replicas.internal_topics)
        return {
            ApiKey.DESCRIBE_CLUSTER: DescribeClusterHandler(node.metadata).handle,
            ApiKey.DESCRIBE_TOPIC_PARTITIONS: topics.handle,
            ApiKey.DESCRIBE_LOG_DIRS: DescribeLogDirsHandler(node.replicas).handle,
        }

    def _log_dirs(self) -> Mapping[int, Handler]:
        from strandline.node.handlers.alter_replica_log_dirs import AlterReplicaLogDirsHandler

        node = self._node
        handler = AlterReplicaLogDirsHandler(node.replicas, node.background.moves)
        return {ApiKey.ALTER_REPLICA_LOG_DIRS: handler.handle}

    def _unregister_broker(self) -> Mapping[int, Handler]:
        from strandline.node.handlers.unregister_broker import UnregisterBrokerHandler

        handler = UnregisterBrokerHandler(self._node.controller)
        return {ApiKey.UNREGISTER_BROKER: handler.handle}

    def _update_features(self) -> Mapping[int, Handler]:
        from strandline.node.handlers.update_features import UpdateFeaturesHandler

        handler = UpdateFeaturesHandler(self._node.controller_loop)
        return {ApiKey.UPDATE_FEATURES: handler.handle}

    def _sasl(self) -> Mapping[int, Handler]:
        from strandline.node.handlers import sasl

        return {
            ApiKey.SASL_HANDSHAKE: sasl.handshake,
            ApiKey.SASL_AUTHENTICATE: sasl.authenticate,
        }

    def _scram_users(self) -> Mapping[int, Handler]:
        from strandline.node.handlers.scram_users import ScramUsersHandler

        handler = ScramUsersHandler(self._node.metadata, self._node.controller)
        return {
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: handler.describe,
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS: handler.alter,
        }

    def _delegation_tokens(self) -> Mapping[int, Handler]:
        from strandline.node.handlers.delegation_tokens import DelegationTokensHandler

        node = self._node
        handler = DelegationTokensHandler(
            node.authentication.delegation_tokens,
            node.metadata,
            node.controller,
            node.settings,
            self._random,
        )
        return {
            ApiKey.CREATE_DELEGATION_TOKEN: handler.create,
            ApiKey.RENEW_DELEGATION_TOKEN: handler.renew,
            ApiKey.EXPIRE_DELEGATION_TOKEN: handler.expire,
            ApiKey.DESCRIBE_DELEGATION_TOKEN: handler.describe,
        }

    def _topics(self) -> Mapping[int, Handler]:
        from strandline.node.handlers.topics import TopicsHandler

        node = self._node
        topics = TopicsHandler(
            node.metadata,
            node.controller_loop,
            node.settings,
            node.timers,
            node.quotas,
            self._random,
        )
        return {
            ApiKey.CREATE_TOPICS: topics.create_topics,
            ApiKey.DELETE_TOPICS: topics.delete_topics,
            ApiKey.CREATE_PARTITIONS: topics.create_partitions,
        }

    def _elections(self) -> Mapping[int, Handler]:
        from strandline.node.handlers.elections import ElectLeadersHandler, ReassignmentsHandler

        node = self._node
        moves = ReassignmentsHandler(node.controller_loop, node.metadata)
        return {
            ApiKey.ELECT_LEADERS: ElectLeadersHandler(node.controller_loop, node.metadata).handle,
            ApiKey.ALTER_PARTITION_REASSIGNMENTS: moves.alter,
            ApiKey.LIST_PARTITION_REASSIGNMENTS: moves.list,
        }

    def _alter_partition(self) -> Mapping[int, Handler]:
        from strandline.node.handlers.alter_partition import AlterPartitionHandler

        return {ApiKey.ALTER_PARTITION: AlterPartitionHandler(self._node.controller_loop).handle}

    def _delete_records(self) -> Mapping[int, Handler]:
        from strandline.node.handlers.delete_records import DeleteRecordsHandler

        node = self._node
        return {ApiKey.DELETE_RECORDS: DeleteRecordsHandler(node.replicas, node.purgatory).handle}

    def _configs(self) -> Mapping[int, Handler]:
        from strandline.node.handlers.configs import ConfigsHandler

        node = self._node
        configs = ConfigsHandler(
            node.metadata,
            node.controller,
            node.settings,
            node.broker_id,
            lambda config: node.check_listeners(config),
        )
        return {
            ApiKey.DESCRIBE_CONFIGS: configs.describe,
            ApiKey.ALTER_CONFIGS: configs.alter,
            ApiKey.INCREMENTAL_ALTER_CONFIGS: configs.incremental_alter,
            ApiKey.LIST_CONFIG_RESOURCES: configs.list_resources,
        }

    def _quotas(self) -> Mapping[int, Handler]:
        from strandline.node.handlers.client_quotas import ClientQuotasHandler

        quotas = ClientQuotasHandler(self._node.metadata, self._node.controller)
        return {
            ApiKey.DESCRIBE_CLIENT_QUOTAS: quotas.describe,
            ApiKey.ALTER_CLIENT_QUOTAS: quotas.alter,
        }

    def _acls(self) -> Mapping[int, Handler]:
        from strandline.node.handlers.acls import AclsHandler

        node = self._node
        acls = AclsHandler(node.metadata, node.controller, is_enabled=node.authority is not None)
        return {
            ApiKey.DESCRIBE_ACLS: acls.describe,
            ApiKey.CREATE_ACLS: acls.create,
            ApiKey.DELETE_ACLS: acls.delete,
        }

    def _init_producer_id(self) -> Mapping[int, Handler]:
        from strandline.node.handlers.init_producer_id import InitProducerIdHandler

        transactions = self._node.transactions
        handler = InitProducerIdHandler(transactions.producer_ids, lambda: transactions.host)
        return {ApiKey.INIT_PRODUCER_ID: handler.handle}

    def _transactions(self) -> Mapping[int, Handler]:
        from strandline.node.handlers.transactions import TransactionsHandler

        node = self._node
        handler = TransactionsHandler(node.transactions.host, node.groups, node.metadata)
        return {
            ApiKey.ADD_PARTITIONS_TO_TXN: handler.add_partitions,
            ApiKey.ADD_OFFSETS_TO_TXN: handler.add_offsets,
            ApiKey.END_TXN: handler.end,
            ApiKey.DESCRIBE_TRANSACTIONS: handler.describe,
            ApiKey.LIST_TRANSACTIONS: handler.list_all,
        }

    def _txn_offset_commit(self) -> Mapping[int, Handler]:
        from strandline.node.handlers.txn_offset_commit import TxnOffsetCommitHandler

        node = self._node
        handler = TxnOffsetCommitHandler(
            node.groups.host,
            node.metadata,
            node.replicas,
            node.transactions.verifier,
            node.settings,
        )
        return {ApiKey.TXN_OFFSET_COMMIT: handler.handle}

    def _partition_producers(self) -> Mapping[int, Handler]:
        from strandline.node.handlers.partition_producers import (
            DescribeProducersHandler,
            WriteTxnMarkersHandler,
        )

        node = self._node
        markers = WriteTxnMarkersHandler(node.transactions.writer)
        return {
            ApiKey.WRITE_TXN_MARKERS: markers.handle,
            ApiKey.DESCRIBE_PRODUCERS: DescribeProducersHandler(node.replicas).handle,
        }

    def _inspect(self) -> Mapping[int, Handler]:
        from strandline.node.inspection import InspectHandler

        return {ApiKey.INSPECT: InspectHandler(self._node).handle}

    def _group_heartbeats(self) -> Mapping[int, Handler]:
        from strandline.node.handlers.group_heartbeats import ConsumerGroupsHandler

        node = self._node
        consumers = ConsumerGroupsHandler(
            lambda: node.groups.host, node.metadata, node.settings, node.authority
        )
        return {
            ApiKey.CONSUMER_GROUP_HEARTBEAT: consumers.heartbeat,
            ApiKey.CONSUMER_GROUP_DESCRIBE: consumers.describe,
        }

    def _share_groups(self) -> Mapping[int, Handler]:
        from strandline.node.handlers.share_groups import ShareGroupsHandler

        node = self._node
        handler = ShareGroupsHandler(node.groups.host, node.metadata, node.sharing, node.authority)
        return {
            ApiKey.SHARE_GROUP_HEARTBEAT: handler.heartbeat,
            ApiKey.SHARE_GROUP_DESCRIBE: handler.describe,
            ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: handler.describe_offsets,
            ApiKey.ALTER_SHARE_GROUP_OFFSETS: handler.alter_offsets,
            ApiKey.DELETE_SHARE_GROUP_OFFSETS: handler.delete_offsets,
        }

    def _share_fetches(self) -> Mapping[int, Handler]:
        from strandline.node.handlers.share_fetch import ShareFetchHandler

        node = self._node
        handler = ShareFetchHandler(
            node.sharing, node.replicas, node.metadata, node.purgatory, node.quotas, node.authority
        )
        return {ApiKey.SHARE_FETCH: handler.fetch, ApiKey.SHARE_ACKNOWLEDGE: handler.acknowledge}

    def _share_states(self) -> Mapping[int, Handler]:
        from strandline.node.handlers.share_state import ShareStateHandler

        handle = ShareStateHandler(lambda: self._node.sharing.host).handle
        return {
            ApiKey.INITIALIZE_SHARE_GROUP_STATE: handle,
            ApiKey.READ_SHARE_GROUP_STATE: handle,
            ApiKey.WRITE_SHARE_GROUP_STATE: handle,
            ApiKey.DELETE_SHARE_GROUP_STATE: handle,
            ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: handle,
        }

    def _groups(self) -> Mapping[int, Handler]:
        from strandline.node.handlers.find_coordinator import FindCoordinatorHandler
        from strandline.node.handlers.groups import (
            GroupAdminHandler,
            MembershipHandler,
            OffsetsHandler,
        )

        node, groups = self._node, self._node.groups.host
        membership = MembershipHandler(groups)
        offsets = OffsetsHandler(groups, node.metadata)
        admin = GroupAdminHandler(groups)
        coordinators = FindCoordinatorHandler(
            node.metadata, node.creation, node.groups, node.transactions, node.sharing
        )
        return {
            ApiKey.FIND_COORDINATOR: coordinators.handle,
            ApiKey.JOIN_GROUP: membership.join,
            ApiKey.SYNC_GROUP: membership.sync,
            ApiKey.HEARTBEAT: membership.heartbeat,
            ApiKey.LEAVE_GROUP: membership.leave,
            ApiKey.OFFSET_COMMIT: offsets.commit,
            ApiKey.OFFSET_FETCH: offsets.fetch,
            ApiKey.OFFSET_DELETE: offsets.delete,
            ApiKey.LIST_GROUPS: admin.list,
            ApiKey.DESCRIBE_GROUPS: admin.describe,
            ApiKey.DELETE_GROUPS: admin.delete,
        }
