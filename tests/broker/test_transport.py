"""What one transport sends late, and receives in pieces: what ends it, and that it is not idle."""

from __future__ import annotations

import logging
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from strandline.broker.frame_memory import FrameMemory
from strandline.broker.receive_buffers import RECEIVE_BUFFER_BYTES, BufferPool, SharedBuffer
from strandline.broker.streams import PlainStream
from strandline.broker.transport import Transport
from strandline.storage.files import File
from strandline.storage.log_reader import LogSlice
from strandline.storage.real_files import RealFiles
from strandline.types import Instant, Offset

LENGTH = 4 * 1024 * 1024


class Party:
    client_host = "a slow reader"
    frame_bytes_max = LENGTH
    wants_input = True


class Host:
    """Owns one transport, and says what became of it."""

    def __init__(self) -> None:
        self.ended_by: list[str | None] = []
        self.received: list[int] = []
        self.now_ms = 0
        self.later: deque[Callable[[], None]] = deque()
        """What is to be called in the next rounds."""

    def receive(self, party: object, frame: memoryview, now: Instant) -> None:
        self.received.append(len(frame))

    def begin(self) -> Instant:
        return Instant(self.now_ms, self.now_ms)

    def end(self) -> None: ...

    def end_soon(self) -> None: ...

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.later.append(callback)

    def call_in_turn(self, callback: object) -> None: ...

    def disconnected(self, transport: object, reason: str | None) -> None:
        del transport
        self.ended_by.append(reason)

    def watch(self, transport: object, *, read: bool, write: bool) -> None: ...

    def round(self) -> None:
        """What a loop calls in its next round, but sockets."""
        for _ in range(len(self.later)):
            self.later.popleft()()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.settimeout(60)
    with ours, theirs:
        yield ours, theirs


def log_in(directory: Path) -> File:
    """A file that is longer than what a socket takes at once."""
    file = RealFiles().open(f"{directory}/00000000000000000000.log", create=True)
    file.append(b"o" * LENGTH)
    return file


def transport_of(
    host: Host, stream: PlainStream, kind: type[Transport[Party]] = Transport
) -> Transport[Party]:
    pool = BufferPool(1, FrameMemory(1 << 30))
    return kind(host, Party(), stream, shared=SharedBuffer(), pool=pool)


class Slow(Transport[Party]):
    """One whose frames take so long that each is handed on in a round of its own."""

    slice_ns = 0


@pytest.mark.parametrize("is_cut", [True, False])
def test_a_log_that_was_cut_and_grew_again_ends_a_slow_readers_connection(
    tmp_path: Path, pair: tuple[socket.socket, socket.socket], is_cut: bool
) -> None:
    ours, theirs = pair
    file = log_in(tmp_path)
    host = Host()
    transport = transport_of(host, PlainStream(ours))
    transport.send([LogSlice(file, 0, LENGTH, Offset(0), Offset(1))])
    assert transport.has_unsent_output, "the reader is slow"
    if is_cut:
        file.truncate(0)
        file.append(b"n" * LENGTH)
    received = bytearray()
    while len(received) < LENGTH:
        transport.on_writable()
        piece = theirs.recv(1 << 16)
        received += piece
        if not piece:
            break
    assert set(received) == {ord("o")}
    if is_cut:
        assert len(received) < LENGTH
        assert host.ended_by == ["a log range was cut while it was being sent"]
    else:
        assert (len(received), host.ended_by) == (LENGTH, [])


@pytest.mark.parametrize("error", [MemoryError(), ValueError("a bug of ours")])
def test_what_goes_wrong_while_the_rest_is_sent_ends_the_connection(
    tmp_path: Path,
    pair: tuple[socket.socket, socket.socket],
    caplog: pytest.LogCaptureFixture,
    error: Exception,
) -> None:
    """Once: the socket stays writable, and the loop would call again and again."""

    class Failing(PlainStream):
        def send_range(self, file: File, position: int, length: int) -> int:
            if host.now_ms:
                raise error
            return super().send_range(file, position, length)

    ours, _ = pair
    host = Host()
    transport = transport_of(host, Failing(ours))
    transport.send([LogSlice(log_in(tmp_path), 0, LENGTH, Offset(0), Offset(1))])
    host.now_ms = 1
    caplog.set_level(logging.ERROR)
    transport.on_writable()
    assert transport.closed
    assert len(host.ended_by) == 1
    assert "a slow reader" in caplog.text


