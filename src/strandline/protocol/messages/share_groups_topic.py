"""Keys and values of share groups in `__consumer_offsets`, as Kafka 4.3 writes them.

See `consumer_groups_topic`.
"""

from __future__ import annotations

from uuid import UUID

from strandline.protocol.declare import (
    INT32,
    STRING,
    array,
    int8,
    int32,
    int64,
    message,
    nullable_string,
    string,
    structure,
    uuid,
)


@message("11")
class ShareGroupMetadataKey:
    """Which group."""

    group_id: str = string()


@message("0", flexible="0+")
class ShareGroupMetadataValue:
    """A group's epoch, and a hash of the topics that it reads (KIP-1101)."""

    epoch: int = int32()
    metadata_hash: int = int64()


@message("10")
class ShareGroupMemberMetadataKey:
    """Which member of which group."""

    group_id: str = string()
    member_id: str = string()


@message("0", flexible="0+")
class ShareGroupMemberMetadataValue:
    """What a member said of itself."""

    rack_id: str | None = nullable_string()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(STRING)


@message("12")
class ShareGroupTargetAssignmentMetadataKey:
    """Which group."""

    group_id: str = string()


@message("0", flexible="0+")
class ShareGroupTargetAssignmentMetadataValue:
    """For which epoch of the group the target assignment is."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0)


@message("13")
class ShareGroupTargetAssignmentMemberKey:
    """Which member of which group."""

    group_id: str = string()
    member_id: str = string()


@structure
class TopicPartition:
    """Partitions of one topic."""

    topic_id: UUID = uuid()
    partitions: list[int] = array(INT32)


@message("0", flexible="0+")
class ShareGroupTargetAssignmentMemberValue:
    """What a member is to read."""

    topic_partitions: list[TopicPartition] = array(TopicPartition)


@message("14")
class ShareGroupCurrentMemberAssignmentKey:
    """Which member of which group."""

    group_id: str = string()
    member_id: str = string()


@structure
class TopicPartitions:
    """Partitions of one topic."""

    topic_id: UUID = uuid()
    partitions: list[int] = array(INT32)


@message("0", flexible="0+")
class ShareGroupCurrentMemberAssignmentValue:
    """How far a member has come."""

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)


@message("15")
class ShareGroupStatePartitionMetadataKey:
    """Which group."""

    group_id: str = string()


@structure
class TopicPartitionsInfo:
    """Partitions of one topic."""

    topic_id: UUID = uuid()
    topic_name: str = string()
    partitions: list[int] = array(INT32)


@structure
class TopicInfo:
    """A topic."""

    topic_id: UUID = uuid()
    topic_name: str = string()


@message("0", flexible="0+")
class ShareGroupStatePartitionMetadataValue:
    """The share partitions of a group whose state is begun, is there, or is to end."""

    initializing_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    initialized_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    deleting_topics: list[TopicInfo] = array(TopicInfo)
