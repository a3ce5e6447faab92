"""The connections of this broker to others: dialled, spoken and listened to on the server's loop.

A link is a `Transport` like that of a client; only who speaks first differs. This file carries out
`Dial`, `Ask` and `HangUp`, and tells the node what became of them. It must not know what is said,
nor when to dial again: the node decides that, and it also gives up dials that take too long.

Links to chosen brokers can be frozen, as a network that drops everything would: nothing is sent,
what arrives is left in the socket, a dial hangs. No error is raised; when the links thaw everything
goes on, as with a network that comes back. That is for tests of what depends on brokers.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import os
import socket
import ssl
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

from strandline.broker.acceptor import OUT_OF_RESOURCES
from strandline.broker.event_loop import readiness_of
from strandline.broker.handle_budget import HandleBudget
from strandline.broker.handshakes import Handshakes, reason_of
from strandline.broker.receive_buffers import BufferPool, SharedBuffer
from strandline.broker.server_tls import ServerTls
from strandline.broker.streams import PlainStream, Stream, TlsStream
from strandline.broker.tls_socket import TlsSocket
from strandline.broker.transport import Transport
from strandline.broker.transport_host import Watched
from strandline.node.effects import Ask, Dial, HangUp, LinkId
from strandline.types import BrokerId, Instant

log = logging.getLogger(__name__)

SocketAddress: TypeAlias = tuple[socket.AddressFamily, Any]
_UNDER_WAY: Final = frozenset({errno.EINPROGRESS, errno.EWOULDBLOCK})


class LinkNode(Protocol):
    """The part of a node that hears about links."""

    def link_opened(self, link: LinkId, now: Instant) -> None: ...
    def link_received(self, link: LinkId, frame: memoryview, now: Instant) -> None: ...
    def link_closed(self, link: LinkId, reason: str, now: Instant) -> None: ...


class Turns(Protocol):
    """The server's turns, see there."""

    def begin(self) -> Instant: ...
    def end(self) -> None: ...
    def end_soon(self) -> None: ...
    def tell(self, event: Callable[[Instant], None]) -> None: ...
    def watch(self, transport: Watched, *, read: bool, write: bool) -> None: ...
    def call_soon(self, callback: Callable[[], None]) -> None: ...
    def call_in_turn(self, callback: Callable[[], None]) -> None: ...