def test_an_answer_that_is_taken_bit_by_bit_is_no_idleness(
    tmp_path: Path, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    host = Host()
    transport = transport_of(host, PlainStream(ours))
    transport.send([LogSlice(log_in(tmp_path), 0, LENGTH, Offset(0), Offset(1))])
    received = 0
    while transport.has_unsent_output:
        received += len(theirs.recv(1 << 16))
        host.now_ms += 1000
        transport.on_writable()
        assert transport.last_active_ms == host.now_ms
    assert received < LENGTH
    assert not transport.closed


def test_a_large_request_that_comes_bit_by_bit_is_no_idleness(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    host = Host()
    transport = transport_of(host, PlainStream(ours))
    frame, piece = LENGTH.to_bytes(4, "big") + bytes(LENGTH), 1 << 16
    for position in range(0, len(frame), piece):
        assert not host.received
        theirs.sendall(frame[position : position + piece])
        host.now_ms += 1000
        transport.on_readable()
        assert transport.last_active_ms == host.now_ms
        transport.on_readable()  # what was beyond the end of a buffer that grows
    assert host.received == [LENGTH]


SIZES = [
    5,
    RECEIVE_BUFFER_BYTES // 2 - 4,
    RECEIVE_BUFFER_BYTES // 2,
    RECEIVE_BUFFER_BYTES - 4,
    RECEIVE_BUFFER_BYTES,
    1_000_000,
    1_048_588,
    1_500_000,
    3_000_000,
]
"""Of frames, around the limits of buffers."""


class Keeper(Host):
    """Keeps what it receives."""

    def __init__(self) -> None:
        super().__init__()
        self.frames: list[bytes] = []

    def receive(self, party: object, frame: memoryview, now: Instant) -> None:
        self.frames.append(bytes(frame))
        frame[:] = bytes(len(frame))  # as the node patches them


@pytest.fixture
def loopback() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Takes megabytes at once, other than a pair of sockets of the system's own."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        theirs = socket.create_connection(listening.getsockname())
        ours, _ = listening.accept()
    with ours, theirs:
        for each in (ours, theirs):
            each.setblocking(False)
        yield ours, theirs


@pytest.mark.parametrize("piece", [1 << 30, 1_000_003, 262_144, 70_001])
def test_frames_of_all_sizes_come_whole_and_in_their_order(
    loopback: tuple[socket.socket, socket.socket], piece: int
) -> None:
    """However much of them is there when they are read."""
    ours, theirs = loopback
    host = Keeper()
    transport = transport_of(host, PlainStream(ours))
    transport.update_watch()
    frames = [
        Random(size + n).randbytes(size) for n in range(3) for size in (*SIZES, *reversed(SIZES))
    ]
    rest = memoryview(b"".join(len(each).to_bytes(4, "big") + each for each in frames))
    while len(host.frames) < len(frames):
        there = piece
        with suppress(BlockingIOError):
            while rest and there > 0:
                sent = theirs.send(rest[:there])
                rest, there = rest[sent:], there - sent
        if transport.watching[0]:
            transport.on_readable()
        host.round()
        assert not transport.closed
    assert host.frames == frames


@pytest.mark.parametrize("there", [3, 1000, 200_000, 700_000])
def test_the_end_within_a_large_frame_ends_the_connection(
    loopback: tuple[socket.socket, socket.socket], there: int
) -> None:
    ours, theirs = loopback
    host = Keeper()
    transport = transport_of(host, PlainStream(ours))
    rest = memoryview((1_000_000).to_bytes(4, "big") + bytes(there))
    while rest:
        with suppress(BlockingIOError):
            rest = rest[theirs.send(rest) :]
        transport.on_readable()
        assert not transport.closed
    theirs.close()
    while not transport.closed:
        transport.on_readable()
    assert (host.frames, host.ended_by) == ([], [None])


def small_frames(count: int) -> bytes:
    return b"".join((4).to_bytes(4, "big") + number.to_bytes(4, "big") for number in range(count))


def numbers(frames: list[bytes]) -> list[int]:
    return [int.from_bytes(each, "big") for each in frames]


def test_frames_that_take_long_are_handed_on_in_slices(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    """So that others have their turns, and answers leave in between; nothing is read meanwhile."""

    class Busy(Keeper):
        def receive(self, party: object, frame: memoryview, now: Instant) -> None:
            super().receive(party, frame, now)
            time.sleep(transport.slice_ns / 2e9)

    ours, theirs = pair
    host = Busy()
    transport = transport_of(host, PlainStream(ours))
    transport.update_watch()
    theirs.sendall(small_frames(20) + small_frames(1)[:3])
    transport.on_readable()
    rounds = 1
    while host.later:
        assert len(host.frames) <= 2 * rounds, "a slice ends"
        assert not transport.watching[0]
        host.round()
        rounds += 1
    assert numbers(host.frames) == [*range(20)]
    assert transport.watching == (True, False)
    theirs.sendall(small_frames(1)[3:])
    transport.on_readable()
    assert numbers(host.frames) == [*range(20), 0]


def test_what_waits_for_its_turn_waits_for_a_slow_reader_too(
    tmp_path: Path, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    host = Keeper()
    transport = transport_of(host, PlainStream(ours), Slow)
    transport.update_watch()
    theirs.sendall(small_frames(3))
    transport.on_readable()
    assert numbers(host.frames) == [0]
    transport.send([LogSlice(log_in(tmp_path), 0, LENGTH, Offset(0), Offset(1))])
    for _ in range(3):
        host.round()
    assert numbers(host.frames) == [0], "the answer has not left"
    assert transport.watching == (False, True)
    received = 0
    while transport.has_unsent_output:
        received += len(theirs.recv(1 << 20))
        transport.on_writable()
    assert numbers(host.frames) == [0, 1]
    while host.later:
        host.round()
    assert numbers(host.frames) == [0, 1, 2]
    assert transport.watching == (True, False)


def test_a_pause_does_not_lose_the_turn_of_what_waits(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    host = Keeper()
    transport = transport_of(host, PlainStream(ours), Slow)
    transport.update_watch()
    theirs.sendall(small_frames(3))
    transport.on_readable()
    host.later.clear()  # as a server does that is paused
    transport.look_again()
    while host.later:
        host.round()
    assert numbers(host.frames) == [0, 1, 2]


def test_a_connection_that_ends_while_frames_wait_hands_on_no_more(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    host = Keeper()
    transport = transport_of(host, PlainStream(ours), Slow)
    theirs.sendall(small_frames(3))
    transport.on_readable()
    transport.close(None)
    while host.later:
        host.round()
    assert numbers(host.frames) == [0]
