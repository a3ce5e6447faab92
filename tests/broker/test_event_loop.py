"""The event loop of brokers: sockets that it calls back for by itself, and its rounds."""

from __future__ import annotations

import asyncio
import logging
import os
import select
import selectors
import socket
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from strandline.broker import direct_selector
from strandline.broker.direct_selector import DirectSelector
from strandline.broker.event_loop import BrokerLoop, TimedSelector, loop_use, readiness_of
from strandline.node.status.broker_document import EventLoop
from strandline.node.status.meters import BUCKETS_MS

HAS_EPOLL = hasattr(select, "epoll")
SELECTORS = [DirectSelector, TimedSelector] if HAS_EPOLL else [TimedSelector]
needs_epoll = pytest.mark.skipif(not HAS_EPOLL, reason="this system has no epoll")


class Clock:
    """Time that passes only when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns = 1_000_000_000
        monkeypatch.setattr(time, "monotonic_ns", lambda: self.now_ns)

    def passes(self, milliseconds: float) -> None:
        self.now_ns += int(milliseconds * 1_000_000)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture(params=SELECTORS, ids=lambda kind: kind.__name__)
def run(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Runs a coroutine on a broker's loop."""

    def run_on(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        with asyncio.Runner(loop_factory=lambda: BrokerLoop(request.param())) as runner:
            return runner.run(work())

    return run_on


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ends = socket.socketpair()
    for end in ends:
        end.setblocking(False)
    yield ends
    for end in ends:
        end.close()


async def rounds(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


# -- Rounds -----------------------------------------------------------------------------------


def test_rounds_are_counted_by_how_long_they_take(clock: Clock, run: Callable[..., Any]) -> None:
    async def work() -> EventLoop | None:
        for milliseconds in (0.5, 1, 1.5, 5, 7, 1200, 40_000):
            clock.passes(milliseconds)
            await asyncio.sleep(0)
        return loop_use()

    use = run(work)
    by_bound = dict(zip([*BUCKETS_MS, None], use.buckets, strict=True))
    assert by_bound[1] == use.rounds - 5
    assert {bound: count for bound, count in by_bound.items() if count and bound != 1} == {
        5: 2,
        10: 1,
        2500: 1,
        None: 1,
    }
    assert use.busy_ms == 41_215
    assert use.longest_ms == 40_000
    assert abs(use.longest_wall_ms - time.time() * 1000) < 60_000


def test_time_in_which_the_loop_waits_is_no_stall(clock: Clock, run: Callable[..., Any]) -> None:
    async def work() -> EventLoop | None:
        before = clock.now_ns
        await asyncio.sleep(0.01)
        assert clock.now_ns == before  # it did wait, by the machine's clock
        return loop_use()

    use = run(work)
    assert (use.busy_ms, use.longest_ms, use.longest_wall_ms) == (0, 0, None)


def test_while_a_round_is_under_way_it_is_known_since_when(
    clock: Clock, run: Callable[..., Any]
) -> None:
    async def work() -> int:
        await asyncio.sleep(0)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, BrokerLoop)
        return loop.rounds.since_ns

    assert run(work) == clock.now_ns


def test_of_a_loop_that_others_have_made_nothing_is_measured() -> None:
    async def work() -> None:
        assert loop_use() is None
        loop = asyncio.get_running_loop()
        assert readiness_of(loop) is loop

    asyncio.run(work())


# -- Sockets ----------------------------------------------------------------------------------


def test_what_is_ready_is_called_back_for(
    run: Callable[..., Any], pair: tuple[socket.socket, socket.socket]
) -> None:
    here, there = pair
    said: list[object] = []

    async def work() -> None:
        readiness = readiness_of(asyncio.get_running_loop())
        readiness.add_reader(here.fileno(), lambda: said.append(here.recv(100)))
        await rounds(3)
        assert said == []
        there.send(b"one")
        await rounds(3)
        assert said == [b"one"]
        readiness.add_writer(here.fileno(), said.append, "writable")
        await rounds(2)
        assert said[1:] == ["writable"] * len(said[1:]) != []
        readiness.remove_writer(here.fileno())
        del said[:]
        there.close()
        await rounds(3)
        assert said[0] == b""  # the end
        readiness.remove_reader(here.fileno())
        del said[:]
        await rounds(3)
        assert said == []

    run(work)


def test_what_was_never_asked_for_may_be_given_up(
    run: Callable[..., Any], pair: tuple[socket.socket, socket.socket]
) -> None:
    async def work() -> None:
        readiness = readiness_of(asyncio.get_running_loop())
        for _ in range(2):
            readiness.remove_reader(pair[0].fileno())
            readiness.remove_writer(pair[0].fileno())

    run(work)


def test_a_callback_may_give_up_another_that_is_ready(run: Callable[..., Any]) -> None:
    """As when one request closes other connections: they are not called any more."""
    pairs = [socket.socketpair() for _ in range(5)]
    called: list[int] = []

    async def work() -> None:
        readiness = readiness_of(asyncio.get_running_loop())

        def first_come(number: int) -> None:
            called.append(number)
            for here, _ in pairs:
                readiness.remove_reader(here.fileno())

        for number, (here, there) in enumerate(pairs):
            there.send(b"x")
            readiness.add_reader(here.fileno(), first_come, number)
        await rounds(3)

    run(work)
    assert len(called) == 1
    for each in [end for ends in pairs for end in ends]:
        each.close()


def test_a_socket_that_is_closed_unasked_is_forgotten(run: Callable[..., Any]) -> None:
    """And its number may be another's at once."""

    async def work() -> None:
        loop = asyncio.get_running_loop()
        readiness = readiness_of(loop)
        here, there = socket.socketpair()
        number = here.fileno()
        readiness.add_reader(number, here.recv, 100)
        here.close()
        readiness.remove_reader(number)
        replaced = socket.socket()
        try:
            assert replaced.fileno() == number
            loop.add_reader(replaced, lambda: None)
            assert loop.remove_reader(replaced)
        finally:
            replaced.close()
            there.close()

    run(work)


@needs_epoll
def test_what_a_callback_asks_for_soon_is_done_before_the_next_look(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    """That is what saves a round for each turn of a broker."""
    looks: list[str] = []

    class Watched(DirectSelector):
        def select(self, timeout: float | None = None) -> Any:
            looks.append("look")
            return super().select(timeout)

    here, there = pair

    async def work() -> None:
        loop = asyncio.get_running_loop()

        def readable() -> None:
            here.recv(100)
            looks.append("read")
            loop.call_soon(looks.append, "soon")

        readiness_of(loop).add_reader(here.fileno(), readable)
        there.send(b"x")
        await rounds(4)

    with asyncio.Runner(loop_factory=lambda: BrokerLoop(Watched())) as runner:
        runner.run(work())
    at = looks.index("read")
    assert looks[at : at + 2] == ["read", "soon"]


def test_a_callback_that_fails_ends_neither_the_loop_nor_the_others(
    pair: tuple[socket.socket, socket.socket], caplog: pytest.LogCaptureFixture
) -> None:
    here, there = pair
    said: list[bytes] = []

    async def work() -> None:
        readiness = readiness_of(asyncio.get_running_loop())

        def fail() -> None:
            here.recv(1)
            raise ValueError("broken")

        readiness.add_reader(here.fileno(), fail)
        readiness.add_reader(there.fileno(), lambda: said.append(there.recv(100)))
        there.send(b"x")
        here.send(b"y")
        await rounds(4)

    with asyncio.Runner(loop_factory=BrokerLoop) as runner, caplog.at_level(logging.ERROR):
        runner.run(work())
    assert said == [b"y"]
    assert "broken" in caplog.text


# -- As a selector of asyncio -------------------------------------------------------------------


def test_what_asyncio_does_with_its_loop_works(run: Callable[..., Any]) -> None:
    """Streams, threads, pipes of processes, signals of descriptors: all by the same selector."""

    async def work() -> None:
        loop = asyncio.get_running_loop()

        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await reader.readexactly(1_000_000))
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"z" * 1_000_000)
        assert len(await reader.readexactly(1_000_000)) == 1_000_000
        assert await reader.read() == b""
        writer.close()
        server.close()
        await server.wait_closed()
        assert await loop.run_in_executor(None, os.getpid) == os.getpid()
        process = await asyncio.create_subprocess_exec(
            "cat", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await process.communicate(b"through a pipe")
        assert out == b"through a pipe"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await asyncio.Event().wait()

    run(work)


def test_without_epoll_the_loop_has_another_selector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(select, "epoll", raising=False)
    monkeypatch.setattr(direct_selector, "_EPOLL", None)
    with pytest.raises(OSError, match="no epoll"):
        DirectSelector()
    loop = BrokerLoop()
    try:
        assert loop.readiness is loop
    finally:
        loop.close()


@needs_epoll
def test_it_keeps_the_contract_of_selectors(pair: tuple[socket.socket, socket.socket]) -> None:
    here, there = pair
    with DirectSelector() as selector:
        key = selector.register(here, selectors.EVENT_READ, "data")
        assert selector.get_key(here) == selector.get_map()[here.fileno()] == key
        assert list(selector.get_map()) == [here.fileno()]
        assert len(selector.get_map()) == 1
        assert selector.select(0) == []
        there.send(b"x")
        assert selector.select(None) == [(key, selectors.EVENT_READ)]
        both = selector.modify(here, selectors.EVENT_READ | selectors.EVENT_WRITE, "other")
        assert selector.select(0.5) == [(both, selectors.EVENT_READ | selectors.EVENT_WRITE)]
        assert selector.modify(here, both.events, "third").data == "third"
        with pytest.raises(KeyError):
            selector.register(here, selectors.EVENT_READ)
        with pytest.raises(KeyError):
            selector.add_reader(here.fileno(), lambda: None)
        selector.add_reader(there.fileno(), lambda: None)
        with pytest.raises(KeyError):
            selector.register(there, selectors.EVENT_READ)
        assert selector.unregister(here).data == "third"
        for missing in (selector.unregister, selector.get_key):
            with pytest.raises(KeyError):
                missing(here)
        with pytest.raises(ValueError, match="no descriptor"):
            selector.register(-1, selectors.EVENT_READ)