class Link:
    """One link, from its dial on. `transport` is None until it is connected."""

    __slots__ = ("broker_id", "client_host", "dial", "frame_bytes_max", "id", "transport", "undial")

    wants_input = True

    def __init__(self, dial: Dial, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        self.dial = dial
        self.id = dial.link
        self.broker_id = dial.broker_id
        self.client_host = f"broker {dial.broker_id} at {dial.host}:{dial.port}"
        self.transport: LinkTransport | None = None
        self.undial: Callable[[], object] | None = None
        """Stops the dial while it is under way."""


class LinkTransport(Transport[Link]):
    """A transport that reads even while it has something to write, and hands on what it has read.

    The other side stops reading while its answers are not taken; if this one did the same, both
    could wait for each other. The node bounds what is asked, and so what waits here.
    """

    __slots__ = ("is_frozen",)

    never_waits = True
    slice_ns = 1 << 62

    is_frozen: bool

    def update_watch(self) -> None:
        """Tell the loop what this socket waits for, if that changed."""
        if not self.closed and not self.is_frozen:
            self._watch(read=True, write=self.has_unsent_output)

    def ask(self, chunks: Sequence[bytes | bytearray | memoryview]) -> None:
        """Send a request now, or as soon as the socket takes it."""
        if self.is_frozen:
            self._outgoing.hold(chunks)
        else:
            self.send(chunks)

    def freeze(self) -> None:
        """Neither send nor receive from now on."""
        self.is_frozen = True
        if not self.closed:
            self._watch(read=False, write=False)

    def thaw(self) -> None:
        """Go on with what has collected on both sides."""
        self.is_frozen = False
        self.update_watch()


class Links:
    """All links of one broker. Belongs to the server's event loop."""

    def __init__(
        self,
        node: LinkNode,
        turns: Turns,
        shared: SharedBuffer,
        pool: BufferPool,
        *,
        frame_bytes_max: int,
        handles: HandleBudget,
        tls: ServerTls,
        handshakes: Handshakes,
    ) -> None:
        """`shared` and `pool` are the server's receive buffers; `handles` count the sockets."""
        self._frame_bytes_max = frame_bytes_max
        self._tls = tls
        self._handshakes = handshakes
        self.call_soon = turns.call_soon
        self.call_in_turn = turns.call_in_turn
        self.begin = turns.begin
        self.end = turns.end
        self.end_soon = turns.end_soon
        self.watch = turns.watch
        self._tell = turns.tell
        self._node = node
        self._shared = shared
        self._pool = pool
        self._handles = handles
        self._loop = asyncio.get_running_loop()
        self._readiness = readiness_of(self._loop)
        self._links: dict[LinkId, Link] = {}
        self._blocked: frozenset[BrokerId] = frozenset()

    def __len__(self) -> int:
        return len(self._links)

    @property
    def transports(self) -> list[LinkTransport]:
        """Those that are connected."""
        return [link.transport for link in self._links.values() if link.transport is not None]

    def receive(self, link: Link, frame: memoryview, now: Instant) -> None:
        """A transport has a frame for the node."""
        self._node.link_received(link.id, frame, now)

    def disconnected(self, transport: LinkTransport, reason: str | None) -> None:
        """A transport is about to close its socket."""
        descriptor = transport.socket.fileno()
        self._readiness.remove_reader(descriptor)
        self._readiness.remove_writer(descriptor)
        self._let_go(transport.socket)
        self._over(transport.connection, reason or "it closed the connection")

    # -- effects -----------------------------------------------------------------------------

    def dial(self, effect: Dial) -> None:
        """Connect; the node is told the outcome."""
        link = self._links[effect.link] = Link(effect, self._frame_bytes_max)
        if effect.broker_id not in self._blocked:
            self._dial(link)

    def ask(self, effect: Ask) -> None:
        """Send a request on a link that is open."""
        link = self._links.get(effect.link)
        if link is not None and link.transport is not None:
            link.transport.ask(effect.chunks)

    def hang_up(self, effect: HangUp) -> None:
        """End a link; the node is not told."""
        link = self._links.pop(effect.link, None)
        if link is not None:
            self._end(link)

    def close(self) -> None:
        """End all links; the node is not told."""
        links, self._links = self._links, {}
        for link in links.values():
            self._end(link)

    # -- dialling ----------------------------------------------------------------------------

    def _dial(self, link: Link) -> None:
        dial = link.dial
        try:
            address = ipaddress.ip_address(dial.host)
        except ValueError:
            task = self._loop.create_task(self._resolve(link))
            link.undial = task.cancel
            return
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6
        # Never inside the turn that wanted it: the node hears of the outcome in a later one.
        handle = self._loop.call_soon(self._connect, link, [(family, (dial.host, dial.port))])
        link.undial = handle.cancel

    async def _resolve(self, link: Link) -> None:
        dial = link.dial
        try:
            found = await self._loop.getaddrinfo(dial.host, dial.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError, RuntimeError) as error:  # the last: no thread to ask in
            self._over(link, f"its host name {dial.host} cannot be resolved: {error}")
            return
        addresses: list[SocketAddress] = [(entry[0], entry[4]) for entry in found]
        self._connect(link, addresses)

    def _connect(self, link: Link, addresses: Sequence[SocketAddress]) -> None:
        """Try one address after the other; `localhost` is often two, and served on one."""
        link.undial = None
        (family, address), *others = addresses
        try:
            sock = self._socket(family)
        except OSError as error:
            self._over(link, f"there is no socket for it: {error.strerror or error}")
            return
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            code = sock.connect_ex(address)
        except OSError as error:
            code = error.errno or errno.EINVAL
        self._handles.opened()
        self._handles.dialled(sock.getsockname())
        if code in _UNDER_WAY:
            self._loop.add_writer(sock, self._connected, link, sock, others)
            link.undial = lambda: self._give_up(sock)
        else:
            self._tried(link, sock, code, others)

    def _connected(self, link: Link, sock: socket.socket, others: Sequence[SocketAddress]) -> None:
        self._loop.remove_writer(sock)
        link.undial = None
        self._tried(link, sock, sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), others)

    def _tried(
        self, link: Link, sock: socket.socket, code: int, others: Sequence[SocketAddress]
    ) -> None:
        if code != 0:
            self._let_go(sock)
            sock.close()
            if others:
                self._connect(link, others)
            else:
                self._over(link, f"it cannot be reached: {os.strerror(code)}")
            return
        if self._tls.links is None:
            self._open(link, PlainStream(sock))
        else:
            self._shake_hands(link, sock, self._tls.links.context)

    def _shake_hands(self, link: Link, sock: socket.socket, context: ssl.SSLContext) -> None:
        address = sock.getsockname()

        def let_go() -> None:
            self._handles.closed()
            self._handles.hung_up(address)

        def done(error: OSError | None) -> None:
            link.undial = None
            if error is None:
                self._open(link, TlsStream(secured))
                return
            let_go()
            self._over(link, f"its TLS handshake failed: {reason_of(error)}")

        def give_up() -> None:
            let_go()
            self._handshakes.give_up(handshake)

        try:
            secured = TlsSocket(sock, context, server_hostname=link.dial.host)
        except (OSError, ValueError) as error:
            let_go()
            sock.close()
            self._over(link, f"TLS cannot begin: {error}")
            return

        handshake = self._handshakes.begin(secured, link.client_host, self._tls.timeout_s, done)
        link.undial = give_up

    def _open(self, link: Link, stream: Stream) -> None:
        transport = LinkTransport(self, link, stream, shared=self._shared, pool=self._pool)
        transport.is_frozen = False
        link.transport = transport
        transport.update_watch()
        self._tell(partial(self._node.link_opened, link.id))

    def _give_up(self, sock: socket.socket) -> None:
        self._loop.remove_writer(sock)
        self._let_go(sock)
        sock.close()

    def _socket(self, family: socket.AddressFamily) -> socket.socket:
        """A new socket, for which idle files are closed if need be. Raises `OSError`."""
        while True:
            try:
                return socket.socket(family, socket.SOCK_STREAM)
            except OSError as error:
                if error.errno not in OUT_OF_RESOURCES or not self._handles.make_room(
                    for_link=True
                ):
                    raise

    def _let_go(self, sock: socket.socket) -> None:
        """A socket is about to be closed."""
        self._handles.closed()
        self._handles.hung_up(sock.getsockname())

    # -- ending ------------------------------------------------------------------------------

    def _over(self, link: Link, reason: str) -> None:
        """Tell the node that a link has ended, unless the node ended it."""
        if self._links.pop(link.id, None) is None:
            return
        self._tell(partial(self._node.link_closed, link.id, reason))

    def _end(self, link: Link) -> None:
        self._undial(link)
        if link.transport is not None:
            link.transport.close(None)

    def _undial(self, link: Link) -> None:
        if link.undial is not None:
            link.undial()
            link.undial = None

    # -- freezing ----------------------------------------------------------------------------

    def block(self, broker_ids: Collection[BrokerId]) -> None:
        """Freeze the links to these brokers, too."""
        self.block_exactly(self._blocked.union(broker_ids))

    def unblock(self, broker_ids: Collection[BrokerId]) -> None:
        """Let the links to these brokers go on."""
        self.block_exactly(self._blocked.difference(broker_ids))

    def block_exactly(self, broker_ids: Collection[BrokerId]) -> None:
        """Freeze the links to these brokers, and let all others go on."""
        former, self._blocked = self._blocked, frozenset(broker_ids)
        for link in list(self._links.values()):
            is_blocked = link.broker_id in self._blocked
            if is_blocked == (link.broker_id in former):
                continue
            if link.transport is None:
                if is_blocked:
                    self._undial(link)
                else:
                    self._dial(link)
            elif is_blocked:
                link.transport.freeze()
            else:
                link.transport.thaw()
