"""Which group a request of the consumer protocol means, and how a group comes into being.

The first member makes a group. An empty classic group of the name becomes a consumer group; one
with members too, if they are Kafka consumers and `group.consumer.migration.policy` permits it.
"""

from __future__ import annotations

from dataclasses import dataclass

from strandline.errors import ErrorCode, ProtocolError
from strandline.groups.consumer.changes import Change
from strandline.groups.consumer.group import ConsumerGroup
from strandline.groups.consumer.records import ConsumerRecord
from strandline.groups.consumer.upgrade import Upgrades
from strandline.groups.group import Group, GroupState
from strandline.groups.shard import Shard


@dataclass(frozen=True, slots=True)
class Opened:
    """A group, which is not filed yet if it is a new one."""

    group: ConsumerGroup
    classic: Group | None = None
    """The classic group whose place it takes."""
    records: tuple[ConsumerRecord, ...] = ()
    """What it takes over from that."""


class Opening:
    """The groups of one shard by their names."""

    def __init__(self, shard: Shard, upgrades: Upgrades) -> None:
        self._shard = shard
        self._upgrades = upgrades

    def consumer_group(self, group_id: str) -> ConsumerGroup:
        """The group. Raises `ProtocolError` if there is none, or a classic one."""
        group = self._shard.consumer_group(group_id)
        if group is None:
            is_classic = group_id in self._shard.groups
            raise ProtocolError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"Group {group_id} is not a consumer group."
                if is_classic
                else f"Consumer group {group_id} not found.",
            )
        return group

    def open(self, group_id: str, *, may_create: bool) -> Opened:
        """The group, an existing or a new one. Raises `ProtocolError`."""
        classic = self._shard.groups.get(group_id)
        if not may_create or self._shard.consumer_group(group_id) is not None:
            return Opened(self.consumer_group(group_id))
        # One whose tombstone is under way begins anew.
        buried = self._shard.consumer_groups.get(group_id)
        if classic is None:
            return Opened(buried or ConsumerGroup(group_id))
        if classic.state is GroupState.DEAD or buried is not None:
            raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        group = ConsumerGroup(group_id)
        records: tuple[ConsumerRecord, ...] = ()
        if classic.state is not GroupState.EMPTY:
            records = tuple(self._upgrades.upgraded(classic))
        for record in records:
            group.apply(record)
        return Opened(group, classic, records)

    def begin(self, opened: Opened) -> Change:
        """Begin a change of the group. What a classic group had is its first part."""
        group = opened.group
        self._shard.consumer_groups[group.group_id] = group
        change = Change(self._shard, group)
        if opened.classic is not None:
            self._upgrades.replace_classic(change, opened.classic)
            change.records += opened.records
        return change
