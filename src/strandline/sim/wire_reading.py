"""A wire's way in: bytes that have arrived, until the owner has them as frames.

As the driver does, a server's connection is read only while its owner wants input and nothing is
unsent; what stays in the socket keeps the other side's window closed. The side that dialled reads
always: else both could wait for each other.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from strandline.sim.wire_sending import WireSending
from strandline.sim.wire_state import AWire, Control, State

_SIZE: Final = Struct(">i")


class WireReading(WireSending[AWire]):
    """The part of `wires.Wire` that reads."""

    __slots__ = ()

    def stop_reading(self) -> None:
        """Leave what comes in the socket until `go_on`."""
        self._reading_stopped = True

    def go_on(self) -> None:
        """Hand over, soon, what was kept back; call it when its owner may want input again."""
        self._reading_stopped = False
        self.read_soon()

    def read_soon(self) -> None:
        """Look, in an event of its own, whether something can be handed over."""
        if (self._kept or self._ending is not None) and not self._read_is_due:
            self._read_is_due = True
            self._schedule.after(0, self._read_now)

    @property
    def _may_read(self) -> bool:
        server = self._server
        if server is not None and (self._unsent or not server.wants_input):
            return False
        return not (self._reading_stopped or self.back.is_stalled)

    def take(self, item: bytes | Control) -> None:
        """Something has arrived here."""
        if isinstance(item, Control):
            self._take_control(item)
            return
        network = self._network
        item = network.arrived(self.whole, item)
        size = len(item)
        if self._kept or not self._may_read:
            self._kept += item
            self._unread += size
            self._read()
        elif size >= 4 and _SIZE.unpack_from(item)[0] == size - 4:
            network.counts.frames += 1
            self._acknowledge(size)
            if self.peer is not None:
                self.peer.received(item[4:])
        else:
            self._kept += item
            self._unread += size
            self._read()

    def _take_control(self, item: Control) -> None:
        if item is Control.SYN_ACK:
            if self.state is State.DIALLING:
                self.state = State.OPEN
                if self.peer is not None:
                    self.peer.opened()
            return
        self._ending = item
        self._read()

    def _read_now(self) -> None:
        self._read_is_due = False
        self._read()

    def _read(self) -> None:
        """Hand over what may be: whole frames, then the end."""
        if self._is_reading or self.state is State.OVER:
            return
        self._is_reading = True
        try:
            self._hand_frames()
        finally:
            self._is_reading = False
        if self._ending is not None and self._may_read:
            self.break_off(self._ending.value)

    def _hand_frames(self) -> None:
        kept = self._kept
        position = 0
        while self.state is not State.OVER and self._may_read:
            if self._unread:
                unread, self._unread = self._unread, 0
                self._acknowledge(unread)
            if len(kept) - position < 4:
                break
            (size,) = _SIZE.unpack_from(kept, position)
            if size < 0 or size > self.frame_bytes_max:
                self._fail(
                    f"a frame of {size} bytes was announced; {self.frame_bytes_max} are allowed"
                )
                return
            end = position + 4 + size
            if len(kept) < end:
                break
            frame = bytes(memoryview(kept)[position + 4 : end])
            position = end
            self._network.counts.frames += 1
            if self.peer is not None:
                self.peer.received(frame)
        del kept[:position]

    def _acknowledge(self, size: int) -> None:
        other = self.other
        if other is None:
            return
        if self.path.is_dead:
            self._owed += size
            self._network.owes(self.whole)
            other.watch_whether_stuck()
        else:
            other.acknowledged(size)

    def pay(self) -> None:
        """The way back works again: the other side hears what was read."""
        owed, self._owed = self._owed, 0
        if owed and self.other is not None:
            self.other.recovered()
            self.other.acknowledged(owed)
