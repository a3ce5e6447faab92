"""One connection of a simulated client: the client's own channel on the simulated network.

Frames are real bytes. Whatever happens, each request gets exactly one outcome within its time: an
answer, or `RequestFailed` (I-50).

This file drives a `client.channel` by the schedule, whose unit is microseconds. It must not know
what requests mean, or where brokers are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias

from strandline.client.channel import Channel, Request
from strandline.errors import MalformedFrame
from strandline.protocol.apis import KNOWN, Api, ApiKey
from strandline.sim.schedule import Schedule
from strandline.types import BrokerId

_IN_FLIGHT_MAX: Final = 1000
"""No limit: clients have their own."""
_NEVER_US: Final = 2**63

Outcome: TypeAlias = Any
"""The response message of a request, or `RequestFailed`."""
Then: TypeAlias = Callable[[Outcome], None]


class Wire(Protocol):
    """The client's end of a connection, as the network gives it."""

    is_damaged: bool
    """Whether the network has changed a byte of what went over it."""

    def send(self, data: bytes) -> None:
        """Put bytes on their way."""

    def close(self) -> None:
        """End the connection; nothing is heard of it any more."""


class Peer(Protocol):
    """The callbacks of the network, never made within the call that led to them."""

    def opened(self) -> None:
        """The connection stands."""

    def received(self, frame: bytes) -> None:
        """One frame came, its size left out."""

    def closed(self, reason: str) -> None:
        """The other side or the network ended it; or it could not be opened."""


class Watcher(Protocol):
    """The owner of the connections of a client."""

    def connection_ended(self, connection: Connection, *, was_open: bool) -> None:
        """The connection has ended. Its requests have their outcomes."""

    def request_overdue(self, broker_id: BrokerId, api: ApiKey) -> None:
        """A broker did not answer in time."""

    def answer_malformed(self, broker_id: BrokerId, what: str, *, is_damaged: bool) -> None:
        """A broker sent bytes that are not an answer to what it was asked."""


class _Asked(Request):
    """A request, and who hears its outcome."""

    __slots__ = ("then",)

    def __init__(
        self, api: Api, version: int, message: object, deadline_us: int, then: Then
    ) -> None:
        super().__init__(api, version, message, deadline_us)
        self.then = then


class Connection:
    """See the module. Made by `Cluster`."""

    def __init__(
        self, broker_id: BrokerId, schedule: Schedule, watcher: Watcher, client_id: str
    ) -> None:
        self.broker_id = broker_id
        self.is_open = False
        self.is_over = False
        self._schedule = schedule
        self._watcher = watcher
        self._wire: Wire | None = None
        self._channel: Channel[_Asked] = Channel(client_id, _IN_FLIGHT_MAX)
        self._alarm_us: int | None = None

    def attach(self, wire: Wire) -> None:
        """The network has begun to open it."""
        self._wire = wire

    @property
    def outstanding(self) -> int:
        """Requests without an outcome."""
        return self._channel.in_flight + self._channel.queued

    # -- Requests ----------------------------------------------------------------------------

    def ask(self, key: ApiKey, version: int, message: object, timeout_us: int, then: Then) -> None:
        """Send a request; `then` hears its outcome, later, exactly once."""
        deadline_us = self._schedule.now_us + timeout_us
        self._ask(_Asked(KNOWN[key], version, message, deadline_us, then))
        if self._alarm_us is None or deadline_us < self._alarm_us:
            self._set_alarm(deadline_us)

    def tell(self, key: ApiKey, version: int, message: object) -> None:
        """Send a request that has no answer (produce with acks=0)."""
        asked = _Asked(KNOWN[key], version, message, _NEVER_US, _unheard)
        asked.is_answered = False
        self._ask(asked)

    def _ask(self, asked: _Asked) -> None:
        self._channel.ask(asked)
        if self.is_open:
            self._write()

    def _write(self) -> None:
        while (chunks := self._channel.next_frame()) is not None:
            if self._wire is not None:
                self._wire.send(b"".join(chunks))

    def close(self, reason: str = "closed by the client") -> None:
        """End it. What is pending is lost."""
        if not self.is_over and self._wire is not None:
            self._wire.close()
        self._end(reason)

    # -- What the network says ---------------------------------------------------------------

    def opened(self) -> None:
        """See `Peer`."""
        if self.is_over:
            return
        self.is_open = True
        self._write()

    def received(self, frame: bytes) -> None:
        """See `Peer`."""
        if self.is_over:
            return
        try:
            asked, answer = self._channel.received(memoryview(frame))
        except MalformedFrame as error:
            self._malformed(str(error))
            return
        asked.then(answer)

    def closed(self, reason: str) -> None:
        """See `Peer`."""
        self._end(reason)

    @property
    def is_damaged(self) -> bool:
        """Whether the network has changed a byte of what went over it."""
        return self._wire is not None and self._wire.is_damaged

    def _malformed(self, what: str) -> None:
        self._watcher.answer_malformed(self.broker_id, what, is_damaged=self.is_damaged)
        self.close("a malformed answer")

    def _end(self, reason: str) -> None:
        if self.is_over:
            return
        self.is_over = True
        was_open, self.is_open = self.is_open, False
        failed = self._channel.end(reason)
        self._watcher.connection_ended(self, was_open=was_open)
        for asked, outcome in failed:
            asked.then(outcome)

    # -- Time --------------------------------------------------------------------------------

    def _set_alarm(self, at_us: int) -> None:
        self._alarm_us = at_us
        self._schedule.at(at_us, self._ring)

    def _ring(self) -> None:
        if self.is_over or self._alarm_us is None or self._schedule.now_us < self._alarm_us:
            return  # an alarm that an earlier one has replaced
        self._alarm_us = None
        due = self._channel.first_due()
        if due is None or due.deadline == _NEVER_US:
            return
        if due.deadline > self._schedule.now_us:
            self._set_alarm(due.deadline)
            return
        self._watcher.request_overdue(self.broker_id, due.api.key)
        self.close(f"{due.api.name} was not answered in time")


def _unheard(outcome: Outcome) -> None:
    """For a request that is not answered."""
