"""A wire's way out: what its owner sends, until it is on the other side.

    send ──> unsent (the window is full) ──> in flight ──> (the path is blocked) ──> the other end

Bytes on their way are bounded by the window: what was written and not yet read on the other side.
What is beyond waits in the driver, log ranges unread. Here is also what a sender notices of a path
that does not work: data that is not acknowledged for long ends the connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from strandline.errors import InvariantViolated, StorageError
from strandline.node.effects import Chunk
from strandline.sim.wire_state import (
    RESET,
    TIMED_OUT,
    AWire,
    Control,
    Item,
    Late,
    Promised,
    State,
    WireState,
)
from strandline.storage.log_reader import LogSlice


class WireSending(WireState[AWire]):
    """The part of `wires.Wire` that sends."""

    __slots__ = ()

    def send(self, data: bytes) -> None:
        """Put bytes on their way behind those before. Nothing happens when it is over."""
        if self.state is not State.OPEN:
            if self.state is State.DIALLING:
                raise InvariantViolated(f"Bytes were sent before the connection stood: {self}.")
            return
        size = len(data)
        if self._unsent or self.bytes_under_way + size > self._network.window_bytes:
            self._unsent.append(data)
            self._send_unsent()
        else:
            self.bytes_under_way += size
            self._put(data, size)
        if self._server is not None:
            self._network.sent(self.whole, data)

    def send_chunks(self, chunks: Sequence[Chunk]) -> None:
        """Put the chunks on their way, as `broker/transport.py` does; a failing read ends it."""
        small: list[bytes | bytearray | memoryview] = []
        copied_max = self._network.tcp.copied_slice_bytes
        try:
            for chunk in chunks:
                if not isinstance(chunk, LogSlice):
                    small.append(chunk)
                elif chunk.length <= copied_max and not self._unsent:
                    small.append(chunk.read())
                elif self.state is State.OPEN:
                    if small:
                        self.send(b"".join(small))
                        small = []
                    self._unsent.append(Promised(chunk, chunk.file.cuts))
                    self._send_unsent()
            if small:
                self.send(b"".join(small))
        except StorageError as error:
            self._fail(f"reading a log failed: {error}")

    def _put(self, item: Item, size: int) -> None:
        at_us = self.path.arrival_us(self._schedule.now_us, size)
        if at_us > self._last_us:
            self._last_us = at_us
        self._flight.append(item)
        self._schedule.at(self._last_us, self._arrive_action)

    def _send_unsent(self) -> None:
        """Move what waits into the socket as far as the window allows."""
        unsent = self._unsent
        while unsent:
            room = self._network.window_bytes - self.bytes_under_way
            if room <= 0:
                self._network.counts.stuck_writes += 1
                return
            head = unsent.popleft()
            if isinstance(head, Promised):
                chunk, cuts = head
                if chunk.file.cuts != cuts:
                    # As `broker/transport.py`: other records may stand there now (note 0022).
                    self._network.counts.cut_ranges += 1
                    self._fail("a log range was cut before it was sent")
                    return
                if chunk.length > room:
                    rest = chunk._replace(
                        position=chunk.position + room, length=chunk.length - room
                    )
                    unsent.appendleft(Promised(rest, cuts))
                    chunk = chunk._replace(length=room)
                self._send_range(chunk)
                if self.state is not State.OPEN:
                    return
            else:
                if len(head) > room:
                    unsent.appendleft(head[room:])
                    head = head[:room]
                self.bytes_under_way += len(head)
                self._put(head, len(head))
        if self._server is not None:
            self.whole.read_soon()

    def _send_range(self, chunk: LogSlice) -> None:
        try:
            data = chunk.read()
        except StorageError as error:
            self._fail(f"a log range was lost before it was sent: {error}")
            return
        self.bytes_under_way += len(data)
        self._network.counts.ranges += 1
        self._network.sent(self.whole, data)
        self._put(Late(chunk, data), len(data))

    def acknowledged(self, size: int) -> None:
        """The other side has read so much."""
        self.bytes_under_way -= size
        if self._unsent and self.state is State.OPEN:
            self._send_unsent()

    def _arrive(self) -> None:
        """The next item is due on the other side."""
        if not self._flight:
            return  # what was under way is lost
        if self._arrived or self.path.is_blocked:
            if self.other is None and self.path.is_dead:
                self._hand_over(self._flight.popleft())
                return
            self._arrived += 1
            self._network.waits(self.whole)
            if self.path.is_dead:
                self.watch_whether_stuck()
            return
        self._hand_over(self._flight.popleft())

    def let_through(self) -> None:
        """Deliver what had to wait, unless it has to wait again."""
        while self._arrived and self._flight:
            if self.path.is_blocked:
                self._network.waits(self.whole)
                return
            self._arrived -= 1
            self._stuck_since_us = None
            self._hand_over(self._flight.popleft())
        self._arrived = 0

    @property
    def is_waiting(self) -> bool:
        """Whether something would have arrived, were the path not blocked."""
        return bool(self._arrived and self._flight)

    @property
    def held(self) -> Sequence[Item]:
        """What would have arrived, were the path not blocked, in its order."""
        return tuple(self._flight)[: self._arrived]

    def let_one_through(self) -> None:
        """Deliver the first thing that waits, though the path is blocked."""
        self._arrived -= 1
        self._hand_over(self._flight.popleft())

    def _hand_over(self, item: Item) -> None:
        other = self.other
        if other is None:
            self.whole.syn_arrived()
            return
        if isinstance(item, Late):
            item = self._when_it_leaves(item)
        if other.state is not State.OVER:
            other.take(item)
        elif not isinstance(item, Control) or other.is_forgotten:
            # A kernel, too, answers with RST what comes for a connection that it does not know.
            other.send_reset()

    def _when_it_leaves(self, late: Late) -> bytes:
        server = self._server
        if server is None or self.state is not State.OPEN:
            return late.as_sent
        data = late.when_it_leaves(server)
        if data != late.as_sent:
            self._network.counts.late_changes += 1
        return data

    def send_reset(self) -> None:
        """Answer with RST."""
        at_us = self.path.arrival_us(self._schedule.now_us, 0)
        self._schedule.at(at_us, self._reset_arrived)

    def _reset_arrived(self) -> None:
        """A packet with RST arrived. A kernel does not retransmit a lost one."""
        if not self.path.is_dead and self.other is not None:
            self.other.break_off(RESET)

    # -- ending ------------------------------------------------------------------------------

    def break_off(self, reason: str) -> None:
        """Close this end at once and call its owner. Bytes that have not left are lost."""
        self.is_forgotten = True
        self.lose_flight()
        if self.state is not State.OVER:
            self._over()
            self._tell(reason)

    def _fail(self, reason: str) -> None:
        """The driver ends it, perhaps in the middle of a frame: both sides hear, later."""
        if self.state is not State.OVER:
            self._over()
            if self.other is not None:
                self._put(Control.FIN, 0)
            self._schedule.after(0, partial(self._tell, reason))

    # -- being stuck -------------------------------------------------------------------------

    def watch_whether_stuck(self) -> None:
        """Something of this side is not acknowledged: give up if that lasts too long."""
        if self._stuck_since_us is None:
            self._stuck_since_us = self._schedule.now_us
            self._schedule.after(self._network.tcp.user_timeout_us, self._give_up)

    def recovered(self) -> None:
        """Acknowledgements come again."""
        self._stuck_since_us = None

    def _give_up(self) -> None:
        since_us = self._stuck_since_us
        if since_us is None or self.is_forgotten:
            return
        left_us = since_us + self._network.tcp.user_timeout_us - self._schedule.now_us
        if left_us > 0:
            self._schedule.after(left_us, self._give_up)
            return
        self._network.counts.timeouts += 1
        self.send_reset()
        self.break_off(TIMED_OUT)
