"""The records of share groups in `__consumer_offsets`, byte for byte those of Kafka 4.3.

Values have version 0; a record without value is a tombstone.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from strandline.protocol.coordinator_log import CoordinatorRecord, read_message
from strandline.protocol.messages import share_groups_topic as messages
from strandline.protocol.schema import encode_versioned

_VALUE_VERSION: Final = 0


class ShareKind(IntEnum):
    """The kinds of keys."""

    MEMBER = 10
    """What a member said of itself."""
    GROUP = 11
    """The group's epoch, and the hash of its topics."""
    TARGET_EPOCH = 12
    """For which epoch of the group the target assignment is."""
    TARGET = 13
    """What a member is to read."""
    ASSIGNMENT = 14
    """How far a member has come."""
    PARTITIONS = 15
    """The partitions for which a share coordinator keeps a state, or is to."""


@dataclass(frozen=True, slots=True)
class ShareRecord:
    """Something about a group, or about one of its members, was stored, or is gone (None)."""

    kind: ShareKind
    group_id: str
    member_id: str | None
    value: Any


_FORMS: Final[dict[int, tuple[type[Any], type[Any]]]] = {
    ShareKind.MEMBER: (
        messages.ShareGroupMemberMetadataKey,
        messages.ShareGroupMemberMetadataValue,
    ),
    ShareKind.GROUP: (messages.ShareGroupMetadataKey, messages.ShareGroupMetadataValue),
    ShareKind.TARGET_EPOCH: (
        messages.ShareGroupTargetAssignmentMetadataKey,
        messages.ShareGroupTargetAssignmentMetadataValue,
    ),
    ShareKind.TARGET: (
        messages.ShareGroupTargetAssignmentMemberKey,
        messages.ShareGroupTargetAssignmentMemberValue,
    ),
    ShareKind.ASSIGNMENT: (
        messages.ShareGroupCurrentMemberAssignmentKey,
        messages.ShareGroupCurrentMemberAssignmentValue,
    ),
    ShareKind.PARTITIONS: (
        messages.ShareGroupStatePartitionMetadataKey,
        messages.ShareGroupStatePartitionMetadataValue,
    ),
}
SHARE_KINDS: Final = frozenset(_FORMS)


def decode_share_record(kind: int, record: CoordinatorRecord) -> ShareRecord:
    """What a record of one of these kinds says. Raises `CorruptRecords`."""
    key_class, value_class = _FORMS[kind]
    key = read_message(key_class, record.key)
    value = None if record.value is None else read_message(value_class, record.value)
    return ShareRecord(ShareKind(kind), key.group_id, getattr(key, "member_id", None), value)


def encode_share_record(record: ShareRecord) -> CoordinatorRecord:
    """The bytes of a record, as Kafka 4.3 writes them."""
    key_class, _ = _FORMS[record.kind]
    fields: dict[str, str] = {"group_id": record.group_id}
    if record.member_id is not None:
        fields["member_id"] = record.member_id
    value = record.value
    return CoordinatorRecord(
        encode_versioned(key_class(**fields), record.kind),
        None if value is None else encode_versioned(value, _VALUE_VERSION),
    )
