"""The network of a simulated cluster: its connections, and the faults between two ends.

All connections, of brokers and of clients, are `Wire`s over `Path`s. This file opens them, knows
which are there, and holds the faults:

    cut      packets vanish without a notice. Data that is stuck for long ends a connection, a dial
             ends in its time-out, both as in TCP (F-22 to F-27)
    clog     packets wait and come in a burst (F-32)
    stall    packets arrive but the receiver does not read; the window fills (F-34)
    slow     everything takes a multiple of its time
    reset    all connections between two ends die, in mid-frame if something is under way (F-31)
    flip     one bit changes (F-33), see `damage`

Faults are for one direction, or both ways where it says so; `None` is every end. The same fault on
the same pair may be made by several causes: it ends when the last of them ends it. This file does
not know when faults come (the plan does), nor what frames mean.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from typing import Protocol, TypeAlias

from strandline.errors import InvariantViolated
from strandline.sim.damage import flip_in_records, flip_in_size
from strandline.sim.latency import End, Path, Tcp
from strandline.sim.plan import LatencySpec
from strandline.sim.schedule import Schedule
from strandline.sim.streams import Streams
from strandline.sim.wire_state import Counts
from strandline.sim.wires import Peer, ServerPeer, State, Wire
from strandline.types import BrokerId

__all__ = ["End", "Host", "Network", "Peer", "ServerPeer", "Wire"]

Pair: TypeAlias = tuple[End | None, End | None]
"""The sender and the receiver of packets; None is every end."""


class Host(Protocol):
    """A broker's machine, as the network sees it."""

    @property
    def is_powered(self) -> bool:
        """Whether there is a kernel that answers, be it with a refusal."""

    @property
    def connections_max(self) -> int:
        """`max.connections` of the process."""

    @property
    def frame_bytes_max(self) -> int:
        """`socket.request.max.bytes` of the process."""

    def accept(self, wire: Wire, source: End) -> ServerPeer | None:
        """Accept a connection; None if no process listens."""


