"""Connections of a simulated cluster: streams of bytes between two ends, as TCP gives them.

A `Wire` is one end of one connection; `other` is the other end. It stands for the kernel's socket
and for the driver's transport around it (`broker/transport.py`): it cuts frames out of the stream
by their size, reads from a server's connection only while that wants input and has nothing unsent,
and bounds the bytes that are under way in each direction. This file does not know what frames mean,
nor how long bytes take (`latency`), nor what is being broken (`network`).

    dial ── SYN ──> accepted ── SYN-ACK ──> open ── close, FIN, reset, time-out, death ──> over

What TCP does and this keeps: bytes come whole and in order or not at all; a connection can end in
the middle of a frame; an end does not learn that the other machine lost its power until one
of its packets reaches that machine again; bytes of a file that were given to sendfile belong to the
page cache until they have left, so that they change when the file changes (`Late`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from strandline.sim.wire_reading import WireReading
from strandline.sim.wire_state import (
    RESET,
    Carrier,
    Control,
    Late,
    Peer,
    ServerPeer,
    State,
)

if TYPE_CHECKING:
    from strandline.sim.latency import End

__all__ = ["Peer", "ServerPeer", "State", "Wire"]

_SYN_AGAIN_US: Final = 1_000_000
"""Pause before the second SYN; every further one is as long as all before together."""


class WireNetwork(Carrier["Wire"], Protocol):
    """The network (`network.Network`), as a connection that begins calls it."""

    def accept(self, wire: Wire) -> ServerPeer | None:
        """Whom a dialled broker lets a new connection be served by."""

    def is_full(self, broker_id: End) -> bool:
        """Whether a broker has as many connections as it takes."""


class Wire(WireReading["Wire"]):
    """One end of a connection. `is_open` says whether its owner may use it."""

    __slots__ = ()

    _network: WireNetwork

    def __init__(
        self, network: WireNetwork, own: End, other_end: End, peer: Peer | None, state: State
    ) -> None:
        super().__init__(network, own, other_end, peer, state)
        self._arrive_action = self._arrive
        self.whole = self

    # -- dialling ----------------------------------------------------------------------------

    def dial(self) -> None:
        """Send SYN, and retransmit it until there is an answer."""
        self._put(Control.SYN_ACK, 0)
        self._schedule.after(self._network.tcp.connect_timeout_us, self._timed_out)

    def syn_arrived(self) -> None:
        """SYN is on the other side, or would be if anything came through."""
        network = self._network
        if self.state is not State.DIALLING or self.other is not None:
            return
        if self.path.is_dead or self.back.is_dead:
            pause_us = max(_SYN_AGAIN_US, self._schedule.now_us - self._last_us)
            self._schedule.after(pause_us, self.syn_arrived)
            return
        accepted = Wire(network, self.other_end, self.own, None, State.OPEN)
        accepted.other = self
        is_full = network.is_full(self.other_end)
        peer = None if is_full else network.accept(accepted)
        if peer is None and not is_full:
            self._schedule.at(accepted.path.arrival_us(self._schedule.now_us, 0), self._refused)
            return
        self.other = accepted
        accepted.peer = accepted._server = peer
        accepted._put(Control.SYN_ACK, 0)
        if is_full:
            # As the acceptor does: it can only accept, and end what it accepted.
            network.counts.refused += 1
            accepted.close()

    def _timed_out(self) -> None:
        if self.state is State.DIALLING:
            self._network.counts.timeouts += 1
            self.break_off("it cannot be reached: Connection timed out")

    def _refused(self) -> None:
        if self.state is State.DIALLING:
            self._network.counts.refused += 1
            self.break_off("it cannot be reached: Connection refused")

    # -- ending ------------------------------------------------------------------------------

    def close(self) -> None:
        """End it behind what has left the driver. Its owner hears nothing of it any more."""
        self.peer = None
        if self.state is not State.OVER:
            self._over()
            if self.other is not None:
                self._put(Control.FIN, 0)

    def owner_died(self) -> None:
        """The process is gone; its kernel tells the other side behind what had left the process.

        If something was left unread, that is a RST, which makes the kernel forget what waits.
        """
        had_unread = bool(self._unread or self._kept)
        self.peer = None
        self._over()
        if self.other is not None:
            if had_unread:
                self._lose_tail()
            self._put(Control.RESET if had_unread else Control.FIN, 0)

    def power_lost(self) -> None:
        """The machine is dark: nothing more leaves it, and it will know of no connection."""
        self.peer = None
        self.is_forgotten = True
        if self.path.is_blocked:
            self.lose_flight()
        if self.state is not State.OVER:
            self._over()

    def _lose_tail(self) -> None:
        """Of what is under way, only a drawn part arrives: it can end in the middle of a frame."""
        kept = self.path.draw(len(self._flight) + 1)
        while len(self._flight) > kept + 1:
            self._flight.pop()
        if len(self._flight) > kept:
            cut = self._flight.pop()
            data = cut.as_sent if isinstance(cut, Late) else cut
            if not isinstance(data, Control):
                self._flight.append(data[: self.path.draw(len(data))])

    def lose_in_mid_frame(self) -> None:
        """Of what is under way only a part of the next item arrives, at once."""
        flight, other, item = self._flight, self.other, None
        if flight and not self.path.is_blocked:
            item = flight[0]
        self.lose_flight()
        if other is None or other.state is State.OVER or item is None:
            return
        data = item.as_sent if isinstance(item, Late) else item
        if not isinstance(data, Control):
            other.take(data[: self.path.draw(len(data))])

    def reset(self) -> None:
        """Something on the way has killed the connection; the owner hears soon."""
        self.is_forgotten = True
        self.lose_flight()
        if self.state is not State.OVER:
            self._over()
            at_us = self.path.arrival_us(self._schedule.now_us, 0)
            self._schedule.at(at_us, partial(self._tell, RESET))
