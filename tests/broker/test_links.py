"""Links over real sockets: dials, frames of all sizes, ends of all kinds, and frozen links."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from strandline.broker.frame_memory import FrameMemory
from strandline.broker.handle_budget import HandleBudget
from strandline.broker.handshakes import Handshake, Handshakes
from strandline.broker.links import Links
from strandline.broker.newcomers import Newcomers
from strandline.broker.receive_buffers import BufferPool, SharedBuffer
from strandline.broker.server_tls import ServerTls
from strandline.broker.tls_listener import Certificates, client_context
from strandline.broker.tls_socket import TlsSocket
from strandline.broker.transport_host import Watched
from strandline.broker.turns import read_clock
from strandline.config.listener_settings import ListenerSettings
from strandline.node.effects import Ask, Dial, HangUp, LinkId
from strandline.types import BrokerId, Instant

PATIENCE_S = 120.0
OTHER = BrokerId(2)
THIRD = BrokerId(3)
FRAME_BYTES_MAX = 8_000_000


class Accepted:
    """The other end of a link."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._loop = asyncio.get_running_loop()

    async def write(self, data: bytes) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await self._loop.sock_sendall(self._socket, data)

    async def frame(self) -> bytes:
        """The next request."""
        size = int.from_bytes(await self._read(4), "big")
        return await self._read(size)

    async def first_byte(self) -> None:
        """Wait until the first byte is here."""
        async with asyncio.timeout(PATIENCE_S):
            assert await self._loop.sock_recv(self._socket, 1)

    async def at_end(self) -> bool:
        """Whether nothing more comes."""
        async with asyncio.timeout(PATIENCE_S):
            return await self._loop.sock_recv(self._socket, 1) == b""

    def close(self) -> None:
        self._socket.close()

    async def _read(self, size: int) -> bytes:
        data = bytearray()
        async with asyncio.timeout(PATIENCE_S):
            while len(data) < size:
                part = await self._loop.sock_recv(self._socket, size - len(data))
                assert part, "the link ended"
                data += part
        return bytes(data)


