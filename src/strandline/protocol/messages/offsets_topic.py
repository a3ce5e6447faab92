"""Keys and values of `__consumer_offsets`, as Kafka's group coordinator writes them.

Each stands behind an int16, see `schema.encode_versioned`. For values it is the value's version.
For keys it tells what kind of record this is: 0 and 1 are offset commits, 2 is a group's metadata.
A record without a value (a tombstone) says that the key's subject is gone.
"""

from __future__ import annotations

from uuid import UUID

from strandline.protocol.declare import (
    array,
    binary,
    int32,
    int64,
    message,
    nullable_string,
    string,
    structure,
    uuid,
)


@message("0-1")
class OffsetCommitKey:
    """Whose offset in which partition. Written as 1; 0 is read from logs of old brokers."""

    group: str = string()
    topic: str = string()
    partition: int = int32()


@message("0-4", flexible="4+")
class OffsetCommitValue:
    """A committed offset. Version 1 alone carries a time at which it expires."""

    offset: int = int64()
    leader_epoch: int = int32("3+", default=-1, ignorable=True)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64("1", default=-1, ignorable=True)
    topic_id: UUID = uuid("4+", tag=0, ignorable=True)


@message("2")
class GroupMetadataKey:
    """Which group."""

    group: str = string()


@structure
class MemberMetadata:
    """A member, with its subscription and assignment as it sent and got them."""

    member_id: str = string()
    group_instance_id: str | None = nullable_string("3+", default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32("1+", default=-1, ignorable=True)
    session_timeout: int = int32()
    subscription: bytes = binary()
    assignment: bytes = binary()


@message("0-4", flexible="4+")
class GroupMetadataValue:
    """A classic group at the end of a rebalance."""

    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = nullable_string()
    leader: str | None = nullable_string()
    current_state_timestamp: int = int64("2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = array(MemberMetadata)
