"""OffsetFetch: how far a group has read.

Versions up to 7 ask about one group, later ones about several at once (KIP-709): the two have
fields of their own.
"""

from __future__ import annotations

from uuid import UUID

from strandline.protocol.declare import (
    INT32,
    array,
    boolean,
    int16,
    int32,
    int64,
    message,
    nullable_array,
    nullable_string,
    string,
    structure,
    uuid,
)


@structure
class OffsetFetchRequestTopic:
    """Partitions of one topic, up to version 7."""

    name: str = string()
    partition_indexes: list[int] = array(INT32)


@structure
class OffsetFetchRequestTopics:
    """Partitions of one topic, from version 8."""

    name: str = string("8-9", ignorable=True)
    topic_id: UUID = uuid("10+", ignorable=True)
    partition_indexes: list[int] = array(INT32)


@structure
class OffsetFetchRequestGroup:
    """One group and the topics of interest; null for all."""

    group_id: str = string()
    member_id: str | None = nullable_string("9+", default=None, ignorable=True)
    member_epoch: int = int32("9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = nullable_array(OffsetFetchRequestTopics)


@message("1-10", flexible="6+")
class OffsetFetchRequest:
    """Whose offsets to tell; `require_stable` waits for open transactions (KIP-447)."""

    group_id: str = string("0-7")
    topics: list[OffsetFetchRequestTopic] | None = nullable_array(
        OffsetFetchRequestTopic, "0-7", nullable="2-7"
    )
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, "8+")
    require_stable: bool = boolean("7+")


@structure
class OffsetFetchResponsePartition:
    """Stored offset of one partition, up to version 7."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("5-7", default=-1, ignorable=True)
    metadata: str | None = nullable_string()
    error_code: int = int16()


@structure
class OffsetFetchResponseTopic:
    """Partitions of one topic, up to version 7."""

    name: str = string()
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition)


@structure
class OffsetFetchResponsePartitions:
    """Stored offset of one partition, from version 8."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(default=-1)
    metadata: str | None = nullable_string()
    error_code: int = int16()


@structure
class OffsetFetchResponseTopics:
    """Partitions of one topic, from version 8."""

    name: str = string("8-9", ignorable=True)
    topic_id: UUID = uuid("10+", ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions)


@structure
class OffsetFetchResponseGroup:
    """The offsets of one group."""

    group_id: str = string()
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics)
    error_code: int = int16()


@message("1-10", flexible="6+")
class OffsetFetchResponse:
    """The stored offsets; -1 where there is none."""

    throttle_time_ms: int = int32("3+", ignorable=True)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, "0-7")
    error_code: int = int16("2-7", ignorable=True)
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, "8+")
