"""A consumer group as its records say.

The coordinator holds two images of each group: one of what is durable, which readers are shown,
and one with everything that has been appended, from which it decides (`group`). Both come about by
`apply` alone, so a coordinator that reads the log arrives at the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, assert_never

from strandline.groups.consumer.member import ConsumerMember
from strandline.groups.consumer.partitions import NO_PARTITIONS, Partitions
from strandline.groups.consumer.records import (
    ConsumerRecord,
    GroupEpoch,
    MemberAssignment,
    MemberMetadata,
    MemberTarget,
    RegexTopics,
    TargetEpoch,
    TopicMetadata,
)

FIRST_EPOCH: Final = 1
"""The epoch of a group, and of its target assignment, before its first member joins. That makes it
2, so that no member has the epoch of one that joins."""


class ConsumerGroupState(Enum):
    """The states of a consumer group, by Kafka's names."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    """The topics that a pattern matched."""

    topics: frozenset[str]
    version: int
    """Of the metadata in which they were looked up."""
    resolved_ms: int
    """Wall time of the look-up."""


@dataclass(slots=True)
class GroupImage:
    """The state of one group."""

    exists: bool = False
    """Whether there is any record of the group."""
    epoch: int = FIRST_EPOCH
    metadata_hash: int = 0
    target_epoch: int = FIRST_EPOCH
    target_ms: int = 0
    """Wall time at which the target was computed; 0 if it is not known."""
    has_topic_metadata: bool = False
    """Whether an old broker's record of the group's topics is in the log."""
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    targets: dict[str, Partitions] = field(default_factory=dict)
    regexes: dict[str, ResolvedRegex] = field(default_factory=dict)

    @property
    def state(self) -> ConsumerGroupState:
        """How far the group is."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.target_epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    def target(self, member_id: str) -> Partitions:
        """What a member is to own."""
        return self.targets.get(member_id, NO_PARTITIONS)

    def copy(self) -> GroupImage:
        """An image that changes apart from this one."""
        return GroupImage(
            self.exists,
            self.epoch,
            self.metadata_hash,
            self.target_epoch,
            self.target_ms,
            self.has_topic_metadata,
            dict(self.members),
            dict(self.targets),
            dict(self.regexes),
        )

    def apply(self, record: ConsumerRecord) -> None:
        """Take over a record. Tombstones of what is not there are harmless: compaction leaves
        them behind."""
        if record.value is not None:
            self.exists = True
        match record:
            case GroupEpoch():
                self._set_epoch(record)
            case TopicMetadata(_, value):
                self.has_topic_metadata = value is not None
            case MemberMetadata(_, member_id, None):
                self.members.pop(member_id, None)
            case MemberMetadata(_, member_id, value) if value is not None:
                self.members[member_id] = self._member(member_id).with_metadata(value)
            case TargetEpoch(_, value):
                self.target_epoch = FIRST_EPOCH if value is None else value.assignment_epoch
                self.target_ms = 0 if value is None else value.assignment_timestamp
            case MemberTarget(_, member_id, None):
                self.targets.pop(member_id, None)
            case MemberTarget(_, member_id, value) if value is not None:
                self.targets[member_id] = {
                    topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions
                }
            case MemberAssignment(_, member_id, None):
                if (member := self.members.get(member_id)) is not None:
                    self.members[member_id] = member.removed_from_assignment()
            case MemberAssignment(_, member_id, value) if value is not None:
                self.members[member_id] = self._member(member_id).with_assignment(value)
            case RegexTopics(_, regex, None):
                self.regexes.pop(regex, None)
            case RegexTopics(_, regex, value) if value is not None:
                self.regexes[regex] = ResolvedRegex(
                    frozenset(value.topics), value.version, value.timestamp
                )
            case _:
                assert_never(record)  # type: ignore[arg-type]

    def _set_epoch(self, record: GroupEpoch) -> None:
        if record.value is None:
            self.exists = False
            self.epoch, self.metadata_hash = FIRST_EPOCH, 0
        else:
            self.epoch, self.metadata_hash = record.value.epoch, record.value.metadata_hash

    def _member(self, member_id: str) -> ConsumerMember:
        return self.members.get(member_id) or ConsumerMember(member_id)


def burial(group_id: str, image: GroupImage) -> Iterator[ConsumerRecord]:
    """The tombstones of everything that a group has."""
    for member_id in image.members:
        yield MemberAssignment(group_id, member_id, None)
    for member_id in image.members:
        yield MemberTarget(group_id, member_id, None)
    yield TargetEpoch(group_id, None)
    for member_id in image.members:
        yield MemberMetadata(group_id, member_id, None)
    for regex in image.regexes:
        yield RegexTopics(group_id, regex, None)
    yield TopicMetadata(group_id, None)
    yield GroupEpoch(group_id, None)


def departure(group_id: str, member_id: str) -> Iterator[ConsumerRecord]:
    """The tombstones of one member."""
    yield MemberAssignment(group_id, member_id, None)
    yield MemberTarget(group_id, member_id, None)
    yield MemberMetadata(group_id, member_id, None)
