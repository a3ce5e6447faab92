"""A range of a log that is sent late: what took its place in the file meanwhile is never sent."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.broker.frame_memory import FrameMemory
from strandline.broker.receive_buffers import BufferPool
from strandline.broker.streams import PlainStream
from strandline.broker.transport import Transport
from strandline.storage.log_reader import LogSlice
from strandline.storage.real_files import RealFiles
from strandline.types import Instant, Offset

LENGTH = 4 * 1024 * 1024


class Party:
    client_host = "a slow reader"
    frame_bytes_max = 100
    wants_input = True


class Host:
    """Owns one transport, and says what became of it."""

    def __init__(self) -> None:
        self.ended_by: list[str | None] = []

    def receive(self, *_: object) -> None:
        raise AssertionError("nothing was asked")

    def begin(self) -> Instant:
        return Instant(0, 0)

    def end(self) -> None: ...

    def end_soon(self) -> None: ...

    def call_soon(self, callback: object) -> None: ...

    def call_in_turn(self, callback: object) -> None: ...

    def disconnected(self, transport: object, reason: str | None) -> None:
        del transport
        self.ended_by.append(reason)

    def watch(self, transport: object, *, read: bool, write: bool) -> None: ...


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.settimeout(60)
    with ours, theirs:
        yield ours, theirs


@pytest.mark.parametrize("is_cut", [True, False])
def test_a_log_that_was_cut_and_grew_again_ends_a_slow_readers_connection(
    tmp_path: Path, pair: tuple[socket.socket, socket.socket], is_cut: bool
) -> None:
    ours, theirs = pair
    files = RealFiles()
    file = files.open(f"{tmp_path}/00000000000000000000.log", create=True)
    file.append(b"o" * LENGTH)
    host = Host()
    transport = Transport(
        host,
        Party(),
        PlainStream(ours),
        shared=memoryview(bytearray(1024)),
        pool=BufferPool(1, FrameMemory(1 << 30)),
    )
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
