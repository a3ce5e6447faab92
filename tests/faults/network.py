"""A network that can be cut: a TCP gate in front of every broker and every ZooKeeper server.

Clients and brokers connect to gates, since a gate's port is what a broker advertises. A gate finds
out who connects: the kernel says which process holds the other end of a loopback connection. So it
is known for every byte from which node to which node it goes, and a cut between two nodes holds
exactly those bytes. They are kept, not lost, as TCP would keep them: a cut that heals delivers late
what was sent before it (fault F-32). A connection that is opened across a cut is accepted and leads
nowhere until the cut heals. Linux only; an event loop in a thread of its own.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

T = TypeVar("T")
Node: TypeAlias = int | str
"""A broker by its id, or one of the two below."""

Address: TypeAlias = tuple[str, int]
CLIENTS: Final = "clients"
ZOOKEEPER: Final = "zookeeper"
HOST: Final = "127.0.0.1"
PATIENCE_S: Final = 120.0
CONNECTIONS_MAX: Final = 2000
LINGER_NOT: Final = struct.pack("ii", 1, 0)
"""With this a close sends RST and not FIN (socket(7))."""


class Network:
    """All gates of one cluster. Its methods may be called from any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network")
        self._thread.start()
        self._pids: dict[Node, int] = {}
        self._cut: set[tuple[Node, Node]] = set()
        self._pipes: set[_Pipe] = set()
        self._ends: set[_End] = set()
        self._gates: list[Gate] = []
        self._none_left: asyncio.Future[None] | None = None

    def gate(self, node: Node, target: Address | None = None) -> Gate:
        """A new gate in front of `node`. Without a target it refuses who comes."""

        async def opened() -> Gate:
            gate = Gate(node, target)
            gate.server = await self._loop.create_server(lambda: _Caller(self, gate), HOST, 0)
            gate.port = gate.server.sockets[0].getsockname()[1]
            return gate

        gate = asyncio.run_coroutine_threadsafe(opened(), self._loop).result(PATIENCE_S)
        self._gates.append(gate)
        return gate

    def is_run_by(self, node: Node, pid: int) -> None:
        """Connections of this process are the node's, those that it has already as well."""

        def known() -> None:
            self._pids[node] = pid
            for pipe in list(self._pipes):
                pipe.find_source()
                pipe.follow_cuts()

        self._call(known)

    def cut(self, side: Collection[Node], other: Collection[Node]) -> None:
        """Hold everything between the two sides."""
        self._change(lambda: self._cut.update(_pairs(side, other), _pairs(other, side)))

    def cut_one_way(self, *, sources: Collection[Node], targets: Collection[Node]) -> None:
        """Hold what goes from `sources` to `targets`; the other direction stays."""
        self._change(lambda: self._cut.update(_pairs(sources, targets)))

    def heal(self) -> None:
        """Deliver everything that was held, and hold nothing any more."""
        self._change(self._cut.clear)

    def reset(self, node: Node) -> int:
        """Break every connection from and to the node; returns how many."""

        def broken() -> int:
            mine = [pipe for pipe in self._pipes if node in (pipe.source, pipe.target)]
            for pipe in mine:
                pipe.abort()
            return len(mine)

        return self._call(broken)

    def close(self) -> None:
        """Close gates and connections and end the thread."""

        async def closed() -> None:
            # A server that is closed while asyncio makes a transport for it leaves that half made,
            # with its socket open (in Python 3.11): first nothing more is accepted.
            servers = [gate.server for gate in self._gates if gate.server is not None]
            for listener in (each for server in servers for each in server.sockets):
                self._loop.remove_reader(listener.fileno())
            for pipe in list(self._pipes):
                await pipe.stop_connecting()
            # A connection that was accepted just now becomes an end in a task of the loop's own.
            if accepting := asyncio.all_tasks() - {asyncio.current_task()}:
                await asyncio.wait(accepting)
            for server in servers:
                server.close()
            for pipe in list(self._pipes):
                await pipe.stop_connecting()
            for end in list(self._ends):
                end.finish(at_once=True)
            if self._ends:
                self._none_left = self._loop.create_future()
                await self._none_left

        asyncio.run_coroutine_threadsafe(closed(), self._loop).result(PATIENCE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()

    def is_cut(self, source: Node, target: Node) -> bool:
        """Whether bytes from source to target are held."""
        return (source, target) in self._cut

    def opened(self, pipe: _Pipe) -> None:
        """Called in the loop when a client or broker has connected."""
        if len(self._pipes) >= CONNECTIONS_MAX:
            raise RuntimeError(f"More than {CONNECTIONS_MAX} connections go through the network.")
        self._pipes.add(pipe)

    def closed(self, pipe: _Pipe) -> None:
        """Called in the loop when a connection is gone on both sides."""
        self._pipes.discard(pipe)

    def connected(self, end: _End) -> None:
        """Called in the loop when one side is connected."""
        self._ends.add(end)

    def disconnected(self, end: _End) -> None:
        """Called in the loop when the transport of one side is gone."""
        self._ends.discard(end)
        if self._none_left is not None and not self._ends:
            self._none_left.set_result(None)

    def caller_of(self, peer_port: int, gate_port: int) -> Node:
        """Which node holds the other end of a connection to the gate."""
        inode = _socket_inode(peer_port, gate_port)
        for node, pid in self._pids.items():
            if inode is not None and inode in _socket_inodes(pid):
                return node
        return CLIENTS

    def _change(self, change: Callable[[], object]) -> None:
        def changed() -> None:
            change()
            for pipe in list(self._pipes):
                pipe.follow_cuts()

        self._call(changed)

    def _call(self, function: Callable[[], T]) -> T:
        async def run() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(PATIENCE_S)


class Gate:
    """The address of one node. `target` is what lies behind it, and may change with a restart."""

    def __init__(self, node: Node, target: Address | None) -> None:
        self.node = node
        self.target = target
        self.port = 0
        self.server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        """What others are told to connect to."""
        return f"{HOST}:{self.port}"


class _Pipe:
    """One connection through a gate: what each side sends goes to the other, unless it is cut or
    the other reads too slowly."""

    def __init__(self, network: Network, gate: Gate, caller: _End) -> None:
        self._network = network
        self._gate = gate
        self._caller = caller
        self._callee: _End | None = None
        self._connecting: asyncio.Task[None] | None = None
        self.target = gate.node
        self.source: Node = CLIENTS
        self.find_source()
        network.opened(self)
        self.follow_cuts()

    def find_source(self) -> None:
        """See which node the caller is; for good, once that is known."""
        if self.source == CLIENTS and not self._caller.is_gone:
            self.source = self._network.caller_of(self._caller.peer_port, self._gate.port)

    def follow_cuts(self) -> None:
        """Connect, read and stop reading as the cuts of the moment want it."""
        is_held = self._network.is_cut(self.source, self.target)
        if self._callee is None and self._connecting is None and not is_held:
            loop = asyncio.get_running_loop()
            self._connecting = loop.create_task(self._connect())
        self._caller.read(wanted=self._callee is not None and not is_held)
        if self._callee is not None:
            self._callee.read(wanted=not self._network.is_cut(self.target, self.source))

    def other(self, end: _End) -> _End | None:
        """The end that gets what `end` receives."""
        return self._callee if end is self._caller else self._caller

    def lost(self, end: _End, error: Exception | None) -> None:
        """One side is gone: the other gets what is still under way, then goes too."""
        other = self.other(end)
        if other is not None:
            other.finish(at_once=error is not None)
        elif self._connecting is not None:
            self._connecting.cancel()
        if other is None or other.is_gone:
            self._network.closed(self)

    async def stop_connecting(self) -> None:
        """Nothing new comes of this pipe."""
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])

    def abort(self) -> None:
        """Break both sides."""
        for end in (self._caller, self._callee):
            if end is not None:
                end.finish(at_once=True)

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            if self._gate.target is None:
                raise ConnectionRefusedError
            callee = _End(self._network)
            await loop.create_connection(lambda: callee, *self._gate.target)
        except OSError:
            self._caller.finish(at_once=True)
            return
        callee.pipe = self
        self._callee = callee
        if self._caller.is_gone:
            callee.finish(at_once=True)
        self.follow_cuts()


