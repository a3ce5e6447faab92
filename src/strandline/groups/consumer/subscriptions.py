"""What groups subscribe to: when that gives a group a new epoch, and how patterns become topics.

A group gets a new epoch when members change what they subscribe to, when a pattern matches other
topics, and when a topic it reads changes, which its hash shows. Topics are looked at when a member
sends a heartbeat. Patterns are matched against all topics of the cluster in steps of their own, at
most every ten seconds for a group: when one is new, when topics are new, and now and then.
"""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import Final

from strandline.groups.consumer.changes import Change
from strandline.groups.consumer.cluster_view import ClusterView
from strandline.groups.consumer.group import ConsumerGroup
from strandline.groups.consumer.image import ResolvedRegex
from strandline.groups.consumer.member import ConsumerMember
from strandline.groups.consumer.metadata_hash import TopicHashes
from strandline.groups.consumer.records import GroupEpoch, RegexTopics, TopicMetadata
from strandline.groups.consumer.regex import Matching, check_pattern
from strandline.groups.shard import Shard
from strandline.protocol.messages.consumer_groups_topic import (
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionValue,
)
from strandline.types import Instant

_PATTERN_INTERVAL_MS: Final = 10_000


class PatternChange(Enum):
    """What became of a member's pattern."""

    NONE = "none"
    UNRESOLVED = "unresolved"
    """It is another one, whose topics are not known yet."""
    RESOLVED = "resolved"
    """It is another one, and its topics are known; or there is none any more."""


class Subscriptions:
    """Epochs and patterns of the groups of one shard."""

    def __init__(self, shard: Shard, cluster: ClusterView, hashes: TopicHashes) -> None:
        self._shard = shard
        self._cluster = cluster
        self._hashes = hashes

    # Epochs.

    def look_at_topics(self, change: Change, reason: str, *, must_bump: bool) -> None:
        """Give the group a new epoch if it must have one, or if its topics have changed."""
        group = change.group
        new_hash = self._hashes.of_group(group.subscribed_topics())
        if new_hash != group.image.metadata_hash and not must_bump:
            reason, must_bump = "Topics that the group reads have changed.", True
        if must_bump:
            self.bump(change, reason, new_hash)
        group.refreshed_epoch = group.image.epoch
        if group.image.has_topic_metadata:
            change.write(TopicMetadata(group.group_id, None))

    def bump(self, change: Change, reason: str, metadata_hash: int | None = None) -> None:
        """Give the group its next epoch."""
        group = change.group
        if metadata_hash is None:
            metadata_hash = self._hashes.of_group(group.subscribed_topics())
        value = ConsumerGroupMetadataValue(epoch=group.image.epoch + 1, metadata_hash=metadata_hash)
        change.write(GroupEpoch(group.group_id, value))
        group.reason = reason

    def is_due(self, group: ConsumerGroup) -> bool:
        """Whether the group's topics may have changed since they were looked at."""
        return group.refreshed_epoch is None or group.image.epoch < group.refreshed_epoch

    # Patterns.

    def check(self, group: ConsumerGroup, before: ConsumerMember, pattern: str) -> None:
        """Refuse a pattern that is new to the group and cannot be used. Raises `ProtocolError`."""
        if pattern and pattern != before.topic_regex and not group.patterns.get(pattern):
            check_pattern(pattern)

    def follow(
        self, change: Change, before: ConsumerMember, after: ConsumerMember, now: Instant
    ) -> PatternChange:
        """A member's metadata is written: see to its pattern, and to those of the group."""
        outcome = self._pattern_change(change, before, after)
        self._maybe_resolve(change.group, now)
        return outcome

    def _pattern_change(
        self, change: Change, before: ConsumerMember, after: ConsumerMember
    ) -> PatternChange:
        group = change.group
        if before.topic_regex == after.topic_regex:
            return PatternChange.NONE
        self.drop_unused(change, {before.topic_regex})
        if not after.topic_regex or after.topic_regex in group.image.regexes:
            return PatternChange.RESOLVED
        return PatternChange.UNRESOLVED

    def drop_unused(self, change: Change, patterns: set[str]) -> None:
        """Forget the topics of patterns that no member uses any more."""
        group = change.group
        for pattern in sorted(patterns):
            if pattern in group.image.regexes and not group.patterns.get(pattern):
                change.write(RegexTopics(group.group_id, pattern, None))

    def _maybe_resolve(self, group: ConsumerGroup, now: Instant) -> None:
        resolved = group.image.regexes
        if not group.patterns or self._shard.is_scheduled("patterns", group.group_id):
            return
        last_ms = max((each.resolved_ms for each in resolved.values()), default=None)
        if last_ms is not None:
            since_ms = now.wall_ms - last_ms
            if 0 <= since_ms <= _PATTERN_INTERVAL_MS:
                return
            is_old = since_ms > self._shard.settings.consumer.regex_refresh_interval_ms
            is_complete = all(pattern in resolved for pattern in group.patterns)
            if is_complete and not group.patterns_are_stale and not is_old and since_ms >= 0:
                return
        do = partial(self._begin_resolving, group)
        self._shard.schedule_step("patterns", group.group_id, now=now, do=do)

    def _begin_resolving(self, group: ConsumerGroup, now: Instant) -> None:
        group.patterns_are_stale = False
        # As in Kafka: what the member may see whose heartbeat brought this about.
        matching = Matching(group.patterns, self._cluster.names(), group.may_see)
        self._go_on_resolving(group, matching, self._cluster.version, False, now)

    def _go_on_resolving(
        self,
        group: ConsumerGroup,
        matching: Matching,
        version: int,
        has_changed: bool,
        now: Instant,
    ) -> None:
        """Take a step, and write what it has found. The group's epoch follows with the last one.

        `version`: of the metadata that is matched. `has_changed`: whether a pattern matches other
        topics than before, by the steps until now.
        """
        if not group.image.exists or self._shard.consumer_groups.get(group.group_id) is not group:
            return
        change = Change(self._shard, group)
        for pattern, topics in matching.go_on().items():
            if pattern not in group.patterns:
                continue  # the last member that used it has gone meanwhile
            known = group.image.regexes.get(pattern)
            has_changed |= topics != (known.topics if known else frozenset())
            found = ResolvedRegex(topics, version, now.wall_ms)
            change.write(RegexTopics(group.group_id, pattern, _stored(found)))
        if matching.is_done:
            reason = "The pattern of a member matches other topics."
            self.look_at_topics(change, reason, must_bump=has_changed)
        else:
            do = partial(self._go_on_resolving, group, matching, version, has_changed)
            self._shard.schedule_step("patterns", group.group_id, now=now, do=do)
        if change.records:
            change.commit(now)


def _stored(resolved: ResolvedRegex) -> ConsumerGroupRegularExpressionValue:
    return ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.resolved_ms
    )
