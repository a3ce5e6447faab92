"""The records of `__share_group_state`, byte for byte those of Kafka 4.3.

key 0   `Snapshot`   the whole state of a share partition; a tombstone: it is gone
key 1   `Update`     what has changed since
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from strandline.errors import CorruptRecords
from strandline.protocol.coordinator_log import CoordinatorRecord, read_message, read_number
from strandline.protocol.messages import share_group_state_topic as messages
from strandline.protocol.schema import encode_versioned
from strandline.sharing.runs import RecordState, StateBatch
from strandline.types import TopicId

_SNAPSHOT: Final = 0
_UPDATE: Final = 1
_VALUE_VERSION: Final = 0


class ShareKey(NamedTuple):
    """Which share partition."""

    group_id: str
    topic_id: TopicId
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareState:
    """The state of one share partition. Epochs and offsets are -1 where they are not known."""

    snapshot_epoch: int = 0
    state_epoch: int = 0
    leader_epoch: int = 0
    start: int = -1
    done_count: int = -1
    created_ms: int = 0
    written_ms: int = 0
    batches: tuple[StateBatch, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What has changed of a share partition's state."""

    snapshot_epoch: int
    leader_epoch: int
    start: int
    done_count: int
    batches: tuple[StateBatch, ...]


Change: TypeAlias = ShareState | Update | None
"""A new state, what has changed of it, or its end."""


def encode_record(key: ShareKey, change: Change) -> CoordinatorRecord:
    """The bytes of a record, as Kafka 4.3 writes them."""
    group_id, topic_id, partition = key
    if isinstance(change, Update):
        return CoordinatorRecord(
            encode_versioned(
                messages.ShareUpdateKey(group_id=group_id, topic_id=topic_id, partition=partition),
                _UPDATE,
            ),
            encode_versioned(
                messages.ShareUpdateValue(
                    snapshot_epoch=change.snapshot_epoch,
                    leader_epoch=change.leader_epoch,
                    start_offset=change.start,
                    delivery_complete_count=change.done_count,
                    state_batches=_batches(change.batches),
                ),
                _VALUE_VERSION,
            ),
        )
    snapshot_key = messages.ShareSnapshotKey(
        group_id=group_id, topic_id=topic_id, partition=partition
    )
    value = None
    if change is not None:
        value = encode_versioned(
            messages.ShareSnapshotValue(
                snapshot_epoch=change.snapshot_epoch,
                state_epoch=change.state_epoch,
                leader_epoch=change.leader_epoch,
                start_offset=change.start,
                delivery_complete_count=change.done_count,
                create_timestamp=change.created_ms,
                write_timestamp=change.written_ms,
                state_batches=_batches(change.batches),
            ),
            _VALUE_VERSION,
        )
    return CoordinatorRecord(encode_versioned(snapshot_key, _SNAPSHOT), value)


def decode_record(record: CoordinatorRecord) -> tuple[ShareKey, Change] | None:
    """What a record says; None: of a kind that is not known here. Raises `CorruptRecords`."""
    kind = read_number(record.key)
    if kind == _SNAPSHOT:
        key = read_message(messages.ShareSnapshotKey, record.key)
        return _key(key), None if record.value is None else _snapshot(record.value)
    if kind == _UPDATE:
        if record.value is None:
            raise CorruptRecords("An update of a share partition has no value.")
        return _key(read_message(messages.ShareUpdateKey, record.key)), _update(record.value)
    return None


def _key(key: Any) -> ShareKey:
    return ShareKey(key.group_id, key.topic_id, key.partition)


def _snapshot(data: bytes) -> ShareState:
    value = read_message(messages.ShareSnapshotValue, data)
    return ShareState(
        snapshot_epoch=value.snapshot_epoch,
        state_epoch=value.state_epoch,
        leader_epoch=value.leader_epoch,
        start=value.start_offset,
        done_count=value.delivery_complete_count,
        created_ms=value.create_timestamp,
        written_ms=value.write_timestamp,
        batches=stored_batches(value.state_batches),
    )


def _update(data: bytes) -> Update:
    value = read_message(messages.ShareUpdateValue, data)
    return Update(
        snapshot_epoch=value.snapshot_epoch,
        leader_epoch=value.leader_epoch,
        start=value.start_offset,
        done_count=value.delivery_complete_count,
        batches=stored_batches(value.state_batches),
    )


def _batches(batches: Iterable[StateBatch]) -> list[messages.StateBatch]:
    return [
        messages.StateBatch(
            first_offset=batch.first,
            last_offset=batch.last,
            delivery_state=batch.state,
            delivery_count=batch.deliveries,
        )
        for batch in batches
    ]


def stored_batches(batches: Iterable[Any]) -> tuple[StateBatch, ...]:
    """Batches of a record, or of a message, in order. Raises `CorruptRecords`."""
    found: list[StateBatch] = []
    for batch in sorted(batches, key=_first_offset):
        try:
            state = RecordState(batch.delivery_state)
        except ValueError as error:
            raise CorruptRecords(f"Records have no state {batch.delivery_state}.") from error
        if batch.last_offset < batch.first_offset:
            raise CorruptRecords(f"{batch.last_offset} is before {batch.first_offset}.")
        found.append(StateBatch(batch.first_offset, batch.last_offset, state, batch.delivery_count))
    return tuple(found)


def _first_offset(batch: Any) -> int:
    offset: int = batch.first_offset
    return offset
