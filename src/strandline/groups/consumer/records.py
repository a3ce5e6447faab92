"""The records of consumer groups in `__consumer_offsets`, byte for byte those of Kafka 4.3.

    key 3    `GroupEpoch`          the group's epoch and the hash of its topics
    key 4    `TopicMetadata`       its topics, as brokers before 4.1 stored them
    key 5    `MemberMetadata`      what a member said of itself
    key 6    `TargetEpoch`         for which epoch of the group the target assignment is
    key 7    `MemberTarget`        what a member is to own
    key 8    `MemberAssignment`    how far a member has come
    key 16   `RegexTopics`         the topics that a pattern matched

Values have version 0; later brokers add tagged fields. A record without value is a tombstone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from strandline.protocol.coordinator_log import CoordinatorRecord, read_message
from strandline.protocol.messages import consumer_groups_topic as messages
from strandline.protocol.schema import encode_versioned

_VALUE_VERSION: Final = 0


@dataclass(frozen=True, slots=True)
class GroupEpoch:
    """A group has a new epoch, or is gone (None)."""

    group_id: str
    value: messages.ConsumerGroupMetadataValue | None


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """The topics of a group, as old brokers stored them; only ever removed here (None)."""

    group_id: str
    value: messages.ConsumerGroupPartitionMetadataValue | None


@dataclass(frozen=True, slots=True)
class MemberMetadata:
    """A member said something new of itself, or is gone (None)."""

    group_id: str
    member_id: str
    value: messages.ConsumerGroupMemberMetadataValue | None


@dataclass(frozen=True, slots=True)
class TargetEpoch:
    """A target assignment was computed, or there is none (None)."""

    group_id: str
    value: messages.ConsumerGroupTargetAssignmentMetadataValue | None


@dataclass(frozen=True, slots=True)
class MemberTarget:
    """A member is to own something else, or nothing at all (None)."""

    group_id: str
    member_id: str
    value: messages.ConsumerGroupTargetAssignmentMemberValue | None


@dataclass(frozen=True, slots=True)
class MemberAssignment:
    """A member has come further, or is going (None)."""

    group_id: str
    member_id: str
    value: messages.ConsumerGroupCurrentMemberAssignmentValue | None


@dataclass(frozen=True, slots=True)
class RegexTopics:
    """A pattern was resolved, or no member uses it any more (None)."""

    group_id: str
    regex: str
    value: messages.ConsumerGroupRegularExpressionValue | None


ConsumerRecord: TypeAlias = (
    GroupEpoch
    | TopicMetadata
    | MemberMetadata
    | TargetEpoch
    | MemberTarget
    | MemberAssignment
    | RegexTopics
)


@dataclass(frozen=True, slots=True)
class _Form:
    """How a kind of record lies in the log."""

    kind: int
    record: Callable[..., ConsumerRecord]
    key: type[Any]
    value: type[Any]
    subject: str | None
    """The key's second field, which is called the same in the record, or its name there."""
    attribute: str = "member_id"


_FORMS: Final = (
    _Form(
        3,
        GroupEpoch,
        messages.ConsumerGroupMetadataKey,
        messages.ConsumerGroupMetadataValue,
        None,
    ),
    _Form(
        4,
        TopicMetadata,
        messages.ConsumerGroupPartitionMetadataKey,
        messages.ConsumerGroupPartitionMetadataValue,
        None,
    ),
    _Form(
        5,
        MemberMetadata,
        messages.ConsumerGroupMemberMetadataKey,
        messages.ConsumerGroupMemberMetadataValue,
        "member_id",
    ),
    _Form(
        6,
        TargetEpoch,
        messages.ConsumerGroupTargetAssignmentMetadataKey,
        messages.ConsumerGroupTargetAssignmentMetadataValue,
        None,
    ),
    _Form(
        7,
        MemberTarget,
        messages.ConsumerGroupTargetAssignmentMemberKey,
        messages.ConsumerGroupTargetAssignmentMemberValue,
        "member_id",
    ),
    _Form(
        8,
        MemberAssignment,
        messages.ConsumerGroupCurrentMemberAssignmentKey,
        messages.ConsumerGroupCurrentMemberAssignmentValue,
        "member_id",
    ),
    _Form(
        16,
        RegexTopics,
        messages.ConsumerGroupRegularExpressionKey,
        messages.ConsumerGroupRegularExpressionValue,
        "regular_expression",
        "regex",
    ),
)
_BY_KIND: Final[Mapping[int, _Form]] = {form.kind: form for form in _FORMS}
_BY_RECORD: Final[Mapping[Any, _Form]] = {form.record: form for form in _FORMS}

CONSUMER_KINDS: Final = frozenset(_BY_KIND)
"""The kinds of keys that are about consumer groups."""


def decode_consumer_record(kind: int, record: CoordinatorRecord) -> ConsumerRecord:
    """What a record of one of these kinds says. Raises `CorruptRecords`."""
    form = _BY_KIND[kind]
    key = read_message(form.key, record.key)
    value = None if record.value is None else read_message(form.value, record.value)
    subject = () if form.subject is None else (getattr(key, form.subject),)
    return form.record(key.group_id, *subject, value)


def encode_consumer_record(record: ConsumerRecord) -> CoordinatorRecord:
    """The bytes of a record, as Kafka 4.3 writes them."""
    form = _BY_RECORD[type(record)]
    fields = {"group_id": record.group_id}
    if form.subject is not None:
        fields[form.subject] = getattr(record, form.attribute)
    value = record.value
    return CoordinatorRecord(
        encode_versioned(form.key(**fields), form.kind),
        None if value is None else encode_versioned(value, _VALUE_VERSION),
    )