class _End(asyncio.Protocol):
    """One side of a pipe."""

    def __init__(self, network: Network) -> None:
        self.pipe: _Pipe | None = None
        self._network = network
        self.is_gone = False
        self._transport: asyncio.Transport | None = None
        self._is_wanted = True
        self._is_full = False
        """The other side does not take more for now."""

    @property
    def peer_port(self) -> int:
        """The port of the end that is connected."""
        port: int = self._connected.get_extra_info("peername")[1]
        return port

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._network.connected(self)
        connected: socket.socket = transport.get_extra_info("socket")
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        other = self.pipe.other(self) if self.pipe is not None else None
        if other is not None and not other.is_gone:
            other.write(data)

    def pause_writing(self) -> None:
        self._other_is_full(full=True)

    def resume_writing(self) -> None:
        self._other_is_full(full=False)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_gone = True
        self._network.disconnected(self)
        if self.pipe is not None:
            self.pipe.lost(self, error)

    def read(self, *, wanted: bool) -> None:
        """Whether what this side sends may be taken now."""
        self._is_wanted = wanted
        self._follow()

    def write(self, data: bytes) -> None:
        """Send to this side."""
        self._connected.write(data)

    def finish(self, *, at_once: bool) -> None:
        """Close, after what is still to be sent; `at_once`: the other side sees a reset."""
        if at_once:
            connected: socket.socket = self._connected.get_extra_info("socket")
            if connected.fileno() >= 0:
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
            self._connected.abort()
        else:
            self._connected.close()

    @property
    def _connected(self) -> asyncio.Transport:
        assert self._transport is not None
        return self._transport

    def _other_is_full(self, *, full: bool) -> None:
        other = self.pipe.other(self) if self.pipe is not None else None
        if other is not None:
            other._is_full = full
            other._follow()

    def _follow(self) -> None:
        if self._connected.is_closing():
            return
        if self._is_wanted and not self._is_full:
            self._connected.resume_reading()
        else:
            self._connected.pause_reading()


