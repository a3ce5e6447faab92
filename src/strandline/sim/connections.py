"""The connections of one process: what stands between its node and the network's wires.

    Served        accepted: a client or another broker has dialled this broker
    Linked        this broker has dialled another one
    Connections   all of them, and the effects that are for them

The first two tell the process what came, which hands it to the node now, or when it goes on. A
connection is taken by the kernel before the process accepts it; until then, and while the process
does not run, what is sent waits in the socket. This file knows no frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from strandline.errors import StorageError
from strandline.node.connection import Connection
from strandline.node.effects import Chunk, ConnectionId, Dial, LinkId
from strandline.sim.principals import principal_of
from strandline.sim.running_process import RunningProcess
from strandline.sim.tokens import LISTENER, TOKENS
from strandline.sim.trace import Kind
from strandline.sim.wires import Wire
from strandline.storage.log_reader import LogSlice
from strandline.storage.memory_files import ProcessEnded

if TYPE_CHECKING:
    from strandline.sim.latency import End

_READY_US: Final = 10_000_000
"""A broker serves when it is registered, but at the latest after this time (`broker.startup`)."""

_USED_UP: Final = b"\xee"
"""What a driver may do with the bytes of a frame once the node is done with it."""


class Served:
    """The server's side of a connection; see `wires.ServerPeer`."""

    __slots__ = ("_connections", "_process", "connection", "is_client", "source", "wire")

    def __init__(self, connections: Connections, wire: Wire, source: End) -> None:
        self.wire = wire
        self.source = source
        self.is_client = isinstance(source, str)
        self.connection: Connection | None = None
        """None until the process accepts it."""
        self._connections = connections
        self._process = connections.process

    @property
    def wants_input(self) -> bool:
        """Whether another frame may be handed over."""
        connection = self.connection
        return connection is not None and not self._process.is_blocked and connection.wants_input

    def read_late(self, chunk: LogSlice) -> bytes | None:
        """The bytes in that range of the file now; None if the sending process has ended."""
        if self._process.is_over:
            return None
        try:
            return chunk.file.read_at(chunk.position, chunk.length)
        except StorageError:
            return None  # the kernel keeps the pages that it has
        except ProcessEnded as ended:
            self._process.machine.crashed(ended)
            return None

    def opened(self) -> None:
        """Never called at this end, which accepted the connection."""

    def received(self, frame: bytes) -> None:
        """A request came."""
        self._process.tell(self._receive, frame)

    def closed(self, reason: str) -> None:
        """It is over, and not by this broker."""
        self._process.tell(self._forget, reason)

    def _receive(self, frame: bytes) -> None:
        process, connection = self._process, self.connection
        if connection is None or connection.id not in self._connections.served:
            return
        buffer = bytearray(frame)
        process.node.receive(connection, memoryview(buffer), process.now)
        # The buffer belongs to the driver again: the node must not read it any more.
        buffer[:] = _USED_UP * len(buffer)

    def _forget(self, reason: str) -> None:
        process, connection = self._process, self.connection
        process.trace(Kind.CLOSED, reason.encode())
        if connection is None:
            self._connections.backlog.pop(self, None)
        elif self._connections.served.pop(connection.id, None) is not None:
            process.node.close_connection(connection)


class Linked:
    """The dialling side of a connection to another broker; see `wires.Peer`."""

    __slots__ = ("_connections", "_process", "link", "wire")

    def __init__(self, connections: Connections, link: LinkId) -> None:
        self.link = link
        self.wire: Wire | None = None
        self._connections = connections
        self._process = connections.process

    def opened(self) -> None:
        """The dial succeeded."""
        self._process.tell(self._open, None)

    def received(self, frame: bytes) -> None:
        """An answer came."""
        self._process.tell(self._receive, frame)

    def closed(self, reason: str) -> None:
        """It is over, and not by this broker; or it could not be made."""
        self._process.tell(self._close, reason)

    def _open(self, _: None) -> None:
        process = self._process
        if self.link in self._connections.links:
            process.trace(Kind.OPENED, b"")
            process.node.link_opened(self.link, process.now)

    def _receive(self, frame: bytes) -> None:
        process = self._process
        if self.link not in self._connections.links:
            return
        buffer = bytearray(frame)
        process.node.link_received(self.link, memoryview(buffer), process.now)
        buffer[:] = _USED_UP * len(buffer)

    def _close(self, reason: str) -> None:
        process = self._process
        if self._connections.links.pop(self.link, None) is not None:
            process.trace(Kind.CLOSED, reason.encode())
            process.node.link_closed(self.link, reason, process.now)


