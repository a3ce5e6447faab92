"""The parts of a wire: the owner of an end, the items that go over it, the state of an end.

This file knows the values only. What becomes of them is in `wire_sending` (a stream's way out),
`wire_reading` (its way in) and `wires` (how connections begin and end).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from strandline.storage.log_reader import LogSlice

if TYPE_CHECKING:
    from strandline.sim.latency import End, Path, Tcp
    from strandline.sim.schedule import Schedule

FRAME_BYTES_MAX: Final = 104_857_600
"""The largest frame of an end that sets no limit: the default of `socket.request.max.bytes`."""
CLOSED: Final = "it closed the connection"
RESET: Final = "reading failed: Connection reset by peer"
TIMED_OUT: Final = "writing failed: Connection timed out"

_PAGE_BYTES: Final = 4096


class Peer(Protocol):
    """The owner of one end of a wire. No method is called within the call that led to it."""

    def opened(self) -> None:
        """The connection is established. Called at the end that dialled."""

    def received(self, frame: bytes) -> None:
        """One whole frame came, its size left out."""

    def closed(self, reason: str) -> None:
        """The connection has ended, other than by a call of this end. Also the end of a failed
        dial."""


class ServerPeer(Peer, Protocol):
    """The end that accepted a connection."""

    @property
    def wants_input(self) -> bool:
        """Whether another frame may be handed over."""

    def read_late(self, chunk: LogSlice) -> bytes | None:
        """The bytes in that range of the file now; None if the sending process has ended."""


class Control(Enum):
    """What goes over a wire beside bytes."""

    SYN_ACK = "the connection stands"
    FIN = CLOSED
    RESET = RESET


class Late:
    """A range of a file on its way: the bytes as they were when the driver sent them."""

    __slots__ = ("as_sent", "chunk")

    def __init__(self, chunk: LogSlice, as_sent: bytes) -> None:
        self.chunk = chunk
        self.as_sent = as_sent

    def when_it_leaves(self, peer: ServerPeer) -> bytes:
        """The bytes that really leave.

        A file that was cut meanwhile gives zeros for the rest of its last page, which the kernel
        clears in place; whole pages that were cut off belong to the socket and keep their bytes.
        """
        now = peer.read_late(self.chunk)
        if now is None or now == self.as_sent:
            return self.as_sent
        end = self.chunk.position + len(now)
        cleared = min(-end % _PAGE_BYTES, len(self.as_sent) - len(now))
        return now + bytes(cleared) + self.as_sent[len(now) + cleared :]


Item: TypeAlias = bytes | Late | Control


class Promised(NamedTuple):
    """A range of a file that waits in the driver, answered when the file had been cut so often."""

    chunk: LogSlice
    cuts: int


class State(Enum):
    """Of one end."""

    DIALLING = "dialling"
    OPEN = "open"
    OVER = "over"


@dataclass(slots=True)
class Counts:
    """What has happened in a network so far."""

    dials: int = 0
    frames: int = 0
    bytes: int = 0
    refused: int = 0
    timeouts: int = 0
    resets: int = 0
    flips: int = 0
    stuck_writes: int = 0
    """Writes that had to wait for a slow reader."""
    ranges: int = 0
    """Log ranges that were sent from the page cache."""
    late_changes: int = 0
    """Those of them whose bytes had changed before they left."""
    cut_ranges: int = 0
    """Answers that ended with their connection, since the file was cut before they were sent."""


class WholeWire(Protocol):
    """One end of a connection (`wires.Wire`), as its classes call it and the other end."""

    state: State
    is_damaged: bool
    is_forgotten: bool

    def syn_arrived(self) -> None:
        """SYN is on the other side, or would be if anything came through."""

    def take(self, item: bytes | Control) -> None:
        """Something has arrived here."""

    def read_soon(self) -> None:
        """Look, in an event of its own, whether something can be handed over."""

    def acknowledged(self, size: int) -> None:
        """The other side has read so much."""

    def recovered(self) -> None:
        """Acknowledgements come again."""

    def watch_whether_stuck(self) -> None:
        """Something of this side is not acknowledged: give up if that lasts too long."""

    def send_reset(self) -> None:
        """Answer with RST."""

    def break_off(self, reason: str) -> None:
        """Close this end at once and call its owner."""


AWire = TypeVar("AWire", bound=WholeWire)
_Carried = TypeVar("_Carried", bound=WholeWire, contravariant=True)


class Carrier(Protocol[_Carried]):
    """The network (`network.Network`), as its wires call it."""

    schedule: Schedule
    tcp: Tcp
    window_bytes: int
    counts: Counts

    def path(self, source: End, target: End) -> Path:
        """The one direction between two ends."""

    def ended(self, wire: _Carried) -> None:
        """One end is over."""

    def waits(self, wire: _Carried) -> None:
        """It has something for which its path is blocked."""

    def owes(self, wire: _Carried) -> None:
        """It has read something without being able to say so."""

    def sent(self, wire: _Carried, data: bytes) -> None:
        """An accepting side has sent something."""

    def arrived(self, wire: _Carried, data: bytes) -> bytes:
        """Bytes have arrived at one end; returns them, perhaps damaged."""


class WireState(Generic[AWire]):
    """One end of a connection: its fields, for the classes that build on it."""

    __slots__ = (
        "_arrive_action",
        "_arrived",
        "_ending",
        "_flight",
        "_is_reading",
        "_kept",
        "_last_us",
        "_network",
        "_owed",
        "_read_is_due",
        "_reading_stopped",
        "_schedule",
        "_server",
        "_stuck_since_us",
        "_unread",
        "_unsent",
        "back",
        "bytes_under_way",
        "frame_bytes_max",
        "is_damaged",
        "is_forgotten",
        "other",
        "other_end",
        "own",
        "path",
        "peer",
        "state",
        "whole",
    )

    def __init__(
        self, network: Carrier[AWire], own: End, other_end: End, peer: Peer | None, state: State
    ) -> None:
        self._network = network
        self._schedule = network.schedule
        self.whole: AWire
        """This end, as all classes that build on this one make it."""
        self.own = own
        self.other_end = other_end
        self.path: Path = network.path(own, other_end)
        self.back: Path = network.path(other_end, own)
        self.peer = peer
        self._server: ServerPeer | None = None
        self.other: AWire | None = None
        self.state = state
        self.is_damaged = False
        self.is_forgotten = False
        """Whether the kernel has nothing of it any more: it answers packets with RST."""
        self.frame_bytes_max = FRAME_BYTES_MAX
        # Outgoing.
        self._unsent: deque[bytes | Promised] = deque()
        """Waits in the driver, because the other side does not read fast enough."""
        self.bytes_under_way = 0
        """Written, and not yet read on the other side as far as this one knows."""
        self._flight: deque[Item] = deque()
        self._arrived = 0
        """Items at the head of `_flight` that would have arrived, were the path not blocked."""
        self._last_us = 0
        self._stuck_since_us: int | None = None
        self._arrive_action: Callable[[], None]
        # Incoming.
        self._kept = bytearray()
        """Arrived and not handed over: frames that wait, or a part of one."""
        self._unread = 0
        """Those of the bytes kept that the driver has not taken from the socket."""
        self._owed = 0
        """Bytes read of which the other side has not heard, because the way back is cut."""
        self._ending: Control | None = None
        self._is_reading = False
        self._read_is_due = False
        self._reading_stopped = False

    def __repr__(self) -> str:
        return f"{self.own} to {self.other_end}, {self.state.value}"

    def note_damage(self) -> None:
        """What one side sends is not what the other gets, or not what it should be."""
        self.is_damaged = True
        if self.other is not None:
            self.other.is_damaged = True

    @property
    def is_open(self) -> bool:
        """Whether its owner can send."""
        return self.state is State.OPEN

    @property
    def is_accepted(self) -> bool:
        """Whether this is the side that was dialled."""
        return self._server is not None

    @property
    def unsent_bytes(self) -> int:
        """What waits in the driver."""
        return sum(
            item.length if isinstance(item, LogSlice) else len(item) for item in self._unsent
        )

    def lose_flight(self) -> None:
        """Nothing of what is under way arrives."""
        self._flight.clear()
        self._arrived = 0

    def _over(self) -> None:
        self.state = State.OVER
        self._unsent.clear()
        self._kept = bytearray()
        self._ending = None
        self._network.ended(self.whole)

    def _tell(self, reason: str) -> None:
        peer, self.peer = self.peer, None
        if peer is not None:
            peer.closed(reason)
