"""What the public clients refuse programs, without asking a broker."""

from __future__ import annotations

import os
import threading
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


def note_unwritten(error: BaseException | None, held_bytes: int) -> None:
    """Say in an exception that ends a producer's block what it leaves behind there."""
    if error is not None and held_bytes:
        error.add_note(
            f"The producer was closed with {held_bytes} bytes of records of which it is not known "
            "that they were written."
        )


def check_assigned(partition: TopicPartition, assignment: Iterable[TopicPartition]) -> None:
    """Raise `ProtocolError` unless the partition is assigned."""
    if partition not in assignment:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"Partition {partition} is not assigned.")


class Use:
    """Whether a client may still be used, called `what` in its refusals.

    Its `close` in a forked process says nothing to brokers: it would end what the other one does.
    """

    def __init__(self, what: str) -> None:
        self.is_closing = False
        """Whether `close` was called, be it that it is still under way."""
        self.is_closed = False
        self._what = what
        self._process = os.getpid()
        self.lock = threading.RLock()
        """Held by the thread that is in a call; see `one_thread`."""

    @property
    def is_inherited(self) -> bool:
        """Whether the process was forked from that of the client, which goes on with it there.

        What both sent would be taken for one another's: the connections, the producer's sequence
        numbers and the member of the group are the same.
        """
        return os.getpid() != self._process

    def busy(self) -> ProtocolError:
        """What a call is refused with beside one of another thread."""
        return ProtocolError(
            ErrorCode.INVALID_REQUEST,
            f"Another thread is in a call of the {self._what}, which belongs to one thread: give "
            "each a client of its own.",
        )

    def check_open(self) -> None:
        """Raise `ProtocolError` for a client that is closed, or is being closed."""
        if self.is_closing:
            raise closed(self._what)
        self.check_not_closed()

    def check_not_closed(self) -> None:
        """As `check_open`; but what a rebalance listener may call while `close` gives partitions up
        is not refused."""
        if self.is_closed:
            raise closed(self._what)
        if self.is_inherited:
            raise ProtocolError(
                ErrorCode.INVALID_REQUEST,
                f"The {self._what} belongs to the process from which this one was forked: make "
                "another one after the fork.",
            )


class ConsumerUse(Use):
    """Also whether a consumer was told what to read."""

    def __init__(self) -> None:
        super().__init__("consumer")
        self.reads = False
        """Whether `subscribe` or `assign` was called, be it with nothing."""

    def check_reading(self) -> None:
        """Raise `ProtocolError` also for one that reads nothing: no record would ever come."""
        self.check_open()
        if not self.reads:
            raise ProtocolError(
                ErrorCode.INVALID_REQUEST,
                "The consumer reads nothing: call subscribe or assign before.",
            )