class Connections:
    """See the module.

    - `backlog`: what the kernel has and the process has not accepted yet.
    """

    __slots__ = ("_listeners", "backlog", "is_accepting", "links", "process", "served")

    def __init__(self, process: RunningProcess) -> None:
        self.served: dict[ConnectionId, Served] = {}
        self.links: dict[LinkId, Linked] = {}
        self.backlog: dict[Served, None] = {}
        self.is_accepting = False
        self.process = process
        self._listeners = [each.name for each in process.machine.config.listeners]

    # -- coming in ---------------------------------------------------------------------------

    def arrived(self, wire: Wire, source: End) -> Served:
        """The kernel has a new connection for this process."""
        served = Served(self, wire, source)
        self.backlog[served] = None
        if self.is_accepting:
            self.process.tell(self._admit, served)
        return served

    def begin_to_accept(self, _: None = None) -> None:
        """Accept what has come so far, and what comes from now on."""
        if not self.is_accepting:
            self.is_accepting = True
            for served in list(self.backlog):
                self._admit(served)

    def accept_at_last(self) -> None:
        """Do so after a while, whether or not the broker is registered by then."""
        process = self.process
        process.world.schedule.after(_READY_US, lambda: process.tell(self.begin_to_accept, None))

    def stop_accepting(self) -> None:
        """Leave what comes to the kernel."""
        self.is_accepting = False

    def _admit(self, served: Served) -> None:
        if served not in self.backlog:
            return  # it has gone again
        del self.backlog[served]
        source = served.source
        host = source if isinstance(source, str) else f"broker-{source}"
        process = self.process
        by_sasl = host.startswith(TOKENS) and LISTENER in self._listeners
        listener = LISTENER if by_sasl else self._listeners[0]
        connection = process.node.open_connection(host, listener, principal_of(host), process.now)
        served.connection = connection
        self.served[connection.id] = served
        served.wire.go_on()

    def go_on(self) -> None:
        """The process takes input again."""
        for served in self.served.values():
            served.wire.go_on()

    # -- effects -----------------------------------------------------------------------------

    def send(self, connection: ConnectionId, chunks: Sequence[Chunk]) -> None:
        """Carry a `Send` out."""
        machine = self.process.machine
        served = self.served.get(connection)
        if served is not None:
            if served.is_client:
                machine.sent(connection, chunks)
                if machine.disk.damaged and any(
                    isinstance(chunk, LogSlice) and machine.disk.is_damaged(chunk.file.path)
                    for chunk in chunks
                ):
                    # A broker does not read what it sends: the checksum is for who receives it.
                    served.wire.note_damage()
            served.wire.send_chunks(chunks)
            served.wire.go_on()
            return
        sink = machine.direct.get(connection)
        if sink is not None:
            try:
                sink.take(chunks)
            except StorageError as error:
                sink.closed_by_node(str(error))

    def close(self, connection: ConnectionId, reason: str) -> None:
        """Carry a `Close` out."""
        process = self.process
        served = self.served.pop(connection, None)
        if served is not None:
            served.wire.close()
            if served.connection is not None:
                process.node.close_connection(served.connection)
            return
        sink = process.machine.direct.get(connection)
        if sink is not None:
            sink.closed_by_node(reason)

    def dial(self, effect: Dial) -> None:
        """Carry a `Dial` out."""
        process = self.process
        world = process.world
        target = world.addresses.get(effect.host, effect.broker_id)
        linked = self.links[effect.link] = Linked(self, effect.link)
        linked.wire = world.network.dial(process.machine.address, target, linked)

    def ask(self, link: LinkId, chunks: Sequence[bytes | bytearray | memoryview]) -> None:
        """Carry an `Ask` out."""
        linked = self.links.get(link)
        if linked is not None and linked.wire is not None:
            linked.wire.send(b"".join(chunks))

    def hang_up(self, link: LinkId) -> None:
        """Carry a `HangUp` out."""
        linked = self.links.pop(link, None)
        if linked is not None and linked.wire is not None:
            linked.wire.close()

    def close_all(self) -> None:
        """The process is about to end."""
        for served in self.served.values():
            served.wire.close()
        for linked in self.links.values():
            if linked.wire is not None:
                linked.wire.close()
        self.served.clear()
        self.links.clear()
