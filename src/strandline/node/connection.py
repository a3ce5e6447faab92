"""One client connection as the node sees it: requests in order, answers in the same order.

Kafka promises that a connection's answers come in the order of its requests. Kafka itself keeps
one request per connection in work; here several are, so that a pipelining client is not slowed to
one request per round trip, and answers that are ready early wait in their slot until it is their
turn. Both the number of open slots and the bytes of answers that have not left are bounded: at
`in_flight_max` and `UNSENT_BYTES_MAX` the driver stops reading from that connection until answers
have left.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol

from strandline.errors import InvariantViolated
from strandline.protocol.framing import FRAME_BYTES_MAX
from strandline.storage.log_reader import LogSlice
from strandline.types import ANONYMOUS, Instant, Principal

UNSENT_BYTES_MAX: Final = 1024 * 1024
"""No further request is read while answers hold more memory than that. One answer may."""

if TYPE_CHECKING:
    from strandline.node.effects import Chunk, ConnectionId


class FastPath(Protocol):
    """A faster way for requests that look like earlier ones on this connection."""

    def maybe_handle(self, frame: memoryview, now: Instant) -> bool:
        """Handle the request, or decline it before anything has happened."""


class AuthenticationGate(Protocol):
    """What a client has to pass, see `authentication.gate`."""

    @property
    def is_shut(self) -> bool: ...
    @property
    def may_authenticate_again(self) -> bool: ...
    def maybe_handle(self, frame: memoryview, now: Instant) -> bool: ...
    def handshake(self, request: Any, now: Instant) -> None: ...
    def forget(self) -> None: ...


class Forgettable(Protocol):
    """Something that waits on behalf of the connection, and ends with it."""

    def forget(self) -> None:
        """End it without an answer."""


class Slot:
    """The place of one answer in its connection's order."""

    __slots__ = ("chunks", "size")

    def __init__(self) -> None:
        self.chunks: list[Chunk] | None = None
        self.size = 0
        """Bytes of memory that the answer takes: what stays in a log takes none."""


class Connection:
    """Order of answers and identity of one client connection. Moved only by the node."""

    __slots__ = (
        "client_host",
        "closing",
        "fast_path",
        "frame_bytes_max",
        "gate",
        "has_ended",
        "has_shown_token",
        "id",
        "in_flight_max",
        "is_busy",
        "listener",
        "muted_until_ms",
        "outgoing",
        "parked",
        "principal",
        "protocol",
        "slots",
        "unsent_bytes",
    )

    def __init__(
        self,
        connection_id: ConnectionId,
        client_host: str,
        listener: str,
        in_flight_max: int,
        principal: Principal = ANONYMOUS,
    ) -> None:
        """`client_host` is the client's address; `listener` the name of that which it came by."""
        self.id = connection_id
        self.principal = principal
        """Whose requests these are. Set before the first of them reaches its handler, and the same
        until the end: a client that authenticates again must be the same one (KIP-368)."""
        self.client_host = client_host
        self.listener = listener
        self.protocol = "PLAINTEXT"
        """The security protocol of the listener."""
        self.has_shown_token = False
        """Whether the client authenticated by a delegation token."""
        self.frame_bytes_max = FRAME_BYTES_MAX
        """The largest request that is read."""
        self.in_flight_max = in_flight_max
        self.is_busy = False
        """Whether the effects of one request go on in later turns: those behind it wait."""
        self.muted_until_ms: int | None = None
        """Until when nothing is read, since the client is beyond a quota."""
        self.slots: deque[Slot] = deque()
        self.outgoing: list[Chunk] = []
        self.unsent_bytes = 0
        """What the answers that were filled in take. The few bytes of those that take a fast path
        past all slots are not counted."""
        self.parked: dict[Forgettable, None] = {}
        self.closing: str | None = None
        self.fast_path: FastPath | None = None
        self.has_ended = False
        """Whether the client is gone: what is answered now is dropped."""
        self.gate: AuthenticationGate | None = None
        """Where the client authenticates; None if its listener has no SASL."""

    @property
    def wants_input(self) -> bool:
        """Whether another request may be read: the connection lives, has room in flight and for
        answers, no request before it is under way, and its client is within its quotas."""
        return (
            self.closing is None
            and len(self.slots) < self.in_flight_max
            and self.unsent_bytes <= UNSENT_BYTES_MAX
            and not self.is_busy
            and self.muted_until_ms is None
        )

    def ended(self) -> None:
        """Nothing comes any more."""
        self.has_ended = True
        if self.gate is not None:
            self.gate.forget()
        # They know the connection: such circles would stay until garbage is looked for, and to find
        # those of a flood of connections holds the loop for tens of milliseconds.
        self.gate = self.fast_path = None

    def forget_fast_path(self) -> None:
        """Have the next request take the general way; a gate stays where it is."""
        if self.gate is None or not self.gate.is_shut:
            self.fast_path = None

    def open_slot(self) -> Slot:
        """Take the next place in the order of answers."""
        slot = Slot()
        self.slots.append(slot)
        return slot

    def fill(self, slot: Slot, chunks: list[Chunk]) -> None:
        """Put an answer in its place; moves every answer whose turn has come to `outgoing`.

        An empty list stands for a request that gets no answer (produce with acks=0).
        """
        if slot.chunks is not None:
            raise InvariantViolated("A request was answered twice.")
        slot.chunks = chunks
        slot.size = sum(len(chunk) for chunk in chunks if not isinstance(chunk, LogSlice))
        self.unsent_bytes += slot.size
        slots = self.slots
        while slots and slots[0].chunks is not None:
            self.outgoing += slots.popleft().chunks  # type: ignore[arg-type]  # not None: just checked

    def take_outgoing(self) -> list[Chunk]:
        """Hand over the bytes whose turn has come."""
        chunks, self.outgoing = self.outgoing, []
        self.unsent_bytes = sum(slot.size for slot in self.slots)
        return chunks