class Peer:
    """Another broker: a listening socket."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.setblocking(False)
        self.port = int(self._socket.getsockname()[1])
        self._accepted: list[Accepted] = []

    async def accepted(self) -> Accepted:
        """The next link."""
        async with asyncio.timeout(PATIENCE_S):
            sock, _ = await asyncio.get_running_loop().sock_accept(self._socket)
        self._accepted.append(Accepted(sock))
        return self._accepted[-1]

    def close(self) -> None:
        self._socket.close()
        for each in self._accepted:
            each.close()


class Rig:
    """Links, and in place of a node what was told of them."""

    def __init__(self, tls: ServerTls) -> None:
        self.opened: list[LinkId] = []
        self.received: list[tuple[LinkId, bytes]] = []
        self.closed: list[tuple[LinkId, str]] = []
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Condition()
        shared = SharedBuffer()
        self.handles = HandleBudget(1_000, brokers=1)
        self.newcomers = Newcomers(lambda: False, lambda: None)
        self.handshakes = Handshakes(self.newcomers)
        self.links = Links(
            self,
            self,
            shared,
            BufferPool(2, FrameMemory(1 << 30)),
            frame_bytes_max=FRAME_BYTES_MAX,
            handles=self.handles,
            tls=tls,
            handshakes=self.handshakes,
        )
        self._last = 0

    # What links want of a node.

    def link_opened(self, link: LinkId, now: Instant) -> None:
        self.opened.append(link)

    def link_received(self, link: LinkId, frame: memoryview, now: Instant) -> None:
        self.received.append((link, bytes(frame)))
        frame[:] = b"\xee" * len(frame)

    def link_closed(self, link: LinkId, reason: str, now: Instant) -> None:
        self.closed.append((link, reason))

    # What links want of a server.

    def begin(self) -> Instant:
        return read_clock()

    def end(self) -> None:
        self._loop.create_task(self._tell())

    def end_soon(self) -> None:
        self.end()

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._loop.call_soon(callback)

    def call_in_turn(self, callback: Callable[[], None]) -> None:
        self._loop.call_soon(callback)

    def tell(self, event: Callable[[Instant], None]) -> None:
        event(read_clock())
        self.end()

    def watch(self, transport: Watched, *, read: bool, write: bool) -> None:
        for wanted, add, remove, call in (
            (read, self._loop.add_reader, self._loop.remove_reader, transport.on_readable),
            (write, self._loop.add_writer, self._loop.remove_writer, transport.on_writable),
        ):
            if wanted:
                add(transport.socket, call)
            else:
                remove(transport.socket)

    async def _tell(self) -> None:
        async with self._news:
            self._news.notify_all()

    # What tests want.

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S), self._news:
            await self._news.wait_for(condition)

    def dial(self, port: int, broker_id: BrokerId = OTHER, host: str = "127.0.0.1") -> LinkId:
        self._last += 1
        self.links.dial(Dial(self._last, broker_id, host, port))
        return self._last

    async def open(self, peer: Peer, broker_id: BrokerId = OTHER) -> LinkId:
        link = self.dial(peer.port, broker_id)
        await self.until(lambda: link in self.opened)
        return link

    def ask(self, link: LinkId, *payload: bytes) -> None:
        self.links.ask(Ask(link, [sized(each) for each in payload]))


def sized(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def run(test: Callable[[Rig, Peer], Awaitable[None]], tls: ServerTls | None = None) -> None:
    """Run a test with a rig and a peer; nothing may be left of either, nor any error unheard."""

    async def whole() -> list[dict[str, Any]]:
        errors: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        rig = Rig(tls or ServerTls())
        peer = Peer()
        try:
            await test(rig, peer)
        finally:
            rig.links.close()
            rig.newcomers.close()
            peer.close()
        assert len(rig.links) == 0
        return errors

    assert asyncio.run(whole()) == []
    gc.collect()


def test_a_link_is_dialled_asked_and_answered() -> None:
    async def test(rig: Rig, peer: Peer) -> None:
        link = await rig.open(peer)
        other = await peer.accepted()
        rig.ask(link, b"one", b"two")
        assert [await other.frame(), await other.frame()] == [b"one", b"two"]
        await other.write(sized(b"first") + sized(b"") + sized(b"third"))
        await rig.until(lambda: len(rig.received) == 3)
        assert rig.received == [(link, b"first"), (link, b""), (link, b"third")]
        assert not rig.closed

    run(test)


def test_nothing_is_delayed_to_be_sent_with_what_follows() -> None:
    async def test(rig: Rig, peer: Peer) -> None:
        await rig.open(peer)
        (transport,) = rig.links.transports
        assert transport.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    run(test)


@pytest.mark.parametrize("size", [1, 60_000, 70_000, 200_000, 5_000_000])
def test_answers_of_any_size_arrive_whole(size: int) -> None:
    async def test(rig: Rig, peer: Peer) -> None:
        link = await rig.open(peer)
        other = await peer.accepted()
        payload = bytes(range(256)) * (size // 256 + 1)
        await other.write(sized(payload[:size]) + sized(b"and another"))
        await rig.until(lambda: len(rig.received) == 2)
        assert rig.received == [(link, payload[:size]), (link, b"and another")]

    run(test)


def test_an_answer_byte_by_byte() -> None:
    async def test(rig: Rig, peer: Peer) -> None:
        link = await rig.open(peer)
        other = await peer.accepted()
        for byte in sized(b"slow"):
            await other.write(bytes([byte]))
            rig.ask(link, b"x")
            assert await other.frame() == b"x"  # by then the byte has arrived
        await rig.until(lambda: bool(rig.received))
        assert rig.received == [(link, b"slow")]

    run(test)


def test_an_answer_that_is_too_large_ends_the_link() -> None:
    async def test(rig: Rig, peer: Peer) -> None:
        link = await rig.open(peer)
        other = await peer.accepted()
        await other.write((FRAME_BYTES_MAX + 1).to_bytes(4, "big"))
        await rig.until(lambda: bool(rig.closed))
        assert rig.closed[0][0] == link
        assert "8000001 bytes" in rig.closed[0][1]

    run(test)


def test_answers_are_read_while_a_request_waits_for_room() -> None:
    async def test(rig: Rig, peer: Peer) -> None:
        link = await rig.open(peer)
        other = await peer.accepted()
        large = b"x" * 20_000_000
        rig.ask(link, large)
        (transport,) = rig.links.transports
        assert transport.has_unsent_output
        await other.write(sized(b"answer"))
        await rig.until(lambda: bool(rig.received))
        assert transport.has_unsent_output
        assert await other.frame() == large

    run(test)


def test_no_process_listens() -> None:
    async def test(rig: Rig, peer: Peer) -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            link = rig.dial(unused.getsockname()[1])
            assert not rig.closed  # never inside the call
            await rig.until(lambda: bool(rig.closed))
        assert rig.closed == [(link, "it cannot be reached: Connection refused")]
        assert not rig.opened

    run(test)


def test_host_names_are_resolved_and_all_their_addresses_tried() -> None:
    async def test(rig: Rig, peer: Peer) -> None:
        # `localhost` may have an IPv6 address first, on which no process listens.
        link = rig.dial(peer.port, host="localhost")
        await rig.until(lambda: link in rig.opened)
        await peer.accepted()

    run(test)


def test_a_host_name_that_does_not_exist() -> None:
    async def test(rig: Rig, peer: Peer) -> None:
        link = rig.dial(peer.port, host="no-such-host.invalid")
        await rig.until(lambda: bool(rig.closed))
        assert rig.closed[0][0] == link
        assert "no-such-host.invalid" in rig.closed[0][1]

    run(test)


def test_the_other_side_ends_the_link() -> None:
    async def test(rig: Rig, peer: Peer) -> None:
        link = await rig.open(peer)
        other = await peer.accepted()
        await other.write(sized(b"last"))
        other.close()
        await rig.until(lambda: bool(rig.closed))
        assert rig.received == [(link, b"last")]
        assert rig.closed == [(link, "it closed the connection")]
        rig.ask(link, b"too late")  # the peer is gone, and nothing happens
        rig.links.hang_up(HangUp(link))

    run(test)


def test_links_close_after_the_handshakes_that_they_wait_for() -> None:
    """As a server that stops closes both, while its peers have not answered."""
    settings = ListenerSettings({}, "SSL")
    tls = ServerTls(links=Certificates(settings, client_context))

    async def test(rig: Rig, peer: Peer) -> None:

        def has_handshakes(wanted: int) -> bool:
            return len(rig.handshakes) == wanted

        for number in range(1, 5):
            rig.dial(peer.port)
            accepted = await peer.accepted()
            await accepted.first_byte()
            await rig.until(partial(has_handshakes, number))
        rig.handshakes.close()
        assert len(rig.handshakes) == 0
        rig.links.close()
        assert not rig.opened
        assert not rig.closed

    run(test, tls)


def test_a_handshake_that_a_thread_is_at_is_closed_with_the_others() -> None:
    """The loop may end before it hears that the thread has come back."""
    given_up = threading.Event()

    class Slow(TlsSocket):
        def do_handshake(self) -> None:
            assert given_up.wait(PATIENCE_S)
            super().do_handshake()

    class Noticing(Handshakes):
        def give_up(self, handshake: Handshake) -> None:
            super().give_up(handshake)
            given_up.set()

    async def test(rig: Rig, peer: Peer) -> None:
        handshakes = Noticing(rig.newcomers)
        sock = socket.create_connection(("127.0.0.1", peer.port))
        sock.setblocking(False)
        secured = Slow(sock, ssl.create_default_context(), server_hostname="localhost")
        handshakes.begin(secured, "localhost", PATIENCE_S, lambda _: None)
        handshakes.close()
        assert sock.fileno() == -1

    run(test)


def test_hanging_up_tells_the_other_side_only() -> None:
    async def test(rig: Rig, peer: Peer) -> None:
        link = await rig.open(peer)
        other = await peer.accepted()
        rig.ask(link, b"last")
        rig.links.hang_up(HangUp(link))
        assert await other.frame() == b"last"
        assert await other.at_end()
        assert not rig.closed

    run(test)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_dial_can_be_given_up(host: str) -> None:
    async def test(rig: Rig, peer: Peer) -> None:
        link = rig.dial(peer.port, host=host)
        rig.links.hang_up(HangUp(link))
        second = await rig.open(peer)
        assert rig.opened == [second]
        assert not rig.closed

    run(test)


def test_closing_all_links_calls_no_owner() -> None:
    async def test(rig: Rig, peer: Peer) -> None:
        await rig.open(peer)
        rig.dial(peer.port)
        other = await peer.accepted()
        rig.links.close()
        assert await other.at_end()
        assert not rig.closed

    run(test)


def test_a_frozen_link_keeps_everything_until_it_thaws() -> None:
    async def test(rig: Rig, peer: Peer) -> None:
        frozen, free = await rig.open(peer), await rig.open(peer, THIRD)
        other = await peer.accepted()
        elsewhere = await peer.accepted()
        rig.links.block({OTHER})
        rig.ask(frozen, b"kept")
        rig.ask(frozen, b"this too")
        await other.write(sized(b"answer"))
        # Something that goes there and back elsewhere shows that there was time.
        rig.ask(free, b"goes on")
        assert await elsewhere.frame() == b"goes on"
        await elsewhere.write(sized(b"well"))
        await rig.until(lambda: bool(rig.received))
        assert rig.received == [(free, b"well")]
        rig.links.unblock({OTHER})
        assert [await other.frame(), await other.frame()] == [b"kept", b"this too"]
        await rig.until(lambda: len(rig.received) == 2)
        assert rig.received[1] == (frozen, b"answer")
        assert not rig.closed

    run(test)


def test_a_frozen_link_that_the_other_side_ended_learns_of_it_when_it_thaws() -> None:
    async def test(rig: Rig, peer: Peer) -> None:
        link = await rig.open(peer)
        other = await peer.accepted()
        rig.links.block({OTHER})
        other.close()
        await rig.open(peer, THIRD)
        assert not rig.closed
        rig.links.block_exactly(())
        await rig.until(lambda: bool(rig.closed))
        assert rig.closed[0][0] == link

    run(test)


def test_a_dial_to_a_blocked_broker_hangs_until_it_thaws() -> None:
    async def test(rig: Rig, peer: Peer) -> None:
        rig.links.block({OTHER})
        hanging = rig.dial(peer.port)
        given_up = rig.dial(peer.port)
        free = await rig.open(peer, THIRD)
        assert rig.opened == [free]
        rig.links.hang_up(HangUp(given_up))
        rig.links.unblock({OTHER})
        await rig.until(lambda: len(rig.opened) == 2)
        assert rig.opened == [free, hanging]

    run(test)


def test_a_dial_under_way_hangs_when_its_broker_is_blocked() -> None:
    async def test(rig: Rig, peer: Peer) -> None:
        hanging = rig.dial(peer.port)
        rig.links.block({OTHER})
        free = await rig.open(peer, THIRD)
        assert rig.opened == [free]
        rig.links.unblock({OTHER})
        await rig.until(lambda: hanging in rig.opened)

    run(test)


def test_a_frozen_link_can_be_hung_up() -> None:
    async def test(rig: Rig, peer: Peer) -> None:
        link = await rig.open(peer)
        other = await peer.accepted()
        rig.links.block({OTHER})
        rig.links.hang_up(HangUp(link))
        assert await other.at_end()
        rig.links.unblock({OTHER})
        assert not rig.closed

    run(test)
