"""The values in force for one broker.

`BrokerConfig` is what the rest of the system reads: attributes are named after Kafka's broker
settings with `.` written as `_`, except where Kafka spells one value with several settings
(`log.retention.ms|minutes|hours`): those reach topics through `topic_defaults`. Defaults are
Kafka's, but for the deviations that docs/configuration.md lists. `load` makes values of this
class, from text; it knows no text form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from strandline.config.listeners import Listener
from strandline.config.topic import LONG_MAX, TopicConfig

_INT_MAX: Final = 2**31 - 1
_TLS_RECEIVE_BUFFER_BYTES: Final = 102_400
_LISTENER: Final = Listener("PLAINTEXT", "127.0.0.1", 9092)


@dataclass(frozen=True, slots=True)
class SettingLayers:
    """Where broker settings come from, as text by name; each layer overrides those before it."""

    static: Mapping[str, str] = field(default_factory=dict)
    """The properties file and the command line: fixed until the process restarts."""
    cluster_wide: Mapping[str, str] = field(default_factory=dict)
    """Dynamic settings of all brokers (config resource BROKER with an empty name)."""
    per_broker: Mapping[str, str] = field(default_factory=dict)
    """Dynamic settings of this broker."""

    def strongest_first(self) -> tuple[Mapping[str, str], ...]:
        return self.per_broker, self.cluster_wide, self.static


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """What one broker follows. Times in the unit of the name, sizes in bytes."""

    # Identity and network
    node_id: int = 1
    broker_rack: str | None = None
    listeners: tuple[Listener, ...] = (_LISTENER,)
    """Addresses to bind, at least one; listeners of a KRaft controller are left out."""
    advertised_listeners: tuple[Listener, ...] = (_LISTENER,)
    """Addresses told to clients; an empty host means the machine's own name, a 0 port the bound."""
    connections_max_idle_ms: int = 600_000
    max_connection_creation_rate: int = _INT_MAX
    max_connections: int = _INT_MAX
    max_connections_per_ip: int = _INT_MAX
    max_connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    queued_max_requests: int = 500
    """Requests in flight in the whole broker before it stops reading from connections."""
    queued_max_request_bytes: int = -1
    """What large requests that arrive may take of memory; -1: a quarter of what there is."""
    socket_listen_backlog_size: int = 50
    socket_receive_buffer_bytes: int = -1
    socket_request_max_bytes: int = 104_857_600
    socket_send_buffer_bytes: int = -1

    # Topics and fetches
    auto_create_topics_enable: bool = True
    default_replication_factor: int = 1
    delete_topic_enable: bool = True
    fetch_max_bytes: int = 57_671_680
    max_incremental_fetch_session_cache_slots: int = 1000
    message_max_bytes: int = 1_048_588
    min_insync_replicas: int = 1
    num_partitions: int = 1
    unclean_leader_election_enable: bool = False

    # Compaction
    log_cleaner_backoff_ms: int = 15_000
    log_cleaner_dedupe_buffer_size: int = 134_217_728
    log_cleaner_enable: bool = True
    log_cleaner_io_buffer_load_factor: float = 0.9
    log_cleaner_io_buffer_size: int = 524_288
    log_cleaner_io_max_bytes_per_second: float = 1.7976931348623157e308
    log_cleaner_threads: int = 1

    # Log directories
    log_dirs: tuple[str, ...] = ("./strandline-data",)
    alter_log_dirs_replication_quota_window_num: int = 11
    alter_log_dirs_replication_quota_window_size_seconds: int = 1
    num_replica_alter_log_dirs_threads: int | None = None
    replica_alter_log_dirs_io_max_bytes_per_second: int = LONG_MAX
    log_flush_offset_checkpoint_interval_ms: int = 60_000
    log_flush_scheduler_interval_ms: int = LONG_MAX
    log_flush_start_offset_checkpoint_interval_ms: int = 60_000
    log_initial_task_delay_ms: int = 30_000
    num_recovery_threads_per_data_dir: int = 2
    log_retention_check_interval_ms: int = 300_000
    replica_high_watermark_checkpoint_interval_ms: int = 5000

    # Replication
    follower_replication_throttled_rate: int = LONG_MAX
    inter_broker_listener: Listener = _LISTENER
    """By which of the advertised listeners brokers reach each other."""
    leader_replication_throttled_rate: int = LONG_MAX
    num_replica_fetchers: int = 1
    replica_fetch_backoff_ms: int = 1000
    replica_fetch_max_bytes: int = 1_048_576
    replica_fetch_min_bytes: int = 1
    replica_fetch_response_max_bytes: int = 10_485_760
    replica_fetch_wait_max_ms: int = 500
    replica_lag_time_max_ms: int = 30_000
    replica_selector_class: str | None = None
    replica_socket_timeout_ms: int = 30_000
    controller_quota_window_num: int = 11
    controller_quota_window_size_seconds: int = 1
    quota_window_num: int = 11
    quota_window_size_seconds: int = 1
    replication_quota_window_num: int = 11
    replication_quota_window_size_seconds: int = 1

    # The cluster
    auto_leader_rebalance_enable: bool = True
    controlled_shutdown_enable: bool = True
    controlled_shutdown_max_retries: int = 3
    controlled_shutdown_retry_backoff_ms: int = 5000
    controller_socket_timeout_ms: int = 30_000
    leader_imbalance_check_interval_seconds: int = 300
    leader_imbalance_per_broker_percentage: int = 10
    zookeeper_connect: str | None = None
    """Where the metadata is; None: in a store of this process."""
    zookeeper_connection_timeout_ms: int | None = None
    """How long a start waits for ZooKeeper; None: as its store thinks right."""
    zookeeper_session_timeout_ms: int = 18_000
    zookeeper_set_acl: bool = False
    zookeeper_ssl_client_enable: bool = False
    zookeeper_ssl_endpoint_identification_algorithm: str = "HTTPS"
    zookeeper_ssl_keystore_location: str | None = None
    zookeeper_ssl_keystore_password: str | None = field(default=None, repr=False)
    zookeeper_ssl_truststore_location: str | None = None
    zookeeper_ssl_truststore_password: str | None = field(default=None, repr=False)

    # Consumer groups
    group_consumer_assignment_interval_ms: int = 1000
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    group_consumer_heartbeat_interval_ms: int = 5000
    group_consumer_max_assignment_interval_ms: int = 15_000
    group_consumer_max_heartbeat_interval_ms: int = 15_000
    group_consumer_max_session_timeout_ms: int = 60_000
    group_consumer_max_size: int = _INT_MAX
    group_consumer_migration_policy: str = "bidirectional"
    group_consumer_min_assignment_interval_ms: int = 0
    group_consumer_min_heartbeat_interval_ms: int = 5000
    group_consumer_min_session_timeout_ms: int = 45_000
    group_consumer_regex_refresh_interval_ms: int = 600_000
    group_consumer_session_timeout_ms: int = 45_000
    group_coordinator_rebalance_protocols: tuple[str, ...] = ("classic", "consumer", "streams")
    group_initial_rebalance_delay_ms: int = 3000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = _INT_MAX
    group_min_session_timeout_ms: int = 6000
    offset_metadata_max_bytes: int = 4096
    offsets_commit_timeout_ms: int = 5000
    offsets_load_buffer_size: int = 5_242_880
    offsets_retention_check_interval_ms: int = 600_000
    offsets_retention_minutes: int = 10_080
    offsets_topic_compression_codec: int = 0
    offsets_topic_num_partitions: int = 50
    offsets_topic_replication_factor: int = 3
    offsets_topic_segment_bytes: int = 104_857_600

    # Producers and transactions
    producer_id_expiration_check_interval_ms: int = 600_000
    producer_id_expiration_ms: int = 86_400_000
    add_partitions_to_txn_retry_backoff_max_ms: int = 100
    add_partitions_to_txn_retry_backoff_ms: int = 20
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10_000
    transaction_max_timeout_ms: int = 900_000
    transaction_partition_verification_enable: bool = True
    transaction_remove_expired_transaction_cleanup_interval_ms: int = 3_600_000
    transaction_state_log_load_buffer_size: int = 5_242_880
    transaction_state_log_min_isr: int = 2
    transaction_state_log_num_partitions: int = 50
    transaction_state_log_replication_factor: int = 3
    transaction_state_log_segment_bytes: int = 104_857_600
    transactional_id_expiration_ms: int = 604_800_000

    # Share groups
    group_share_assignment_interval_ms: int = 1_000
    group_share_delivery_count_limit: int = 5
    group_share_heartbeat_interval_ms: int = 5_000
    group_share_max_assignment_interval_ms: int = 15_000
    group_share_max_delivery_count_limit: int = 10
    group_share_max_heartbeat_interval_ms: int = 15_000
    group_share_max_partition_max_record_locks: int = 4_000
    group_share_max_record_lock_duration_ms: int = 60_000
    group_share_max_session_timeout_ms: int = 60_000
    group_share_max_share_sessions: int = 2_000
    group_share_max_size: int = 200
    group_share_min_assignment_interval_ms: int = 0
    group_share_min_delivery_count_limit: int = 2
    group_share_min_heartbeat_interval_ms: int = 5_000
    group_share_min_partition_max_record_locks: int = 100
    group_share_min_record_lock_duration_ms: int = 15_000
    group_share_min_session_timeout_ms: int = 45_000
    group_share_partition_max_record_locks: int = 2_000
    group_share_record_lock_duration_ms: int = 30_000
    group_share_session_timeout_ms: int = 45_000
    share_coordinator_load_buffer_size: int = 5_242_880
    share_coordinator_snapshot_update_records_per_snapshot: int = 500
    share_coordinator_state_topic_min_isr: int = 2
    share_coordinator_state_topic_num_partitions: int = 50
    share_coordinator_state_topic_prune_interval_ms: int = 300_000
    share_coordinator_state_topic_replication_factor: int = 3
    share_coordinator_state_topic_segment_bytes: int = 104_857_600
    share_coordinator_write_timeout_ms: int = 5_000

    # Security; what belongs to single listeners is read by `listener_settings`
    allow_everyone_if_no_acl_found: bool = False
    authorizer_class_name: str = ""
    super_users: str = ""
    connection_failed_authentication_delay_ms: int = 100
    delegation_token_expiry_check_interval_ms: int = 3_600_000
    delegation_token_expiry_time_ms: int = 86_400_000
    delegation_token_max_lifetime_ms: int = 604_800_000
    delegation_token_secret_key: str | None = field(default=None, repr=False)
    """The same on all brokers; without one there are no delegation tokens."""

    # Our own
    strandline_allow_insecure_listeners: bool = False
    strandline_authentication_timeout_ms: int = 10_000
    strandline_audit_log_allowed: bool = False
    strandline_audit_log_path: str | None = None
    strandline_ledger_retention_bytes: int = 1 << 30
    strandline_ledger_retention_ms: int = 604_800_000
    strandline_zookeeper_digest: str | None = field(default=None, repr=False)

    topic_defaults: TopicConfig = field(default_factory=TopicConfig)
    """What a topic without overrides follows on this broker."""
    layers: SettingLayers = field(default_factory=SettingLayers, repr=False)
    """The text that all of the above was made from."""

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * 60_000

    def offsets_topic_replicas(self, broker_count: int) -> int:
        """The replication factor for `__consumer_offsets` in a cluster of this many brokers.

        Kafka refuses to create the topic while there are fewer brokers than the factor. Here a
        factor that was not asked for shrinks to the cluster; one that was asked for is insisted on.
        """
        wanted = self.offsets_topic_replication_factor
        return self._shrunk("offsets.topic.replication.factor", wanted, broker_count)

    def transaction_topic_replicas(self, broker_count: int) -> int:
        """As `offsets_topic_replicas`, for `__transaction_state`."""
        wanted = self.transaction_state_log_replication_factor
        return self._shrunk("transaction.state.log.replication.factor", wanted, broker_count)

    def transaction_topic_min_in_sync(self, broker_count: int) -> int:
        """`min.insync.replicas` of `__transaction_state`: at most all of a small cluster."""
        wanted = self.transaction_state_log_min_isr
        return self._shrunk("transaction.state.log.min.isr", wanted, broker_count)

    def share_topic_replicas(self, broker_count: int) -> int:
        """As `offsets_topic_replicas`, for `__share_group_state`."""
        wanted = self.share_coordinator_state_topic_replication_factor
        name = "share.coordinator.state.topic.replication.factor"
        return self._shrunk(name, wanted, broker_count)

    def share_topic_min_in_sync(self, broker_count: int) -> int:
        """`min.insync.replicas` of `__share_group_state`: at most all of a small cluster."""
        wanted = self.share_coordinator_state_topic_min_isr
        return self._shrunk("share.coordinator.state.topic.min.isr", wanted, broker_count)

    def receive_buffer_bytes(self, listener: Listener) -> int:
        """SO_RCVBUF of the connections of a listener; below 1 leaves it to the system.

        With TLS, Kafka's default: clients send small records, and a system with room for megabytes
        of them takes each one on its own instead of having the sender join them.
        """
        wanted = self.socket_receive_buffer_bytes
        if listener.has_tls and not self._is_asked_for("socket.receive.buffer.bytes"):
            return _TLS_RECEIVE_BUFFER_BYTES
        return wanted

    def _shrunk(self, name: str, wanted: int, broker_count: int) -> int:
        return wanted if self._is_asked_for(name) else min(wanted, max(1, broker_count))

    def _is_asked_for(self, name: str) -> bool:
        return any(name in layer for layer in self.layers.strongest_first())
