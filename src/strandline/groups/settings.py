"""What the group coordinator can be told to do differently, under Kafka's names.

Knows only the settings that this package uses; how they are read from a file is `config`'s work.
"""

from __future__ import annotations

from dataclasses import dataclass, field

MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class ConsumerGroupSettings:
    """What concerns groups of the consumer protocol (KIP-848). The times of a group are its own:
    see `consumer.cluster_view`."""

    members_max: int = 2**31 - 1
    """`group.consumer.max.size`."""
    assignors: tuple[str, ...] = ("uniform", "range")
    """`group.consumer.assignors`; the first is taken if no member asks for one."""
    may_upgrade: bool = True
    may_downgrade: bool = True
    """`group.consumer.migration.policy`: whether groups with members may change their protocol."""
    regex_refresh_interval_ms: int = 10 * MINUTE_MS
    """`group.consumer.regex.refresh.interval.ms`."""

    @property
    def is_migration_disabled(self) -> bool:
        """Whether members of the classic protocol are kept out of consumer groups."""
        return not (self.may_upgrade or self.may_downgrade)


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The coordinator's settings; each default is that of Kafka 4.3."""

    session_timeout_min_ms: int = 6_000
    """`group.min.session.timeout.ms`."""
    session_timeout_max_ms: int = 30 * MINUTE_MS
    """`group.max.session.timeout.ms`."""
    initial_rebalance_delay_ms: int = 3_000
    """`group.initial.rebalance.delay.ms`: how long a new group waits for more members."""
    members_max: int = 2**31 - 1
    """`group.max.size`."""
    new_member_join_timeout_ms: int = 5 * MINUTE_MS
    """How long a new member may wait in a join before it must ask again. Kafka has no setting."""
    offset_metadata_max: int = 4_096
    """`offset.metadata.max.bytes`, which Kafka counts in UTF-16 units."""
    offset_commit_timeout_ms: int = 5_000
    """`offsets.commit.timeout.ms`: how long an append may take before its request is refused."""
    offsets_retention_ms: int = 7 * 24 * 60 * MINUTE_MS
    """`offsets.retention.minutes`."""
    offsets_retention_check_interval_ms: int = 10 * MINUTE_MS
    """`offsets.retention.check.interval.ms`."""
    consumer: ConsumerGroupSettings = field(default_factory=ConsumerGroupSettings)
    share_members_max: int = 200
    """`group.share.max.size`."""
    append_bytes_max: int = 512 * 1024
    """Clean-up work that need not be atomic is cut into appends of about this size."""
