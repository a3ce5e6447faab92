"""The records of `__consumer_offsets`, byte for byte those of Kafka 4.3.

A key begins with its kind (int16), a value with its version (int16):

    key 0, 1   group, topic: string; partition: int32          an offset (0: Kafka before 0.9)
    key 2      group: string                                   a classic group
    key 3...   groups of KIP-848, share and streams groups     not ours: `UnknownRecord`

    offset value              version 0  1  2  3  4
      offset: int64                   x  x  x  x  x
      leader epoch: int32                      x  x
      metadata: string                x  x  x  x  compact
      commit timestamp: int64         x  x  x  x  x
      expire timestamp: int64            x
      tag 0, topic id: uuid                       x

    group value               version 0  1  2  3  4
      protocol type: string           x  x  x  x  all compact,
      generation: int32               x  x  x  x  tagged fields
      protocol, leader: string?       x  x  x  x  at the end
      state timestamp: int64                x  x
      members: array                  x  x  x  x
        member id: string             x  x  x  x
        instance id: string?                   x
        client id, host: string       x  x  x  x
        rebalance timeout: int32         x  x  x
        session timeout: int32        x  x  x  x
        subscription, assignment      x  x  x  x

Kafka 4.3 writes version 4 of the offset value, or 1 if the commit has a retention time of its own,
and version 3 of the group value. A record without value is a tombstone.
"""

from __future__ import annotations

from dataclasses import dataclass

from strandline.errors import CorruptRecords
from strandline.groups.wire import Reader, Writer
from strandline.types import (
    NO_EPOCH,
    NO_TIMESTAMP,
    NO_TOPIC_ID,
    LeaderEpoch,
    Offset,
    TopicId,
    TopicPartition,
)

LEGACY_OFFSET_KEY = 0
OFFSET_KEY = 1
GROUP_KEY = 2

_OFFSET_VALUE_WITH_EXPIRY = 1
_OFFSET_VALUE_VERSION = 4
_GROUP_VALUE_VERSION = 3
_VALUE_VERSION_MAX = 4
_TOPIC_ID_TAG = 0


@dataclass(frozen=True, slots=True)
class CoordinatorRecord:
    """A record as it lies in the log."""

    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class OffsetKey:
    """Whose offset of what."""

    group_id: str
    topic_partition: TopicPartition


@dataclass(frozen=True, slots=True)
class GroupKey:
    """Which group."""

    group_id: str


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A committed offset. `expire_timestamp_ms` is NO_TIMESTAMP unless the commit set it itself."""

    offset: Offset
    leader_epoch: LeaderEpoch
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_TIMESTAMP
    topic_id: TopicId = NO_TOPIC_ID


@dataclass(frozen=True, slots=True)
class MemberValue:
    """A member of a stored generation. A rebalance timeout of -1 means the session timeout."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupValue:
    """A stored generation of a classic group. An empty protocol type means none."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int
    members: tuple[MemberValue, ...]


@dataclass(frozen=True, slots=True)
class OffsetRecord:
    """An offset was committed, or forgotten (None)."""

    key: OffsetKey
    value: CommittedOffset | None


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """A group's generation was stored, or the group was deleted (None)."""

    key: GroupKey
    value: GroupValue | None


@dataclass(frozen=True, slots=True)
class UnknownRecord:
    """A record of a kind that this broker does not serve."""

    kind: int


def decode_record(record: CoordinatorRecord) -> OffsetRecord | GroupRecord | UnknownRecord:
    """What a record says. Raises `CorruptRecords`."""
    reader = Reader(record.key)
    kind = reader.int16()
    if kind in (LEGACY_OFFSET_KEY, OFFSET_KEY):
        group_id = reader.string()
        topic_partition = TopicPartition(reader.string(), reader.int32())
        return OffsetRecord(
            OffsetKey(group_id, topic_partition),
            None if record.value is None else decode_offset_value(record.value),
        )
    if kind == GROUP_KEY:
        return GroupRecord(
            GroupKey(reader.string()),
            None if record.value is None else decode_group_value(record.value),
        )
    return UnknownRecord(kind)


def encode_record(record: OffsetRecord | GroupRecord) -> CoordinatorRecord:
    """The bytes of a record, as Kafka 4.3 writes them."""
    writer = Writer()
    if isinstance(record, OffsetRecord):
        writer.int16(OFFSET_KEY)
        writer.string(record.key.group_id)
        writer.string(record.key.topic_partition.topic)
        writer.int32(record.key.topic_partition.partition)
        offset = None if record.value is None else encode_offset_value(record.value)
        return CoordinatorRecord(writer.done(), offset)
    writer.int16(GROUP_KEY)
    writer.string(record.key.group_id)
    group = None if record.value is None else encode_group_value(record.value)
    return CoordinatorRecord(writer.done(), group)


