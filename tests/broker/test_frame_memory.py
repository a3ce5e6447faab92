"""Large requests that arrive share a bounded memory: all are answered, some of them later."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from strandline.broker import frame_memory
from strandline.broker.frame_memory import FrameMemory
from strandline.errors import ErrorCode
from tests.broker.harness import PATIENCE_S, LocalBroker, Wire
from tests.node.messages import batch, produce, produced

MIB = 1 << 20
GIB = 1 << 30

_ONE_AT_A_TIME = (
    "socket.request.max.bytes=5000000",
    "queued.max.request.bytes=5000000",
    "message.max.bytes=5000000",
)
"""Settings of a broker with memory for one large request."""


class Request:
    """Stands for a connection whose request arrives."""

    def __init__(self, memory: FrameMemory) -> None:
        self.memory = memory
        self.asked_again = 0
        self.may_ask_again = asyncio.Event()
        self.closed: str | None = None

    def read_on(self) -> None:
        self.asked_again += 1
        self.may_ask_again.set()

    def close(self, reason: str | None) -> None:
        self.closed = reason
        self.memory.give_back(self)


def test_what_does_not_fit_waits_until_something_is_given_back() -> None:
    async def run() -> None:
        memory = FrameMemory(10)
        first, second, third = (Request(memory) for _ in range(3))
        assert memory.may_take(first, 6)
        assert not memory.may_take(second, 6)
        assert not memory.may_take(third, 6)
        assert memory.used == 6
        memory.give_back(first)
        await asyncio.sleep(0)
        assert (second.asked_again, third.asked_again) == (1, 1)
        assert memory.may_take(second, 6)
        assert not memory.may_take(third, 6)
        memory.give_back(second)
        memory.give_back(second)
        assert memory.used == 0

    asyncio.run(run())


def test_one_request_goes_on_whatever_its_size() -> None:
    async def run() -> None:
        memory = FrameMemory(10)
        first, second = Request(memory), Request(memory)
        assert memory.may_take(first, 4)
        assert memory.may_take(second, 4)
        assert not memory.may_take(first, 20), "the other one goes on"
        assert memory.may_take(second, 20), "the other one waits"

    asyncio.run(run())


def test_links_to_other_brokers_never_wait() -> None:
    async def run() -> None:
        memory = FrameMemory(10)
        assert memory.may_take(Request(memory), 10)
        assert memory.may_take(Request(memory), 10, always=True)

    asyncio.run(run())


def test_a_request_that_does_not_arrive_further_is_ended_if_others_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frame_memory, "STALLED_S", 0.01)

    async def run() -> None:
        memory = FrameMemory(10)
        stalled, waiting = Request(memory), Request(memory)
        assert memory.may_take(stalled, 10)
        assert not memory.may_take(waiting, 10)
        await waiting.may_ask_again.wait()
        assert stalled.closed is not None
        assert waiting.closed is None
        assert memory.may_take(waiting, 10)

    asyncio.run(run())


def test_a_request_that_trickles_in_is_ended_if_others_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A byte now and then is no progress; what comes steadily goes on, and so do links."""
    monkeypatch.setattr(frame_memory, "STALLED_S", 0.05)

    async def run() -> None:
        memory = FrameMemory(3 * GIB)
        trickling, steady, link, waiting = (Request(memory) for _ in range(4))
        assert memory.may_take(trickling, GIB)
        assert memory.may_take(steady, GIB)
        assert memory.may_take(link, GIB, always=True)
        assert not memory.may_take(waiting, GIB)
        while not waiting.asked_again:
            for reader, count in ((trickling, 1), (steady, GIB), (link, 1)):
                if reader.closed is None:
                    memory.progressed(reader, count)
            await asyncio.sleep(0)
        assert trickling.closed is not None
        assert (steady.closed, link.closed, waiting.closed) == (None, None, None)
        assert memory.may_take(waiting, GIB)

    asyncio.run(run())


def test_the_memory_of_a_process_is_that_of_its_cgroup_or_address_space() -> None:
    assert 0 < frame_memory.available_bytes() <= frame_memory.machine_bytes()
    assert FrameMemory.of_process(12_345).limit == 12_345


def test_clients_that_send_byte_by_byte_keep_no_large_request_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame_memory, "STALLED_S", 0.5)
    is_over = threading.Event()

    def trickle(wire: Wire) -> None:
        with suppress(OSError):  # it is closed
            while not is_over.wait(0.05):
                wire.socket.sendall(b"x")

    def write(port: int) -> int:
        while True:
            with Wire(port) as wire, suppress(ConnectionError):  # a busy machine let it stall, too
                return int(produced(wire.ask(produce(batch(b"x" * 3 * MIB), "t"), 9)).error_code)

    with (
        LocalBroker(tmp_path, *_ONE_AT_A_TIME) as broker,
        Wire(broker.port) as first,
        Wire(broker.port) as second,
    ):
        first.create_topic("t")
        slow = [threading.Thread(target=trickle, args=(each,)) for each in (first, second)]
        for wire, thread in zip((first, second), slow, strict=True):
            wire.socket.sendall((4_900_000).to_bytes(4, "big") + bytes(400_000))
            thread.start()
        server: Any = broker.broker._server
        memory = server._pool.memory
        deadline = time.monotonic() + PATIENCE_S
        while broker.call(lambda: memory.used) < 4 * MIB and time.monotonic() < deadline:
            time.sleep(0.01)  # the broker has still to read what has come
        try:
            assert write(broker.port) == ErrorCode.NONE
        finally:
            is_over.set()
        for thread in slow:
            thread.join()


def test_large_requests_wait_for_each_other_and_not_for_one_that_stalls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame_memory, "STALLED_S", 0.5)
    answers: list[int] = []

    def write(port: int) -> None:
        while True:
            with Wire(port) as wire, suppress(ConnectionError):  # a busy machine let it stall, too
                answer = wire.ask(produce(batch(b"x" * 4 * MIB), "t"), 9)
                answers.append(int(produced(answer).error_code))
                return

    with LocalBroker(tmp_path, *_ONE_AT_A_TIME) as broker, Wire(broker.port) as stalled:
        stalled.create_topic("t")
        stalled.socket.sendall((4 * MIB).to_bytes(4, "big") + bytes(3 * MIB))
        writers = [threading.Thread(target=write, args=(broker.port,)) for _ in range(6)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        assert answers == [ErrorCode.NONE] * 6
        with Wire(broker.port) as wire:
            assert produced(wire.ask(produce(batch(b"small"), "t"), 9)).error_code == 0
