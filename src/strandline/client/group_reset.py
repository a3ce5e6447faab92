"""Where a group's offsets are to be set: the arithmetic of a reset.

This file must not print or store anything. As in Kafka's tool, a computed offset outside a log
becomes the nearer end of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from strandline.client.admin_groups import GroupAdmin, GroupDescription
from strandline.client.cluster import ClusterClient
from strandline.client.offsets import EARLIEST, LATEST, list_offsets
from strandline.errors import ErrorCode, ProtocolError, StrandlineError
from strandline.types import Offset, TopicPartition

_IDLE: Final = frozenset({"Empty", "Dead"})


class NoStoredOffset(StrandlineError):
    """A shift has nothing to start from in a partition."""

    def __init__(self, partition: TopicPartition) -> None:
        super().__init__(f"The group has no offset of {partition} to start from.")
        self.partition = partition


class TargetKind(Enum):
    """What a target's value means."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIME = "time"
    SHIFT = "shift"


@dataclass(frozen=True, slots=True)
class Target:
    """Where to go: an offset, a time in milliseconds, or a distance."""

    kind: TargetKind
    value: int = 0


def check_is_idle(admin: GroupAdmin, group: str, *, may_be_new: bool) -> GroupDescription | None:
    """Refuse a reset under the feet of running consumers, who would not notice it. The group, if
    there is one."""
    try:
        found = admin.describe(group)
    except ProtocolError as error:
        if may_be_new and error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return None
        raise
    if found.state not in _IDLE:
        raise ProtocolError(
            ErrorCode.NON_EMPTY_GROUP,
            f"Group '{group}' is {found.state} with {len(found.members)} members; stop its "
            f"consumers before its offsets are set.",
        )
    return found


def new_offsets(
    client: ClusterClient,
    partitions: list[TopicPartition],
    before: Mapping[TopicPartition, Offset],
    target: Target,
) -> dict[TopicPartition, Offset]:
    """Where each partition is to be set. Raises `NoStoredOffset`, `ProtocolError`."""
    earliest = _offsets(client, partitions, EARLIEST)
    latest = _offsets(client, partitions, LATEST)
    match target.kind:
        case TargetKind.EARLIEST:
            wanted = earliest
        case TargetKind.LATEST:
            wanted = latest
        case TargetKind.OFFSET:
            wanted = dict.fromkeys(partitions, target.value)
        case TargetKind.TIME:
            timed = _offsets(client, partitions, target.value)
            # Nothing is as late as that: to the end.
            wanted = {each: at if at >= 0 else latest[each] for each, at in timed.items()}
        case TargetKind.SHIFT:
            wanted = {each: _stored(each, before) + target.value for each in partitions}
    return {
        each: Offset(min(max(wanted[each], earliest[each]), latest[each])) for each in partitions
    }


def _stored(partition: TopicPartition, before: Mapping[TopicPartition, Offset]) -> Offset:
    if partition not in before:
        raise NoStoredOffset(partition)
    return before[partition]


def _offsets(
    client: ClusterClient, partitions: list[TopicPartition], at: int
) -> dict[TopicPartition, int]:
    found = list_offsets(client, dict.fromkeys(partitions, at))
    return {each: found[each].offset for each in partitions}
