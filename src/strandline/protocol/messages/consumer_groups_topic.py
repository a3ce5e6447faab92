"""Keys and values of `__consumer_offsets` that are about groups of the new protocol (KIP-848).

Each stands behind an int16, see `schema.encode_versioned`: of keys the kind of record (3 to 8, and
16), of values the version. A record without a value (a tombstone) says that the key's subject is
gone. A group is spread over many records, so that a change of one member writes that member only.
"""

from __future__ import annotations

from uuid import UUID

from strandline.protocol.declare import (
    INT32,
    STRING,
    array,
    binary,
    int8,
    int32,
    int64,
    message,
    nullable_array,
    nullable_string,
    string,
    structure,
    tagged_nullable_one,
    uuid,
)


@message("3")
class ConsumerGroupMetadataKey:
    """Which group."""

    group_id: str = string()


@message("0", flexible="0+")
class ConsumerGroupMetadataValue:
    """A group's epoch, and a hash of the topics that it reads (KIP-1101)."""

    epoch: int = int32()
    metadata_hash: int = int64(tag=0)


@message("4")
class ConsumerGroupPartitionMetadataKey:
    """Which group."""

    group_id: str = string()


@structure
class PartitionMetadata:
    """Where a partition's replicas are. Brokers since 4.0 do not write it."""

    partition: int = int32()
    racks: list[str] = array(STRING)


@structure
class TopicMetadata:
    """A topic that the group reads."""

    topic_id: UUID = uuid()
    topic_name: str = string()
    num_partitions: int = int32()
    partition_metadata: list[PartitionMetadata] = array(PartitionMetadata)


@message("0", flexible="0+")
class ConsumerGroupPartitionMetadataValue:
    """The topics that a group reads; since 4.1 the group's hash says the same."""

    topics: list[TopicMetadata] = array(TopicMetadata)


@message("5")
class ConsumerGroupMemberMetadataKey:
    """Which member."""

    group_id: str = string()
    member_id: str = string()


@structure
class ClassicProtocol:
    """An assignor of a member that uses the classic protocol, with its subscription."""

    name: str = string()
    metadata: bytes = binary()


@structure
class ClassicMemberMetadata:
    """What only a member has that uses the classic protocol."""

    session_timeout_ms: int = int32()
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol)


@message("0", flexible="0+")
class ConsumerGroupMemberMetadataValue:
    """What a member said of itself."""

    instance_id: str | None = nullable_string()
    rack_id: str | None = nullable_string()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(STRING)
    subscribed_topic_regex: str | None = nullable_string()
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = nullable_string()
    classic_member_metadata: ClassicMemberMetadata | None = tagged_nullable_one(
        ClassicMemberMetadata, tag=0
    )


@message("6")
class ConsumerGroupTargetAssignmentMetadataKey:
    """Which group."""

    group_id: str = string()


@message("0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue:
    """For which epoch of the group the target assignment was computed, and when (KIP-1263)."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0, ignorable=True)


@message("7")
class ConsumerGroupTargetAssignmentMemberKey:
    """Which member."""

    group_id: str = string()
    member_id: str = string()


@structure
class TopicPartition:
    """Partitions of one topic."""

    topic_id: UUID = uuid()
    partitions: list[int] = array(INT32)


@message("0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue:
    """What a member is to own."""

    topic_partitions: list[TopicPartition] = array(TopicPartition)


@message("8")
class ConsumerGroupCurrentMemberAssignmentKey:
    """Which member."""

    group_id: str = string()
    member_id: str = string()


@structure
class TopicPartitions:
    """Partitions of one topic, each with the epoch at which the member got it."""

    topic_id: UUID = uuid()
    partitions: list[int] = array(INT32)
    assignment_epochs: list[int] | None = nullable_array(INT32, tag=0)


@message("0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue:
    """How far a member has come on the way to what it is to own."""

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)
    partitions_pending_revocation: list[TopicPartitions] = array(TopicPartitions)


@message("16")
class ConsumerGroupRegularExpressionKey:
    """Which pattern of which group."""

    group_id: str = string()
    regular_expression: str = string()


@message("0", flexible="0+")
class ConsumerGroupRegularExpressionValue:
    """The topics that matched a pattern, as of which metadata and when."""

    topics: list[str] = array(STRING)
    version: int = int64()
    timestamp: int = int64()
