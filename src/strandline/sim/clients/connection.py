"""One connection of a simulated client: requests out, answers in, nothing left open.

Frames are real bytes. A broker answers a connection's requests in their order, so the oldest
pending request is the one that an answer belongs to; anything else is a violation of the protocol.
Whatever happens, each request gets exactly one outcome within its time: an answer, or `Lost`
(I-50). A request that is overdue closes the connection, as Kafka's clients do: nothing else could
tell a late answer from the one that is expected next.

This file knows framing. It must not know what requests mean, or where brokers are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from strandline.errors import MalformedFrame
from strandline.protocol.apis import KNOWN, Api, ApiKey
from strandline.protocol.framing import parse_response_header, request_frame
from strandline.protocol.schema import decode_response
from strandline.sim.schedule import Schedule
from strandline.types import BrokerId


@dataclass(frozen=True, slots=True)
class Lost:
    """There is no answer to a request, and there never will be one."""

    was_sent: bool
    """Whether the broker may have got the request. If not, nothing came of it for certain."""
    reason: str


Outcome: TypeAlias = Any
"""The response message of a request, or `Lost`."""
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
    """What the network calls, always later than the call that led to it."""

    def opened(self) -> None:
        """The connection stands."""

    def received(self, frame: bytes) -> None:
        """One frame came, its size left out."""

    def closed(self, reason: str) -> None:
        """The other side or the network ended it; or it could not be opened."""


class Watcher(Protocol):
    """Who owns the connections of a client."""

    def connection_ended(self, connection: Connection, *, was_open: bool) -> None:
        """It is of no use any more. Its requests have their outcomes."""

    def request_overdue(self, broker_id: BrokerId, api: ApiKey) -> None:
        """A broker did not answer in time."""

    def answer_malformed(self, broker_id: BrokerId, what: str, *, is_damaged: bool) -> None:
        """A broker sent bytes that are not an answer to what it was asked."""


@dataclass(slots=True)
class _Pending:
    api: Api
    version: int
    correlation_id: int
    deadline_us: int
    then: Then


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
        self._client_id = client_id
        self._wire: Wire | None = None
        self._correlation_id = 0
        self._pending: deque[_Pending] = deque()
        self._unsent: list[bytes] = []
        """Frames that wait for the connection to stand."""
        self._alarm_us: int | None = None

    def attach(self, wire: Wire) -> None:
        """The network has begun to open it."""
        self._wire = wire

    @property
    def outstanding(self) -> int:
        """Requests without an outcome."""
        return len(self._pending)

    # -- Requests ----------------------------------------------------------------------------

    def ask(self, key: ApiKey, version: int, message: object, timeout_us: int, then: Then) -> None:
        """Send a request; `then` hears its outcome, later, exactly once."""
        self._correlation_id += 1
        api = KNOWN[key]
        deadline_us = self._schedule.now_us + timeout_us
        self._pending.append(_Pending(api, version, self._correlation_id, deadline_us, then))
        self._send(api, version, message)
        if self._alarm_us is None or deadline_us < self._alarm_us:
            self._set_alarm(deadline_us)

    def tell(self, key: ApiKey, version: int, message: object) -> None:
        """Send a request that has no answer (produce with acks=0)."""
        self._correlation_id += 1
        self._send(KNOWN[key], version, message)

    def _send(self, api: Api, version: int, message: object) -> None:
        chunks = request_frame(api, version, self._correlation_id, self._client_id, message)
        frame = b"".join(chunks)  # type: ignore[arg-type]  # clients send no ranges of files
        if self.is_open:
            self._to_wire(frame)
        else:
            self._unsent.append(frame)

    def send_bytes(self, data: bytes) -> None:
        """Send bytes as they are, which may be no request at all."""
        if self.is_open:
            self._to_wire(data)
        else:
            self._unsent.append(data)

    def _to_wire(self, data: bytes) -> None:
        if self._wire is not None:
            self._wire.send(data)

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
        unsent, self._unsent = self._unsent, []
        for frame in unsent:
            self._to_wire(frame)

    def received(self, frame: bytes) -> None:
        """See `Peer`."""
        if self.is_over:
            return
        if not self._pending:
            self._malformed("an answer to nothing")
            return
        pending = self._pending[0]
        view = memoryview(frame)
        try:
            found, position = parse_response_header(view, pending.api, pending.version)
            answer = decode_response(pending.api.key, pending.version, view, position)
        except MalformedFrame as error:
            self._malformed(f"{pending.api.name} v{pending.version}: {error}")
            return
        if found != pending.correlation_id:
            self._malformed(f"the answer to {found}, not to {pending.correlation_id}")
            return
        self._pending.popleft()
        pending.then(answer)

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
        self._unsent.clear()
        pending, self._pending = self._pending, deque()
        self._watcher.connection_ended(self, was_open=was_open)
        lost = Lost(was_open, reason)
        for each in pending:
            each.then(lost)

    # -- Time --------------------------------------------------------------------------------

    def _set_alarm(self, at_us: int) -> None:
        self._alarm_us = at_us
        self._schedule.at(at_us, self._ring)

    def _ring(self) -> None:
        if self.is_over or self._alarm_us is None or self._schedule.now_us < self._alarm_us:
            return  # an alarm that an earlier one has replaced
        self._alarm_us = None
        if not self._pending:
            return
        oldest = min(self._pending, key=_deadline)
        if oldest.deadline_us > self._schedule.now_us:
            self._set_alarm(oldest.deadline_us)
            return
        self._watcher.request_overdue(self.broker_id, oldest.api.key)
        self.close(f"{oldest.api.name} was not answered in time")


def _deadline(pending: _Pending) -> int:
    return pending.deadline_us
