"""Requests that wait for something: more data, a higher watermark, or their time to run out.

A parked operation is checked and then registered with every replica it waits for; the node is
synchronous, so nothing can happen between the two (Kafka has to check again after registering). It
completes exactly once: because its condition holds, because its deadline came, or silently because
its connection closed.
Replicas that changed in a turn are only noted; the operations that wait for them are checked once,
at the end of the turn, however often the replica changed (replication specification, 3.3, I-40).
Only then those whose time is up are answered as they are: what came true in the very turn of the
deadline counts, so a request with a time-out of 0 is done if there is no replica to wait for.

A turn serves every connection, so an operation that fails in it must not take the others along: its
own connection is closed, and the rest goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

from strandline.errors import InvariantViolated
from strandline.node.connection import Connection
from strandline.node.outbox import Outbox
from strandline.node.timers import Timer, Timers
from strandline.types import Instant

log = logging.getLogger(__name__)


class Operation(Protocol):
    """A request that may have to wait."""

    connection: Connection

    def try_complete(self, now: Instant) -> bool:
        """Answer if the condition holds now; return whether it did."""
        ...

    def expire(self, now: Instant) -> None:
        """Answer with what there is, because the time has run out."""
        ...

    def check(self) -> None:
        """Raise `InvariantViolated` if it still waits although it is known that it need not, as
        far as can be told without reading a file (I-40). Asked between two turns."""
        ...


TOLD_MAX: Final = 10
"""Partitions that a wait names."""


class Wait(NamedTuple):
    """What a parked operation tells people: whose it is, and what would end the wait."""

    request: Any
    partitions: tuple[str, ...]
    sentence: str


@runtime_checkable
class Tells(Protocol):
    """An operation that can say what it waits for."""

    def wait(self) -> Wait:
        """What it waits for."""
        ...


class Watched:
    """Something that operations wait for. Replicas inherit from it."""

    __slots__ = ("waiters",)

    def __init__(self) -> None:
        self.waiters: dict[ParkedEntry, None] = {}

    def settle(self, now: Instant) -> None:
        """Serve those who wait in a way of their own, before the parked operations are checked."""


class ParkedEntry:
    """One parked operation with everything that must forget it when it is done."""

    __slots__ = ("_among", "operation", "timer", "watched")

    def __init__(
        self,
        operation: Operation,
        watched: tuple[Watched, ...],
        timer: Timer,
        among: dict[ParkedEntry, None],
    ) -> None:
        self.operation = operation
        self.watched = watched
        self.timer = timer
        self._among = among

    def forget(self) -> None:
        """Take it out of everything that knows it; it is not answered from here on."""
        self.timer.cancel()
        del self._among[self]
        self.operation.connection.parked.pop(self, None)
        for item in self.watched:
            item.waiters.pop(self, None)


class Purgatory:
    """Every parked operation of a node. Bounded by the connections' in-flight limits."""

    def __init__(self, timers: Timers, outbox: Outbox) -> None:
        """`outbox` is told of connections that are to be closed because an operation failed."""
        self._timers = timers
        self._outbox = outbox
        self._parked: dict[ParkedEntry, None] = {}
        self._changed: dict[Watched, None] = {}
        self._overdue: list[ParkedEntry] = []

    def __len__(self) -> int:
        return len(self._parked)

    def __iter__(self) -> Iterator[ParkedEntry]:
        """Those that were parked first come first."""
        return iter(self._parked)

    @property
    def is_settled(self) -> bool:
        """Whether everything that changed has been looked at: it is, between two turns."""
        return not self._changed

    def check(self) -> None:
        """Raise `InvariantViolated` unless every parked operation is known to all that may end its
        wait, and waits rightly (I-40). To be asked between two turns."""
        alarm_ms = self._timers.next_deadline_ms()
        for entry in self._parked:
            operation = entry.operation
            if (
                entry not in operation.connection.parked
                or any(entry not in item.waiters for item in entry.watched)
                or alarm_ms is None
                or alarm_ms > entry.timer.at_ms
            ):
                raise InvariantViolated(
                    f"A parked request of {operation.connection.client_host} is lost.",
                    invariant="I-40",
                )
            operation.check()

    def complete_or_park(
        self, operation: Operation, watched: Iterable[Watched], *, deadline_ms: int, now: Instant
    ) -> None:
        """Answer at once if possible, else park until a watched thing changes or the deadline."""
        if operation.try_complete(now):
            return
        entry: ParkedEntry
        timer = self._timers.schedule(deadline_ms, lambda _: self._overdue.append(entry))
        entry = ParkedEntry(operation, tuple(watched), timer, self._parked)
        self._parked[entry] = None
        operation.connection.parked[entry] = None
        for item in entry.watched:
            item.waiters[entry] = None

    def changed(self, watched: Watched) -> None:
        """Note that operations which wait for `watched` must be checked at the end of the turn."""
        self._changed[watched] = None

    def wake(self, now: Instant) -> None:
        """Check every operation that waits for something that changed in this turn, and answer
        those whose time is up."""
        self._wake_changed(now)
        overdue, self._overdue = self._overdue, []
        for entry in overdue:
            self._expire(entry, now)

    def _wake_changed(self, now: Instant) -> None:
        while self._changed:
            changed, self._changed = self._changed, {}
            for watched in changed:
                watched.settle(now)
            entries = {entry: None for watched in changed for entry in watched.waiters}
            for entry in entries:
                if entry in self._parked and self._try(entry, now):
                    entry.forget()

    def answer_now(self, connection: Connection, now: Instant) -> None:
        """Answer what is parked for a connection with what there is, before its time is up."""
        for entry in list(connection.parked):
            if isinstance(entry, ParkedEntry):
                self._expire(entry, now)

    def drop_connection(self, connection: Connection) -> None:
        """Forget what a closed connection was waiting for; no client is left to be answered."""
        for entry in list(connection.parked):
            entry.forget()

    def _expire(self, entry: ParkedEntry, now: Instant) -> None:
        if entry in self._parked:
            entry.forget()
            self._guarded(entry.operation, entry.operation.expire, now)

    def _try(self, entry: ParkedEntry, now: Instant) -> bool:
        """Whether the operation is over: completed, or failed."""
        return self._guarded(entry.operation, entry.operation.try_complete, now) is not False

    def _guarded(
        self, operation: Operation, step: Callable[[Instant], bool | None], now: Instant
    ) -> bool | None:
        try:
            return step(now)
        except Exception:
            # A bug of ours; the client must not wait for this answer for ever.
            log.exception("A parked request of %s failed", operation.connection.client_host)
            operation.connection.closing = "a parked request failed"
            self._outbox.flush_later(operation.connection)
            return None
