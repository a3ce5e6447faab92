"""Keys and values of `__share_group_state`, as Kafka 4.3 writes them.

Each stands behind an int16, see `schema.encode_versioned`: of keys the kind of record, of values
the version.
"""

from __future__ import annotations

from uuid import UUID

from strandline.protocol.declare import (
    array,
    int8,
    int16,
    int32,
    int64,
    message,
    string,
    structure,
    uuid,
)


@message("0")
class ShareSnapshotKey:
    """Which share partition."""

    group_id: str = string()
    topic_id: UUID = uuid()
    partition: int = int32()


@structure
class StateBatch:
    """Records in the same state.

    0: available, 2: acknowledged, 4: archived.
    """

    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


@message("0", flexible="0+")
class ShareSnapshotValue:
    """The whole state of a share partition, which replaces all that was before."""

    snapshot_epoch: int = int32()
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(default=-1, tag=0)
    create_timestamp: int = int64()
    write_timestamp: int = int64()
    state_batches: list[StateBatch] = array(StateBatch)


@message("1")
class ShareUpdateKey:
    """Which share partition."""

    group_id: str = string()
    topic_id: UUID = uuid()
    partition: int = int32()


@message("0", flexible="0+")
class ShareUpdateValue:
    """What changed since the snapshot of that epoch."""

    snapshot_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(default=-1, tag=0)
    state_batches: list[StateBatch] = array(StateBatch)
