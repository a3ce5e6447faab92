"""What the public clients refuse programs, without asking a broker."""

from __future__ import annotations

from collections.abc import Iterable

from strandline.errors import ErrorCode, InvalidSetting, ProtocolError
from strandline.types import TopicPartition


def needed_group(group: str | None) -> str:
    """The group, for what cannot be done without. Raises `InvalidSetting`."""
    if group is None:
        raise InvalidSetting("group.id", "group.id is missing: offsets are committed for a group.")
    return group


def has_assignment() -> ProtocolError:
    """What a subscription is refused with beside an assignment."""
    return ProtocolError(
        ErrorCode.INVALID_REQUEST, "Partitions are assigned; there can be no subscription."
    )


def has_subscription() -> ProtocolError:
    """What an assignment is refused with beside a subscription."""
    return ProtocolError(
        ErrorCode.INVALID_REQUEST, "Topics are subscribed; the group assigns partitions."
    )


def closed(what: str) -> ProtocolError:
    """What a client raises that was closed."""
    return ProtocolError(ErrorCode.INVALID_REQUEST, f"The {what} is closed.")


def nothing_to_read() -> ProtocolError:
    """What a consumer raises that reads nothing, so that no record would ever come."""
    return ProtocolError(
        ErrorCode.INVALID_REQUEST, "The consumer reads nothing: call subscribe or assign before."
    )


def check_assigned(partition: TopicPartition, assignment: Iterable[TopicPartition]) -> None:
    """Raise `ProtocolError` unless the partition is assigned."""
    if partition not in assignment:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"Partition {partition} is not assigned.")