class _Caller(_End):
    """The side that came to a gate."""

    def __init__(self, network: Network, gate: Gate) -> None:
        super().__init__(network)
        self._gate = gate

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        # Debian's Python 3.11.2 begins to read after this call even if it is told here not to.
        asyncio.get_running_loop().call_soon(self._open)

    def _open(self) -> None:
        if not self._connected.is_closing():
            self.pipe = _Pipe(self._network, self._gate, self)


def _pairs(sources: Iterable[Node], targets: Collection[Node]) -> Iterator[tuple[Node, Node]]:
    return ((source, target) for source in sources for target in targets)


def _socket_inode(local_port: int, remote_port: int) -> int | None:
    """The socket of this machine with these ports, by the kernel's tables of TCP connections."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            _, local, remote, *rest = line.split()
            ports = tuple(int(address.rpartition(":")[2], 16) for address in (local, remote))
            if ports == (local_port, remote_port):
                return int(rest[6])
    return None


def _socket_inodes(pid: int) -> set[int]:
    """The sockets that a process has open; none if it is gone."""
    found = set()
    try:
        for entry in os.scandir(f"/proc/{pid}/fd"):
            target = _link_of(entry.path)
            if target.startswith("socket:["):
                found.add(int(target[8:-1]))
    except FileNotFoundError:
        return set()
    return found


def _link_of(path: str) -> str:
    try:
        return os.readlink(path)
    except FileNotFoundError:
        return ""
