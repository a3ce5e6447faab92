"""A share group as its records say. As for consumer groups there are two images of each group (see
`groups.consumer.image`), which come about by `apply` alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final

from strandline.errors import ErrorCode
from strandline.groups.consumer.partitions import NO_PARTITIONS, Partitions
from strandline.groups.share.records import ShareKind, ShareRecord
from strandline.protocol.messages.share_groups_topic import (
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataValue,
    ShareGroupStatePartitionMetadataValue,
    TopicInfo,
    TopicPartitions,
    TopicPartitionsInfo,
)
from strandline.types import TopicId

_STABLE: Final = 0


class ShareGroupState(Enum):
    """The states of a share group, by Kafka's names."""

    EMPTY = "Empty"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True)
class ShareMember:
    """A member: what it said of itself, and how far it is."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    epoch: int = 0
    previous_epoch: int = 0
    assigned: Partitions = field(default_factory=lambda: NO_PARTITIONS)

    def to_metadata(self) -> ShareGroupMemberMetadataValue:
        """What is stored of what it said."""
        return ShareGroupMemberMetadataValue(
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=sorted(self.topic_names),
        )

    def to_assignment(self) -> ShareGroupCurrentMemberAssignmentValue:
        """What is stored of how far it is."""
        return ShareGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=_STABLE,
            assigned_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=sorted(numbers))
                for topic_id, numbers in self.assigned.items()
            ],
        )


@dataclass(frozen=True, slots=True)
class KeptTopic:
    """Partitions of one topic."""

    name: str
    partitions: frozenset[int]


@dataclass(frozen=True, slots=True)
class StatePartitions:
    """The partitions for which a share coordinator keeps a state of the group."""

    initializing: dict[TopicId, KeptTopic] = field(default_factory=dict)
    """Asked for, and not known to be there."""
    initialized: dict[TopicId, KeptTopic] = field(default_factory=dict)
    deleting: dict[TopicId, str] = field(default_factory=dict)
    """Topics whose states are to end."""

    @classmethod
    def from_value(cls, value: ShareGroupStatePartitionMetadataValue) -> StatePartitions:
        """From what is stored."""
        return cls(
            _kept(value.initializing_topics),
            _kept(value.initialized_topics),
            {topic.topic_id: topic.topic_name for topic in value.deleting_topics},
        )

    def to_value(self) -> ShareGroupStatePartitionMetadataValue:
        """What is stored."""
        return ShareGroupStatePartitionMetadataValue(
            initializing_topics=_stored(self.initializing),
            initialized_topics=_stored(self.initialized),
            deleting_topics=[
                TopicInfo(topic_id=topic_id, topic_name=name)
                for topic_id, name in self.deleting.items()
            ],
        )

    def moved(
        self, topic_id: TopicId, name: str, partitions: frozenset[int], *, are_there: bool
    ) -> StatePartitions:
        """With these partitions initialised, or being so."""
        wanted, other = self.initializing, self.initialized
        if are_there:
            wanted, other = other, wanted
        known = wanted.get(topic_id)
        more = partitions if known is None else known.partitions | partitions
        taken = {**wanted, topic_id: KeptTopic(name, more)}
        left = _without(other, topic_id, partitions)
        deleting = {each: text for each, text in self.deleting.items() if each != topic_id}
        if are_there:
            return StatePartitions(left, taken, deleting)
        return StatePartitions(taken, left, deleting)

    def answered(
        self,
        wanted: Mapping[TopicId, KeptTopic],
        outcomes: Mapping[tuple[TopicId, int], ErrorCode],
    ) -> StatePartitions:
        """With those of the wanted ones initialised for which share coordinators said so, and which
        are not to end by now."""
        kept = self
        for topic_id, topic in wanted.items():
            begun = self.initializing.get(topic_id)
            done = frozenset(
                number
                for number in (topic.partitions & begun.partitions if begun is not None else ())
                if outcomes.get((topic_id, number)) is ErrorCode.NONE
            )
            if done:
                kept = kept.moved(topic_id, topic.name, done, are_there=True)
        return kept

    def ending(self, topic_id: TopicId, name: str) -> StatePartitions:
        """With a topic whose states are to end."""
        gone = self.without(topic_id)
        return replace(gone, deleting={**gone.deleting, topic_id: name})

    def ended(self, topic_id: TopicId, partitions: frozenset[int]) -> StatePartitions:
        """With a topic in which the states of these partitions have ended; others of it may have
        begun meanwhile."""
        return StatePartitions(
            _without(self.initializing, topic_id, partitions),
            _without(self.initialized, topic_id, partitions),
            {each: name for each, name in self.deleting.items() if each != topic_id},
        )

    def without(self, topic_id: TopicId) -> StatePartitions:
        """Without a topic."""
        return StatePartitions(
            {each: kept for each, kept in self.initializing.items() if each != topic_id},
            {each: kept for each, kept in self.initialized.items() if each != topic_id},
            {each: name for each, name in self.deleting.items() if each != topic_id},
        )


@dataclass(slots=True)
class ShareImage:
    """The state of one group."""

    exists: bool = False
    epoch: int = 0
    metadata_hash: int = 0
    target_epoch: int = 0
    target_ms: int = 0
    """Wall time at which the target was computed; 0 if it is not known."""
    members: dict[str, ShareMember] = field(default_factory=dict)
    targets: dict[str, Partitions] = field(default_factory=dict)
    partitions: StatePartitions = field(default_factory=StatePartitions)

    @property
    def state(self) -> ShareGroupState:
        """Whether anyone is there."""
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    def copy(self) -> ShareImage:
        """An image that changes apart from this one."""
        return replace(self, members=dict(self.members), targets=dict(self.targets))

    def apply(self, record: ShareRecord) -> None:
        """Take over a record. Tombstones of what is not there are harmless."""
        value, member_id = record.value, record.member_id or ""
        if value is not None:
            self.exists = True
        match record.kind:
            case ShareKind.GROUP:
                self.exists = value is not None
                self.epoch = 0 if value is None else value.epoch
                self.metadata_hash = 0 if value is None else value.metadata_hash
            case ShareKind.TARGET_EPOCH:
                self.target_epoch = 0 if value is None else value.assignment_epoch
                self.target_ms = 0 if value is None else value.assignment_timestamp
            case ShareKind.TARGET:
                self.targets.pop(member_id, None)
                if value is not None:
                    self.targets[member_id] = _partitions(value.topic_partitions)
            case ShareKind.MEMBER if value is None:
                self.members.pop(member_id, None)
            case ShareKind.MEMBER:
                self.members[member_id] = replace(
                    self._member(member_id),
                    rack_id=value.rack_id,
                    client_id=value.client_id,
                    client_host=value.client_host,
                    topic_names=frozenset(value.subscribed_topic_names),
                )
            case ShareKind.ASSIGNMENT if value is not None:
                self.members[member_id] = replace(
                    self._member(member_id),
                    epoch=value.member_epoch,
                    previous_epoch=value.previous_member_epoch,
                    assigned=_partitions(value.assigned_partitions),
                )
            case ShareKind.PARTITIONS:
                self.partitions = (
                    StatePartitions() if value is None else StatePartitions.from_value(value)
                )

    def _member(self, member_id: str) -> ShareMember:
        return self.members.get(member_id) or ShareMember(member_id)


def departure(group_id: str, member_id: str) -> Iterator[ShareRecord]:
    """The tombstones of one member."""
    for kind in (ShareKind.ASSIGNMENT, ShareKind.TARGET, ShareKind.MEMBER):
        yield ShareRecord(kind, group_id, member_id, None)


def burial(group_id: str, image: ShareImage) -> Iterator[ShareRecord]:
    """The tombstones of everything that a group has."""
    for member_id in image.members:
        yield from departure(group_id, member_id)
    for kind in (ShareKind.TARGET_EPOCH, ShareKind.PARTITIONS, ShareKind.GROUP):
        yield ShareRecord(kind, group_id, None, None)


def places(topics: Mapping[TopicId, KeptTopic]) -> Counter[tuple[TopicId, int]]:
    """Each of these partitions once."""
    return Counter(
        (topic_id, each) for topic_id, kept in topics.items() for each in kept.partitions
    )


def _partitions(topics: Any) -> Partitions:
    return {topic.topic_id: frozenset(topic.partitions) for topic in topics if topic.partitions}


def _kept(topics: list[TopicPartitionsInfo]) -> dict[TopicId, KeptTopic]:
    return {
        topic.topic_id: KeptTopic(topic.topic_name, frozenset(topic.partitions)) for topic in topics
    }


def _stored(topics: dict[TopicId, KeptTopic]) -> list[TopicPartitionsInfo]:
    return [
        TopicPartitionsInfo(
            topic_id=topic_id, topic_name=kept.name, partitions=sorted(kept.partitions)
        )
        for topic_id, kept in topics.items()
    ]


def _without(
    topics: dict[TopicId, KeptTopic], topic_id: TopicId, partitions: frozenset[int]
) -> dict[TopicId, KeptTopic]:
    left = dict(topics)
    known = left.pop(topic_id, None)
    if known is not None and known.partitions - partitions:
        left[topic_id] = KeptTopic(known.name, known.partitions - partitions)
    return left
