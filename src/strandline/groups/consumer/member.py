"""One member of a consumer group: what it said of itself, and how far its reconciliation is.

A member's epoch is the epoch of the group's target assignment that it has reached. While it must
give something up it stays at its former epoch. Immutable: a change makes a new member.

    STABLE              owns what its epoch gives it
    UNREVOKED           must give up partitions first, and say so
    UNRELEASED          owns what is free of its target; the rest is still with others
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final

from strandline.groups.consumer.partitions import OWNS_NOTHING, OwnedPartitions
from strandline.protocol.messages.consumer_groups_topic import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    TopicPartitions,
)
from strandline.types import TopicId

JOINING_EPOCH: Final = 0
LEAVING_EPOCH: Final = -1
"""Sent by a member that goes for good; of a member in memory: its end has begun."""
STATIC_LEAVING_EPOCH: Final = -2
"""A static member goes for a while: its partitions wait for its successor."""


class MemberState(IntEnum):
    """How far a member's reconciliation is, by the numbers that are stored."""

    STABLE = 0
    UNREVOKED = 1
    UNRELEASED = 2
    UNKNOWN = 127
    """Stored by a later version of Kafka."""

    @classmethod
    def of(cls, stored: int) -> MemberState:
        """The state that a stored number means."""
        return cls(stored) if stored in (0, 1, 2) else cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class ClassicSide:
    """What only a member has that speaks the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """Its assignors with its subscription for each, its favourite first."""

    @property
    def protocol_name(self) -> str:
        """The assignor that the member is told to be in use: any that it knows will do."""
        return self.protocols[0][0]

    @property
    def subscription(self) -> bytes:
        """What it subscribes to, as its client says it."""
        return self.protocols[0][1]


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """A member."""

    member_id: str
    epoch: int = JOINING_EPOCH
    previous_epoch: int = -1
    """The one before: a member whose answer got lost repeats itself under it."""
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    topic_regex: str = ""
    """A pattern for topics, or empty."""
    assignor: str | None = None
    classic: ClassicSide | None = None
    """Set if the member speaks the classic protocol."""
    assigned: OwnedPartitions = field(default_factory=lambda: OWNS_NOTHING)
    revoking: OwnedPartitions = field(default_factory=lambda: OWNS_NOTHING)
    """What it has been asked to give up and may still be reading."""

    @property
    def is_classic(self) -> bool:
        """Whether the member speaks the classic protocol."""
        return self.classic is not None

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether the member has nothing left to do for a target assignment."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def advanced(self, epoch: int, state: MemberState, assigned: OwnedPartitions) -> ConsumerMember:
        """The member after a step of its reconciliation in which it gives nothing up."""
        return replace(
            self,
            epoch=epoch,
            previous_epoch=self.epoch,
            state=state,
            assigned=assigned,
            revoking=OWNS_NOTHING,
        )

    def removed_from_assignment(self) -> ConsumerMember:
        """The member when its current assignment is gone; its other records follow."""
        return replace(
            self,
            epoch=LEAVING_EPOCH,
            previous_epoch=LEAVING_EPOCH,
            assigned=OWNS_NOTHING,
            revoking=OWNS_NOTHING,
        )

    # Records.

    def to_metadata(self) -> ConsumerGroupMemberMetadataValue:
        """What it said of itself, as it is stored."""
        return ConsumerGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=sorted(self.topic_names),
            subscribed_topic_regex=self.topic_regex,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.assignor,
            classic_member_metadata=None if self.classic is None else _stored_classic(self.classic),
        )

    def with_metadata(self, value: ConsumerGroupMemberMetadataValue) -> ConsumerMember:
        """The member after a stored change of what it says of itself."""
        classic = value.classic_member_metadata
        if classic is not None and not classic.supported_protocols:
            classic = None  # a field that is absent says so in Kafka's form
        return replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topic_names=frozenset(value.subscribed_topic_names),
            topic_regex=value.subscribed_topic_regex or "",
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            assignor=value.server_assignor,
            classic=None if classic is None else _classic_side(classic),
        )

    def to_assignment(self) -> ConsumerGroupCurrentMemberAssignmentValue:
        """How far it is, as it is stored."""
        return ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=self.state,
            assigned_partitions=_stored(self.assigned),
            partitions_pending_revocation=_stored(self.revoking),
        )

    def with_assignment(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> ConsumerMember:
        """The member after a stored step of its reconciliation."""
        return replace(
            self,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState.of(value.state),
            assigned=_owned(value.assigned_partitions, value.member_epoch),
            revoking=_owned(value.partitions_pending_revocation, value.member_epoch),
        )


def _stored(owned: OwnedPartitions) -> list[TopicPartitions]:
    return [
        TopicPartitions(
            topic_id=topic_id, partitions=list(epochs), assignment_epochs=list(epochs.values())
        )
        for topic_id, epochs in owned.items()
    ]


def _owned(stored: list[TopicPartitions], member_epoch: int) -> OwnedPartitions:
    """Brokers before 4.3 store no epochs of partitions: the member's own stands in."""
    owned: dict[TopicId, dict[int, int]] = {}
    for topic in stored:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [max(member_epoch, 0)] * len(topic.partitions)
        owned[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return owned


def _stored_classic(classic: ClassicSide) -> ClassicMemberMetadata:
    return ClassicMemberMetadata(
        session_timeout_ms=classic.session_timeout_ms,
        supported_protocols=[
            ClassicProtocol(name=name, metadata=metadata) for name, metadata in classic.protocols
        ],
    )


def _classic_side(stored: ClassicMemberMetadata) -> ClassicSide:
    return ClassicSide(
        stored.session_timeout_ms,
        tuple((protocol.name, protocol.metadata) for protocol in stored.supported_protocols),
    )
