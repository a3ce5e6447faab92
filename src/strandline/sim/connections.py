"""The connections of one process: what stands between a node and the network's wires.

    Served   somebody has dialled this broker, a client or another broker
    Linked   this broker has dialled another one

Both tell the process what came, which hands it to the node now, or when it goes on. A connection is
taken by the kernel before the process accepts it; until then, and while the process does not run,
what is sent waits in the socket. This file knows no frames.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from strandline.errors import StorageError
from strandline.node.connection import Connection
from strandline.node.effects import LinkId
from strandline.sim.trace import Kind
from strandline.storage.log_read import LogSlice
from strandline.storage.memory_files import ProcessEnded

if TYPE_CHECKING:
    from strandline.sim.latency import End
    from strandline.sim.process import Process
    from strandline.sim.wires import Wire

_USED_UP: Final = b"\xee"
"""What a driver may do with the bytes of a frame once the node is done with it."""


class Served:
    """The server's side of a connection; see `wires.ServerPeer`."""

    __slots__ = ("_process", "connection", "is_client", "source", "wire")

    def __init__(self, process: Process, wire: Wire, source: End) -> None:
        self.wire = wire
        self.source = source
        self.is_client = isinstance(source, str)
        self.connection: Connection | None = None
        """None until the process accepts it."""
        self._process = process

    @property
    def wants_input(self) -> bool:
        """Whether another frame may be handed over."""
        connection = self.connection
        return connection is not None and not self._process.is_blocked and connection.wants_input

    def read_late(self, chunk: LogSlice) -> bytes | None:
        """What is in that range of the file now; None if there is nobody to read it any more."""
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
        """Never told to this side."""

    def received(self, frame: bytes) -> None:
        """A request came."""
        self._process.tell(self._receive, frame)

    def closed(self, reason: str) -> None:
        """It is over, and not by this broker."""
        self._process.tell(self._forget, reason)

    def _receive(self, frame: bytes) -> None:
        process, connection = self._process, self.connection
        if connection is None or connection.id not in process.served:
            return
        buffer = bytearray(frame)
        process.node.receive(connection, memoryview(buffer), process.now)
        # The bytes belong to the driver again: nobody may look at them any more.
        buffer[:] = _USED_UP * len(buffer)

    def _forget(self, reason: str) -> None:
        process, connection = self._process, self.connection
        process.trace(Kind.CLOSED, reason.encode())
        if connection is None:
            process.backlog.pop(self, None)
        elif process.served.pop(connection.id, None) is not None:
            process.node.close_connection(connection)


class Linked:
    """The dialling side of a connection to another broker; see `wires.Peer`."""

    __slots__ = ("_process", "link", "wire")

    def __init__(self, process: Process, link: LinkId) -> None:
        self.link = link
        self.wire: Wire | None = None
        self._process = process

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
        if self.link in process.links:
            process.trace(Kind.OPENED, b"")
            process.node.link_opened(self.link, process.now)

    def _receive(self, frame: bytes) -> None:
        process = self._process
        if self.link not in process.links:
            return
        buffer = bytearray(frame)
        process.node.link_received(self.link, memoryview(buffer), process.now)
        buffer[:] = _USED_UP * len(buffer)

    def _close(self, reason: str) -> None:
        process = self._process
        if process.links.pop(self.link, None) is not None:
            process.trace(Kind.CLOSED, reason.encode())
            process.node.link_closed(self.link, reason, process.now)
