"""The values in force for one topic.

`TopicConfig` is what the rest of the system reads: plain typed attributes named after Kafka's
topic settings, with `.` written as `_`. Its defaults are Kafka's defaults, so that a log can be
made without any configuration; `load.topic_config` is the way from stored overrides to a value of
this class. It knows no broker and no text form of a value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

UNLIMITED: Final = -1
"""What `retention_ms` and `retention_bytes` say when nothing is deleted for age or size."""

FOLLOW_TOTAL: Final = -2
"""What `local_retention_*` say when the local limit is the total limit."""

LONG_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """What one topic's partitions follow. Times in milliseconds, sizes in bytes."""

    cleanup_policies: frozenset[str] = frozenset({"delete"})
    """Any of `delete` and `compact`; empty means that nothing is ever removed."""
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    delete_retention_ms: int = 86_400_000
    file_delete_delay_ms: int = 60_000
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    follower_replication_throttled_replicas: tuple[str, ...] = ()
    index_interval_bytes: int = 4096
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    local_retention_bytes: int = FOLLOW_TOTAL
    local_retention_ms: int = FOLLOW_TOTAL
    max_compaction_lag_ms: int = LONG_MAX
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    remote_log_copy_disable: bool = False
    remote_log_delete_on_disable: bool = False
    remote_storage_enable: bool = False
    retention_bytes: int = UNLIMITED
    retention_ms: int = 604_800_000
    segment_bytes: int = 1 << 30
    """`internal.segment.bytes` where a topic sets that one, else `segment.bytes`."""
    segment_index_bytes: int = 10_485_760
    segment_jitter_ms: int = 0
    segment_ms: int = 604_800_000
    unclean_leader_election_enable: bool = False

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policies

    @property
    def deletes_old_segments(self) -> bool:
        return "delete" in self.cleanup_policies

    @property
    def max_segment_ms(self) -> int:
        """How long a segment may stay active: a compacted topic must close it in time to compact.

        Only closed segments are compacted, so `max.compaction.lag.ms` bounds the age too.
        """
        if self.is_compacted and self.max_compaction_lag_ms > 0:
            return min(self.max_compaction_lag_ms, self.segment_ms)
        return self.segment_ms
