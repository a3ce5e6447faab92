"""A socket with TLS on it, beside Python's own at the other end."""

from __future__ import annotations

import gc
import socket
import ssl
import weakref
from collections.abc import Iterator

import pytest

from strandline.broker.streams import TlsStream
from strandline.broker.tls_socket import RECORD_BYTES, TlsSocket
from tests.certificates import contexts_in
from tests.current import current


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    return contexts_in(tmp_path_factory.mktemp("certificates"))


class Pair:
    """Both ends, after the handshake. `theirs` has sent `early` with the last of it."""

    def __init__(self, contexts: tuple[ssl.SSLContext, ssl.SSLContext], early: bytes) -> None:
        near, far = socket.socketpair()
        for each in (near, far):
            each.setblocking(False)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
        ours, theirs = contexts
        self.ours = TlsSocket(near, ours, server_side=True)
        self.theirs = theirs.wrap_socket(
            far, server_hostname="localhost", do_handshake_on_connect=False
        )
        self.view = memoryview(bytearray(256 * 1024))
        while not self._step(self.theirs):
            self._step(self.ours)
        if early:
            self.theirs.send(early)
        assert self._step(self.ours)

    def _step(self, end: TlsSocket | ssl.SSLSocket) -> bool:
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def received(self, room: int) -> bytes:
        """What one call of ours brings."""
        return bytes(self.view[: self.ours.recv_into(self.view[:room])])

    def taken(self) -> int:
        """How much the other end can read now."""
        count = 0
        while True:
            try:
                count += self.theirs.recv_into(self.view)
            except ssl.SSLWantReadError:
                return count

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()


@pytest.fixture
def pair(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> Iterator[Pair]:
    made = Pair(contexts, b"early")
    yield made
    made.close()


def test_what_comes_with_the_end_of_the_handshake_is_not_waited_for(pair: Pair) -> None:
    assert pair.ours.is_buffering
    assert pair.received(100) == b"early"
    with pytest.raises(BlockingIOError):
        pair.received(100)
    assert not pair.ours.is_buffering


def test_many_small_records_come_in_one_call(pair: Pair) -> None:
    pair.received(100)
    for _ in range(50):
        pair.theirs.send(b"0123456789")
    assert pair.received(100_000) == b"0123456789" * 50
    assert not pair.ours.is_buffering


def test_what_there_is_no_room_for_is_told_of(pair: Pair) -> None:
    pair.received(100)
    pair.theirs.send(b"x" * RECORD_BYTES)
    pair.theirs.send(b"y" * 100)
    got = b""
    while not got or pair.ours.is_buffering:
        got += pair.received(1000)
    # What the socket still has, the loop is told by the socket.
    got += b"" if len(got) == RECORD_BYTES + 100 else pair.received(1000)
    assert got == b"x" * RECORD_BYTES + b"y" * 100


def test_what_the_socket_does_not_take_comes_again(pair: Pair) -> None:
    data = bytes(range(256)) * 4096
    with pytest.raises(BlockingIOError):
        pair.ours.send(data)
    assert current(pair.ours.is_sending)
    read = pair.taken()
    while pair.ours.is_sending:
        try:
            assert pair.ours.send(b"") == len(data)
        except BlockingIOError:
            read += pair.taken()
    assert read + pair.taken() == len(data)
    assert pair.ours.send(b"more") == 4
    assert pair.taken() == 4


def test_a_goodbye_is_an_end_although_the_socket_stays_open(pair: Pair) -> None:
    pair.theirs.send(b"last")
    with pytest.raises(ssl.SSLWantReadError):
        pair.theirs.unwrap()
    assert pair.received(100) == b"earlylast"
    assert pair.ours.is_buffering
    assert pair.received(100) == b""
    pair.ours.say_goodbye()
    pair.theirs.unwrap()


def test_the_end_of_the_socket_is_an_end(pair: Pair) -> None:
    pair.received(100)
    pair.theirs.close()
    assert pair.received(100) == b""
    assert pair.received(100) == b""


def test_what_is_no_record_is_answered_with_an_alert(pair: Pair) -> None:
    pair.received(100)
    raw = socket.socket(fileno=socket.dup(pair.theirs.fileno()))
    raw.send(b"\x17\x03\x03\x00\x20" + bytes(32))
    with pytest.raises(ssl.SSLError):
        pair.received(100)
    raw.close()
    with pytest.raises(ssl.SSLError, match=r"(?i)alert"):
        pair.theirs.recv(100)


def test_a_name_that_cannot_be_asked_for(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    near, far = socket.socketpair()
    with near, far, pytest.raises(ValueError, match="server_hostname"):
        TlsSocket(near, contexts[1], server_hostname="")


def test_what_openssl_holds_is_let_go_with_the_stream(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    """Not when the interpreter looks for circles: a flood of connections would wait for that."""
    pair = Pair(contexts, b"")
    stream = TlsStream(pair.ours)
    assert stream.send(b"last", 0) == 4
    held = weakref.ref(pair.ours.tls)
    gc.disable()
    try:
        pair.close()
        del pair, stream
        assert held() is None
    finally:
        gc.enable()