class Network:
    """See the module."""

    def __init__(
        self,
        schedule: Schedule,
        streams: Streams,
        latency: LatencySpec | None = None,
        tcp: Tcp | None = None,
    ) -> None:
        """Without `tcp`, it is drawn."""
        self.schedule = schedule
        self.tcp = Tcp.draw(streams("network")) if tcp is None else tcp
        self.window_bytes = self.tcp.window_bytes
        self.counts = Counts()
        self.on_sent: Callable[[Wire, bytes], None] | None = None
        """Gets what accepting sides send, when its bytes are read."""
        self.trace: Callable[[End, End, bytes], None] | None = None
        """Gets everything that arrives: from whom, at whom."""
        self._streams = streams
        self._latency = LatencySpec() if latency is None else latency
        self._hosts: dict[BrokerId, Host] = {}
        self._paths: dict[tuple[End, End], Path] = {}
        self._wires: dict[End, dict[Wire, None]] = {}
        self._waiting: dict[Path, dict[Wire, None]] = {}
        self._owing: dict[Path, dict[Wire, None]] = {}
        self._dark: set[End] = set()
        self._cut: Counter[Pair] = Counter()
        self._clogged: Counter[Pair] = Counter()
        self._stalled: Counter[Pair] = Counter()
        self._factors: dict[Pair, int] = {}
        self._flips: list[tuple[Pair, str]] = []
        self._is_calm = False

    # -- connecting --------------------------------------------------------------------------

    def attach(self, broker_id: BrokerId, host: Host) -> None:
        """A machine is connected to the network, once and for all of its lives."""
        self._hosts[broker_id] = host

    def dial(self, source: End, target: BrokerId, peer: Peer) -> Wire:
        """Connect; `peer` is called with the outcome."""
        wire = Wire(self, source, target, peer, State.DIALLING)
        if not isinstance(source, str):
            wire.frame_bytes_max = self._hosts[source].frame_bytes_max
        self._enter(wire)
        self.counts.dials += 1
        wire.dial()
        return wire

    def died(self, broker_id: BrokerId, *, silent: bool) -> None:
        """A process has ended; `silent` if its machine has lost its power."""
        for wire in list(self._wires.get(broker_id, ())):
            if silent:
                wire.power_lost()
            else:
                wire.owner_died()
        if silent:
            for waiting in self._waiting.values():
                for wire in waiting:
                    if wire.own == broker_id:
                        wire.power_lost()
            self._dark.add(broker_id)
            self._refresh()

    def powered_on(self, broker_id: BrokerId) -> None:
        """A machine has power again; its kernel knows nothing of earlier connections."""
        self._dark.discard(broker_id)
        self._refresh()

    def is_quick(self, source: End, target: End) -> bool:
        """Whether what is sent comes through, and not much later than from others."""
        path = self._paths.get((source, target))
        return path is None or not (path.is_blocked or path.is_stalled or path.factor > 1)

    def wires_of(self, end: End) -> list[Wire]:
        """Its ends of connections that are open or being dialled."""
        return list(self._wires.get(end, ()))

    @property
    def counters(self) -> dict[str, int]:
        """What has happened so far, by name."""
        counters = asdict(self.counts)
        counters["retransmissions"] = sum(path.lost for path in self._paths.values())
        return counters

    # -- faults ------------------------------------------------------------------------------

    def cut(self, source: End | None, target: End | None) -> None:
        """Lose every packet from one to the other."""
        self._begin(self._cut, (source, target))

    def mend(self, source: End | None, target: End | None) -> None:
        """End a `cut`."""
        self._end(self._cut, (source, target))

    def clog(self, source: End | None, target: End | None) -> None:
        """Hold every packet from one to the other."""
        self._begin(self._clogged, (source, target))

    def unclog(self, source: End | None, target: End | None) -> None:
        """End a `clog`: what was held comes in a burst."""
        self._end(self._clogged, (source, target))

    def stall(self, source: End | None, target: End | None) -> None:
        """Let the target read nothing that the source sends."""
        self._begin(self._stalled, (source, target))

    def unstall(self, source: End | None, target: End | None) -> None:
        """End a `stall`."""
        self._end(self._stalled, (source, target))
        for wires in list(self._wires.values()):
            for wire in wires:
                wire.read_soon()

    def is_waiting(self, source: End, target: End) -> bool:
        """Whether something waits because the path is blocked."""
        return bool(self.held(source, target))

    def held(self, source: End, target: End) -> list[Wire]:
        """The connections on which something waits because the path is blocked, in the order in
        which they began to wait."""
        waiting = self._waiting.get(self.path(source, target), ())
        return [wire for wire in waiting if wire.is_waiting]

    def let_one_through(self, source: End, target: End) -> bool:
        """Deliver the oldest thing that waits on a path; whether there was one.

        The path stays blocked. For tests that go step by step. Of several connections it is the one
        that began to wait first.
        """
        for wire in self.held(source, target):
            wire.let_one_through()
            return True
        return False

    def slow(self, source: End | None, target: End | None, factor: int) -> None:
        """Let everything take so many times longer; 1 ends it."""
        self._factors[source, target] = factor
        self._refresh()

    def reset(self, some: End | None, other: End | None) -> int:
        """Kill all connections between the two; returns how many there were."""
        wires = [
            wire
            for mine in self._wires.values()
            for wire in mine
            if wire.other is not None
            and (
                (_fits(wire.own, some) and _fits(wire.other_end, other))
                or (_fits(wire.own, other) and _fits(wire.other_end, some))
            )
        ]
        pairs: dict[Wire, None] = {}
        for wire in wires:
            pairs[wire] = None
            if wire.other is not None:
                pairs[wire.other] = None
        for wire in pairs:
            wire.lose_in_mid_frame()
        for wire in pairs:
            wire.reset()
        self.counts.resets += len(pairs) // 2
        return len(pairs) // 2

    def flip(self, source: End | None, target: End | None, where: str = "records") -> None:
        """Damage the next item from one to the other that has such a place: see `damage`."""
        if where not in ("records", "size"):
            raise InvariantViolated(f"A bit can be flipped in records or size, not in {where}.")
        self._flips.append(((source, target), where))

    def heal(self) -> None:
        """End every fault, and be a healthy network from now on: without loss of packets, slow
        pairs and spikes, so that what has to come right in bounded time can."""
        self._is_calm = True
        for path in self._paths.values():
            path.calm()
        for fault in (self._cut, self._clogged, self._stalled):
            fault.clear()
        self._factors.clear()
        self._flips.clear()
        self._refresh()
        for wires in list(self._wires.values()):
            for wire in wires:
                wire.read_soon()

    def _begin(self, fault: Counter[Pair], pair: Pair) -> None:
        fault[pair] += 1
        self._refresh()

    def _end(self, fault: Counter[Pair], pair: Pair) -> None:
        if fault[pair] > 1:
            fault[pair] -= 1
        else:
            del fault[pair]
        self._refresh()

    def _refresh(self) -> None:
        """Bring every path in line with the faults; release what may go on."""
        for path in self._paths.values():
            was_dead, was_blocked = path.is_dead, path.is_blocked
            self._set(path)
            if was_blocked and not path.is_blocked:
                self._release(path, was_dead=was_dead)
            if was_dead and not path.is_dead:
                for wire in self._owing.pop(path, ()):
                    self.schedule.after(path.retransmission_us(), wire.pay)

    def _release(self, path: Path, *, was_dead: bool) -> None:
        for wire in self._waiting.pop(path, ()):
            delay_us = path.retransmission_us() if was_dead else 0
            self.schedule.after(delay_us, wire.let_through)

    def _set(self, path: Path) -> None:
        source, target = path.source, path.target
        pairs: tuple[Pair, ...] = ((source, target), (source, None), (None, target), (None, None))
        path.is_cut = any(pair in self._cut for pair in pairs)
        path.is_clogged = any(pair in self._clogged for pair in pairs)
        path.is_stalled = any(pair in self._stalled for pair in pairs)
        path.is_dark = target in self._dark
        before, path.factor = path.factor, path.own_factor
        for pair in pairs:
            path.factor *= self._factors.get(pair, 1)
        if path.factor < before:
            path.clear()
        path.refresh()

    # -- what wires need ---------------------------------------------------------------------

    def path(self, source: End, target: End) -> Path:
        """The one direction between two ends."""
        path = self._paths.get((source, target))
        if path is None:
            random = self._streams(f"network {source}>{target}")
            path = Path(source, target, self._latency, self.tcp, random)
            if self._is_calm:
                path.calm()
            self._paths[source, target] = path
            self._set(path)
        return path

    def accept(self, wire: Wire) -> ServerPeer | None:
        """Whom a dialled broker lets a new connection be served by."""
        own = wire.own
        host = None if isinstance(own, str) else self._hosts.get(own)
        if host is None:
            return None
        wire.frame_bytes_max = host.frame_bytes_max
        peer = host.accept(wire, wire.other_end)
        if peer is not None:
            self._enter(wire)
        return peer

    def is_full(self, broker_id: End) -> bool:
        """Whether a broker has as many connections as it takes."""
        host = None if isinstance(broker_id, str) else self._hosts.get(broker_id)
        if host is None:
            return False
        accepted = sum(wire.is_accepted for wire in self._wires.get(broker_id, ()))
        return accepted >= host.connections_max

    def _enter(self, wire: Wire) -> None:
        self._wires.setdefault(wire.own, {})[wire] = None

    def ended(self, wire: Wire) -> None:
        """One end is over."""
        self._wires.get(wire.own, {}).pop(wire, None)

    def waits(self, wire: Wire) -> None:
        """It has something for which its path is blocked."""
        self._waiting.setdefault(wire.path, {})[wire] = None

    def owes(self, wire: Wire) -> None:
        """It has read something without being able to say so."""
        self._owing.setdefault(wire.path, {})[wire] = None

    def sent(self, wire: Wire, data: bytes) -> None:
        """An accepting side has sent something."""
        if self.on_sent is not None:
            self.on_sent(wire, data)

    def arrived(self, wire: Wire, data: bytes) -> bytes:
        """Bytes have arrived at one end; returns them, perhaps damaged."""
        if self._flips:
            data = self._damage(wire, data)
        self.counts.bytes += len(data)
        if self.trace is not None:
            self.trace(wire.other_end, wire.own, data)
        return data

    def _damage(self, wire: Wire, data: bytes) -> bytes:
        for index, ((source, target), where) in enumerate(self._flips):
            if not (_fits(wire.other_end, source) and _fits(wire.own, target)):
                continue
            flip = flip_in_records if where == "records" else flip_in_size
            damaged = flip(data, wire.back.draw)
            if damaged is None:
                continue
            del self._flips[index]
            self.counts.flips += 1
            wire.note_damage()
            return damaged
        return data


def _fits(end: End, wanted: End | None) -> bool:
    return wanted is None or end == wanted
