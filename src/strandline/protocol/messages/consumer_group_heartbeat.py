"""ConsumerGroupHeartbeat: members of groups of the new protocol (KIP-848)."""

from __future__ import annotations

from uuid import UUID

from strandline.protocol.declare import (
    INT32,
    STRING,
    array,
    int16,
    int32,
    message,
    nullable_array,
    nullable_one,
    nullable_string,
    string,
    structure,
    uuid,
)


@structure
class TopicPartitions:
    """Partitions of one topic."""

    topic_id: UUID = uuid()
    partitions: list[int] = array(INT32)


@message("0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest:
    """A member says that it is there, what it wants, and what it has."""

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = nullable_string(default=None)
    rack_id: str | None = nullable_string(default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = nullable_array(STRING, null_by_default=True)
    subscribed_topic_regex: str | None = nullable_string("1+", default=None)
    server_assignor: str | None = nullable_string(default=None)
    topic_partitions: list[TopicPartitions] | None = nullable_array(
        TopicPartitions, null_by_default=True
    )


@structure
class Assignment:
    """What a member may read from now on."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


@message("0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse:
    """The member's place in the group, or why it has none."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string(default=None)
    member_id: str | None = nullable_string(default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = nullable_one(Assignment)
