"""The network of a simulated cluster: links from broker to broker, with delays, cuts and holds.

Frames go whole; what is simulated is when they arrive, not how TCP cuts them. A pair of brokers
that is cut off from each other exchanges nothing, without either being told. A test may also hold
what one broker sends to another, and let it through frame by frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from strandline.node.connection import Connection
from strandline.node.effects import Ask, Chunk, ConnectionId, Dial, LinkId
from strandline.node.node import Node
from strandline.storage.log_read import LogSlice
from strandline.types import BrokerId, Instant
from tests.node.cluster_schedule import Pipe, Schedule


class End(Protocol):
    """A broker, as the network sees it."""

    broker_id: BrokerId
    node: Node
    is_running: bool
    incoming: dict[ConnectionId, Wire]
    outgoing: dict[LinkId, Wire]

    def event(self, action: Callable[[Node, Instant], None]) -> None:
        """Let something happen to the node, now or when it goes on."""


class Wire:
    """One link, from its dial on: requests one way, answers the other way."""

    def __init__(self, network: Network, source: End, target: End, link: LinkId) -> None:
        self.source = source
        self.target = target
        self.link = link
        self.connection: Connection | None = None
        self._network = network
        self._partial = bytearray()
        pipe = network.pipe
        self.requests: Pipe[bytes | None] = pipe(source, target, self._request)
        self.answers: Pipe[bytes | None] = pipe(target, source, self._answer)
        self._opening: Pipe[None] = pipe(source, target, lambda _: self._open())
        self._opening.send(None)

    @property
    def pipes(self) -> tuple[tuple[BrokerId, BrokerId, Pipe[None] | Pipe[bytes | None]], ...]:
        """Every direction, with who sends and who receives."""
        source, target = self.source.broker_id, self.target.broker_id
        return (
            (source, target, self._opening),
            (source, target, self.requests),
            (target, source, self.answers),
        )

    @property
    def is_over(self) -> bool:
        """Whether neither side has the link any more."""
        connection = self.connection
        return self.source.outgoing.get(self.link) is not self and (
            connection is None or self.target.incoming.get(connection.id) is not self
        )

    def ask(self, effect: Ask) -> None:
        """The source sends a request."""
        frame = b"".join(effect.chunks)
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        self._network.frames += 1
        self.requests.send(frame[4:])

    def reply(self, chunks: Iterable[Chunk]) -> None:
        """The target sends bytes, which may be several answers."""
        for chunk in chunks:
            if isinstance(chunk, LogSlice):
                data = chunk.file.read_at(chunk.position, chunk.length)
                assert len(data) == chunk.length, "a range of a log was cut before it was sent"
                self._partial += data
            else:
                self._partial += chunk
        while len(self._partial) >= 4:
            end = 4 + int.from_bytes(self._partial[:4], "big")
            if len(self._partial) < end:
                break
            self._network.frames += 1
            self.answers.send(bytes(self._partial[4:end]))
            del self._partial[:end]

    def hang_up(self) -> None:
        """The source ends the link: the target learns of it behind what was sent before."""
        self.source.outgoing.pop(self.link, None)
        self.requests.send(None)

    def close(self) -> None:
        """The target ends the connection."""
        if self.connection is not None:
            self.target.incoming.pop(self.connection.id, None)
        self.answers.send(None)

    def break_off(self, *, died: End) -> None:
        """One end has died: the other finds out behind what was sent before."""
        if died is self.source:
            self.requests.send(None)
        else:
            self.answers.send(None)

    def _open(self) -> None:
        if self.source.outgoing.get(self.link) is not self:
            return
        if not self.target.is_running:
            self._closed("connection refused")
            return

        def accept(node: Node, now: Instant) -> None:
            del now
            host = f"broker-{self.source.broker_id}"
            connection = self.connection = node.open_connection(host, "PLAINTEXT")
            self.target.incoming[connection.id] = self

        self.target.event(accept)
        self.source.event(lambda node, now: node.link_opened(self.link, now))

    def _request(self, frame: bytes | None) -> None:
        connection = self.connection
        if connection is None or self.target.incoming.get(connection.id) is not self:
            return

        def handle(node: Node, now: Instant) -> None:
            if frame is None:
                self.target.incoming.pop(connection.id, None)
                node.close_connection(connection)
            else:
                buffer = memoryview(bytearray(frame))
                node.receive(connection, buffer, now)
                buffer[:] = b"\xee" * len(buffer)

        self.target.event(handle)

    def _answer(self, frame: bytes | None) -> None:
        if self.source.outgoing.get(self.link) is not self:
            return
        if frame is None:
            self._closed("the connection was closed")
            return

        def handle(node: Node, now: Instant) -> None:
            buffer = memoryview(bytearray(frame))
            node.link_received(self.link, buffer, now)
            # The bytes belong to the driver again: nobody may look at them any more.
            buffer[:] = b"\xee" * len(buffer)

        self.source.event(handle)

    def _closed(self, reason: str) -> None:
        if self.source.outgoing.get(self.link) is self:
            del self.source.outgoing[self.link]
            self.source.event(lambda node, now: node.link_closed(self.link, reason, now))


class Network:
    """All wires, and who cannot reach whom."""

    def __init__(self, schedule: Schedule, delay_ms: Callable[[], int]) -> None:
        self.schedule = schedule
        self._delay_ms = delay_ms
        self._wires: list[Wire] = []
        self._held: set[tuple[BrokerId, BrokerId]] = set()
        self.frames = 0
        """Requests and answers that were sent so far."""

    def dial(self, source: End, target: End, effect: Dial) -> None:
        """A broker connects with another one."""
        wire = Wire(self, source, target, effect.link)
        source.outgoing[effect.link] = wire
        self._wires = [each for each in self._wires if not each.is_over]
        self._wires.append(wire)

    def pipe(self, sender: End, receiver: End, deliver: Callable[[object], None]) -> Pipe[object]:
        """A direction of a wire."""
        pipe: Pipe[object] = Pipe(self.schedule, self._delay_ms, deliver)
        if (sender.broker_id, receiver.broker_id) in self._held:
            pipe.hold()
        return pipe

    def hold(self, pairs: Iterable[tuple[BrokerId, BrokerId]]) -> None:
        """Deliver nothing from the first to the second broker of each of exactly these pairs."""
        self._held = set(pairs)
        for wire in list(self._wires):
            for sender, receiver, pipe in wire.pipes:
                if (sender, receiver) in self._held:
                    pipe.hold()
                elif pipe.is_held:
                    pipe.release()

    def is_held(self, sender: int, receiver: int) -> bool:
        """Whether something waits between two brokers."""
        return any(
            pipe.waiting
            for wire in self._wires
            for at, to, pipe in wire.pipes
            if (at, to) == (sender, receiver)
        )

    def tamper(
        self, sender: BrokerId, receiver: BrokerId, change: Callable[[bytes], bytes]
    ) -> bool:
        """Change the frames that wait between two brokers; whether that made a difference."""
        made = False
        for wire in self._wires:
            for at, to, pipe in wire.pipes:
                if (at, to) == (sender, receiver):
                    made |= pipe.change(change)
        return made

    def let_through(self, sender: BrokerId, receiver: BrokerId) -> bool:
        """Deliver the oldest held thing between two brokers; whether there was any."""
        for wire in self._wires:
            for at, to, pipe in wire.pipes:
                if (at, to) == (sender, receiver) and pipe.waiting:
                    pipe.let_through()
                    return True
        return False

    def died(self, end: End) -> None:
        """A process has ended."""
        for wire in self._wires:
            if end in (wire.source, wire.target) and not wire.is_over:
                wire.break_off(died=end)
