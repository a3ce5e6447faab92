"""The records of `__consumer_offsets`, byte for byte those of Kafka 4.3.

A key begins with its kind (int16), a value with its version (int16); what follows is declared in
`protocol.messages.offsets_topic`:

    key 0, 1   `OffsetCommitKey`     an offset (0: Kafka before 0.9)
    key 2      `GroupMetadataKey`    a classic group
    key 3...   a group of the consumer protocol, see `consumer.records`
    key 10...  a share group, see `share.records`
    others     streams groups: not served, `UnknownRecord`

Kafka 4.3 writes version 4 of the offset value, or 1 if the commit has a retention time of its own,
and version 3 of the group value. A record without value is a tombstone. What follows a message that
is known here is left alone: a newer Kafka may have written it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from strandline.groups.consumer.records import (
    CONSUMER_KINDS,
    ConsumerRecord,
    decode_consumer_record,
    encode_consumer_record,
)
from strandline.groups.share.records import (
    SHARE_KINDS,
    ShareRecord,
    decode_share_record,
    encode_share_record,
)
from strandline.protocol.coordinator_log import CoordinatorRecord, read_message, read_number
from strandline.protocol.messages.offsets_topic import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from strandline.protocol.schema import encode_versioned
from strandline.types import NO_TIMESTAMP, TopicPartition

LEGACY_OFFSET_KEY = 0
OFFSET_KEY = 1
GROUP_KEY = 2

_OFFSET_VALUE_WITH_EXPIRY = 1
_OFFSET_VALUE_VERSION = 4
_GROUP_VALUE_VERSION = 3


@dataclass(frozen=True, slots=True)
class OffsetRecord:
    """An offset was committed, or forgotten (None)."""

    group_id: str
    topic_partition: TopicPartition
    value: OffsetCommitValue | None


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """A group's generation was stored, or the group was deleted (None)."""

    group_id: str
    value: GroupMetadataValue | None


@dataclass(frozen=True, slots=True)
class UnknownRecord:
    """A record of a kind that this broker does not serve."""

    kind: int


StateRecord: TypeAlias = OffsetRecord | GroupRecord | ConsumerRecord | ShareRecord
"""What the coordinator writes."""


def decode_record(record: CoordinatorRecord) -> StateRecord | UnknownRecord:
    """What a record says. Raises `CorruptRecords`."""
    kind = read_number(record.key)
    if kind in (LEGACY_OFFSET_KEY, OFFSET_KEY):
        key = read_message(OffsetCommitKey, record.key)
        at = TopicPartition(key.topic, key.partition)
        value = None if record.value is None else read_message(OffsetCommitValue, record.value)
        return OffsetRecord(key.group, at, value)
    if kind == GROUP_KEY:
        group_id = read_message(GroupMetadataKey, record.key).group
        group = None if record.value is None else read_message(GroupMetadataValue, record.value)
        return GroupRecord(group_id, group)
    if kind in CONSUMER_KINDS:
        return decode_consumer_record(kind, record)
    if kind in SHARE_KINDS:
        return decode_share_record(kind, record)
    return UnknownRecord(kind)


def encode_record(record: StateRecord) -> CoordinatorRecord:
    """The bytes of a record, as Kafka 4.3 writes them."""
    if isinstance(record, ShareRecord):
        return encode_share_record(record)
    if not isinstance(record, OffsetRecord | GroupRecord):
        return encode_consumer_record(record)
    if isinstance(record, OffsetRecord):
        topic, partition = record.topic_partition
        key = OffsetCommitKey(group=record.group_id, topic=topic, partition=partition)
        return CoordinatorRecord(encode_versioned(key, OFFSET_KEY), _offset_value(record.value))
    return CoordinatorRecord(
        encode_versioned(GroupMetadataKey(group=record.group_id), GROUP_KEY),
        None if record.value is None else encode_versioned(record.value, _GROUP_VALUE_VERSION),
    )


def _offset_value(value: OffsetCommitValue | None) -> bytes | None:
    """An expiry of its own exists in version 1 alone."""
    if value is None:
        return None
    own_expiry = value.expire_timestamp != NO_TIMESTAMP
    return encode_versioned(
        value, _OFFSET_VALUE_WITH_EXPIRY if own_expiry else _OFFSET_VALUE_VERSION
    )
