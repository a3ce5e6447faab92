"""ConsumerGroupDescribe: state and members of groups of the new protocol (KIP-848)."""

from __future__ import annotations

from uuid import UUID

from strandline.protocol.declare import (
    INT32,
    STRING,
    array,
    boolean,
    int8,
    int16,
    int32,
    message,
    nullable_string,
    one,
    string,
    structure,
    uuid,
)


@message("0-1", flexible="0+")
class ConsumerGroupDescribeRequest:
    """The groups to describe."""

    group_ids: list[str] = array(STRING)
    include_authorized_operations: bool = boolean()


@structure
class TopicPartitions:
    """Partitions of one topic."""

    topic_id: UUID = uuid()
    topic_name: str = string()
    partitions: list[int] = array(INT32)


@structure
class Assignment:
    """The partitions of one member."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


@structure
class Member:
    """A member, with what it owns and what it is to own."""

    member_id: str = string()
    instance_id: str | None = nullable_string(default=None)
    rack_id: str | None = nullable_string(default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(STRING)
    subscribed_topic_regex: str | None = nullable_string(default=None)
    assignment: Assignment = one(Assignment)
    target_assignment: Assignment = one(Assignment)
    member_type: int = int8("1+", default=-1, ignorable=True)


@structure
class DescribedGroup:
    """One group."""

    error_code: int = int16()
    error_message: str | None = nullable_string(default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[Member] = array(Member)
    authorized_operations: int = int32(default=-0x8000_0000)


@message("0-1", flexible="0+")
class ConsumerGroupDescribeResponse:
    """The groups."""

    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)
