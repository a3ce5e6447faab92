"""Sockets with TLS wake the broker for frames, not for records, and never too late."""

from __future__ import annotations

import fcntl
import random
import select
import socket
import ssl
import struct
import sys
import termios
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import pytest

from strandline.broker.addresses import bind
from strandline.broker.receive_threshold import BYTES_MAX
from strandline.broker.streams import TlsStream
from strandline.broker.tls_socket import TlsSocket
from strandline.config.broker import SettingLayers
from strandline.config.listeners import Listener
from strandline.config.load import make_broker_config
from tests.certificates import contexts_in

PATIENCE_S: Final = 60

needs_threshold = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a safe one")


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    return contexts_in(tmp_path_factory.mktemp("certificates"))


class Sender:
    """The far end: what it encrypts leaves in pieces of any size."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self.socket = sock
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    def shake_hands(self, ours: TlsSocket) -> None:
        done = [False, False]
        while not all(done):
            ends: tuple[ssl.SSLObject | TlsSocket, ...] = (self.tls, ours)
            for number, end in enumerate(ends):
                try:
                    end.do_handshake()
                    done[number] = True
                except ssl.SSLWantReadError:
                    pass
                self.socket.sendall(self.outgoing.read())
                self._receive()

    def _receive(self) -> None:
        with suppress(BlockingIOError):
            self.incoming.write(self.socket.recv(1 << 16, socket.MSG_DONTWAIT))

    def sealed(self, data: bytes, record_bytes: int) -> bytes:
        """It in records of that size."""
        for at in range(0, len(data), record_bytes):
            self.tls.write(data[at : at + record_bytes])
        return self.outgoing.read()


class Ends:
    """Two ends of one connection over loopback, after the handshake."""

    def __init__(self, contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.far = socket.create_connection(server.getsockname())
            self.near, _ = server.accept()
        self.far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.near.setblocking(False)
        tls = TlsSocket(self.near, contexts[0], server_side=True)
        self.sender = Sender(self.far, contexts[1])
        self.sender.shake_hands(tls)
        self.stream = TlsStream(tls)
        self.view = memoryview(bytearray(256 * 1024))

    def is_readable(self, timeout_s: float = 0) -> bool:
        return bool(select.select([self.near], [], [], timeout_s)[0])

    def arrived(self) -> int:
        """Bytes that the system has."""
        (count,) = struct.unpack("i", fcntl.ioctl(self.near, termios.FIONREAD, b"\0\0\0\0"))
        return int(count)

    def receive(self) -> bytes:
        try:
            return bytes(self.view[: self.stream.receive(self.view)])
        except BlockingIOError:
            return b""

    def close(self) -> None:
        self.near.close()
        self.far.close()


@pytest.fixture
def ends(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> Iterator[Ends]:
    ends = Ends(contexts)
    yield ends
    ends.close()


@needs_threshold
def test_a_frame_in_many_records_is_told_of_once(ends: Ends) -> None:
    sealed = ends.sender.sealed(bytes(16_000), record_bytes=1_000)
    ends.stream.expect(16_000)
    sent = 0
    while sent < 15_000:
        sent += ends.far.send(sealed[sent : sent + 1_022])
        while ends.arrived() < sent:
            pass
        assert not ends.is_readable()
    ends.far.sendall(sealed[sent:])
    assert ends.is_readable(PATIENCE_S)
    assert len(ends.receive()) == 16_000
    ends.stream.expect(0)
    ends.far.sendall(ends.sender.sealed(b"a", 1))
    assert ends.is_readable(PATIENCE_S)


@pytest.mark.parametrize("seed", range(12))
def test_what_was_announced_is_always_told_of(ends: Ends, seed: int) -> None:
    """Frames of any size, in records of any size, that come in pieces of any size: with nothing
    more to come, whatever is missing of the frame must be told of."""
    rng = random.Random(seed)
    ends.far.setblocking(False)  # as much is sent as systems with small buffers take
    received = bytearray()
    for _ in range(15):
        frame = rng.randbytes(rng.choice((10, 2_000, 5_000, 40_000, 150_000)) + rng.randrange(999))
        sealed = ends.sender.sealed(frame, rng.choice((1, 30, 1_000, 16_384)))
        got = sent = 0
        piece_bytes = rng.choice((700, 5_000, 60_000, len(sealed)))
        while got < len(frame):
            ends.stream.expect(len(frame) - got)
            with suppress(BlockingIOError):
                sent += ends.far.send(sealed[sent : sent + rng.randint(1, piece_bytes)])
            if ends.is_readable(0 if sent < len(sealed) else PATIENCE_S):
                data = ends.receive()
                received += data
                got += len(data)
                while ends.stream.is_buffering:
                    data = ends.receive()
                    received += data
                    got += len(data)
            else:
                assert sent < len(sealed), f"{got} of {len(frame)} bytes were told of"
        assert received[-len(frame) :] == frame


@needs_threshold
def test_the_end_of_a_connection_is_told_of(ends: Ends) -> None:
    ends.stream.expect(BYTES_MAX)
    ends.far.sendall(ends.sender.sealed(b"a beginning", 16_384))
    ends.far.close()
    assert ends.is_readable(PATIENCE_S)
    assert ends.receive() == b"a beginning"
    assert ends.stream.receive(ends.view) == 0


@needs_threshold
def test_a_receive_buffer_that_is_full_is_told_of(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    """Though it holds less than the threshold, since each piece takes more memory than it has."""
    ends = Ends(contexts)
    try:
        ends.near.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        ends.stream.expect(BYTES_MAX)
        ends.far.setblocking(False)
        sealed = ends.sender.sealed(bytes(BYTES_MAX), 1)
        sent = got = 0
        while got < BYTES_MAX:
            if ends.is_readable():
                got += len(ends.receive())
                ends.stream.expect(BYTES_MAX)
                continue
            try:
                sent += ends.far.send(sealed[sent : sent + 100])
            except BlockingIOError:
                assert ends.is_readable(PATIENCE_S)
            if sent == len(sealed):
                ends.stream.expect(0)
    finally:
        ends.close()


@pytest.mark.parametrize(
    ("protocol", "settings", "is_kafkas"),
    [
        ("SSL", {}, True),
        ("SASL_SSL", {}, True),
        ("SSL", {"socket.receive.buffer.bytes": "-1"}, False),
        ("PLAINTEXT", {}, False),
        ("PLAINTEXT", {"socket.receive.buffer.bytes": "102400"}, True),
    ],
)
def test_the_receive_buffer_of_a_listener(
    protocol: str, settings: dict[str, str], is_kafkas: bool
) -> None:
    """Clients with TLS send small records, which they join where the buffer is not endless."""
    config = make_broker_config(SettingLayers(static=settings)).config
    listener = Listener(protocol, "127.0.0.1", 0, protocol)
    with socket.socket() as other, bind(listener, config) as bound:
        given = bound.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        other.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 102_400)
        assert (given == other.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)) is is_kafkas
