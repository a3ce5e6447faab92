"""ShareGroupDescribe: state and members of share groups (KIP-932)."""

from __future__ import annotations

from uuid import UUID

from strandline.protocol.declare import (
    INT32,
    STRING,
    array,
    boolean,
    int16,
    int32,
    message,
    nullable_string,
    one,
    string,
    structure,
    uuid,
)


@message("1", flexible="0+")
class ShareGroupDescribeRequest:
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
    """A member, with what it was given."""

    member_id: str = string()
    rack_id: str | None = nullable_string(default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(STRING)
    assignment: Assignment = one(Assignment)


@structure
class DescribedGroup:
    """A group with its members."""

    error_code: int = int16()
    error_message: str | None = nullable_string(default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[Member] = array(Member)
    authorized_operations: int = int32(default=-2147483648)


@message("1", flexible="0+")
class ShareGroupDescribeResponse:
    """The groups that were asked for."""

    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)