def decode_offset_value(data: bytes) -> CommittedOffset:
    """Read any version of an offset's value."""
    reader = Reader(data)
    version = _value_version(reader)
    flexible = version >= 4
    offset = Offset(reader.int64())
    leader_epoch = LeaderEpoch(reader.int32()) if version >= 3 else NO_EPOCH
    metadata = reader.string(flexible=flexible)
    commit_timestamp_ms = reader.int64()
    expire_timestamp_ms = reader.int64() if version == 1 else NO_TIMESTAMP
    topic_id = NO_TOPIC_ID
    if flexible and (tagged := reader.tagged_fields().get(_TOPIC_ID_TAG)) is not None:
        topic_id = Reader(tagged).uuid()
    return CommittedOffset(
        offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms, topic_id
    )


def encode_offset_value(value: CommittedOffset) -> bytes:
    """Write an offset's value; an expiry of its own exists in version 1 alone."""
    writer = Writer()
    if value.expire_timestamp_ms != NO_TIMESTAMP:
        writer.int16(_OFFSET_VALUE_WITH_EXPIRY)
        writer.int64(value.offset)
        writer.string(value.metadata)
        writer.int64(value.commit_timestamp_ms)
        writer.int64(value.expire_timestamp_ms)
        return writer.done()
    writer.int16(_OFFSET_VALUE_VERSION)
    writer.int64(value.offset)
    writer.int32(value.leader_epoch)
    writer.string(value.metadata, flexible=True)
    writer.int64(value.commit_timestamp_ms)
    if value.topic_id == NO_TOPIC_ID:
        writer.varint(0)
    else:
        writer.varint(1)
        writer.varint(_TOPIC_ID_TAG)
        writer.varint(len(value.topic_id.bytes))
        writer.raw(value.topic_id.bytes)
    return writer.done()


def decode_group_value(data: bytes) -> GroupValue:
    """Read any version of a group's value."""
    reader = Reader(data)
    version = _value_version(reader)
    flexible = version >= 4
    protocol_type = reader.string(flexible=flexible)
    generation = reader.int32()
    protocol = reader.nullable_string(flexible=flexible)
    leader = reader.nullable_string(flexible=flexible)
    state_timestamp_ms = reader.int64() if version >= 2 else NO_TIMESTAMP
    members = tuple(_read_member(reader, version) for _ in range(reader.count(flexible=flexible)))
    if flexible:
        reader.tagged_fields()
    return GroupValue(protocol_type, generation, protocol, leader, state_timestamp_ms, members)


def encode_group_value(value: GroupValue) -> bytes:
    """Write a group's value."""
    writer = Writer()
    writer.int16(_GROUP_VALUE_VERSION)
    writer.string(value.protocol_type)
    writer.int32(value.generation)
    writer.string(value.protocol)
    writer.string(value.leader)
    writer.int64(value.state_timestamp_ms)
    writer.count(len(value.members))
    for member in value.members:
        writer.string(member.member_id)
        writer.string(member.group_instance_id)
        writer.string(member.client_id)
        writer.string(member.client_host)
        writer.int32(member.rebalance_timeout_ms)
        writer.int32(member.session_timeout_ms)
        writer.blob(member.subscription)
        writer.blob(member.assignment)
    return writer.done()


def _read_member(reader: Reader, version: int) -> MemberValue:
    flexible = version >= 4
    member = MemberValue(
        member_id=reader.string(flexible=flexible),
        group_instance_id=reader.nullable_string(flexible=flexible) if version >= 3 else None,
        client_id=reader.string(flexible=flexible),
        client_host=reader.string(flexible=flexible),
        rebalance_timeout_ms=reader.int32() if version >= 1 else -1,
        session_timeout_ms=reader.int32(),
        subscription=reader.blob(flexible=flexible),
        assignment=reader.blob(flexible=flexible),
    )
    if flexible:
        reader.tagged_fields()
    return member


def _value_version(reader: Reader) -> int:
    version = reader.int16()
    if not 0 <= version <= _VALUE_VERSION_MAX:
        raise CorruptRecords(f"The value version {version} is unknown.")
    return version
