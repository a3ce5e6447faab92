"""The metadata store's socket: round trips, bad input, which ends its connection only, silence."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import struct
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.broker import store_messages as messages
from strandline.broker.durable_tree import Write
from strandline.broker.embedded_store import EmbeddedStore
from strandline.broker.remote_store import RemoteStore
from strandline.broker.silence import Silence
from strandline.broker.store_server import StoreServer
from strandline.cluster.store import (
    NO_SESSION,
    BadVersion,
    Changes,
    Check,
    Checked,
    Create,
    Created,
    DataSet,
    Delete,
    Deleted,
    InvalidPath,
    MultiRefused,
    MultiTooLarge,
    NoChildrenForEphemerals,
    NodeCreated,
    NodeDataSet,
    NodeDeleted,
    NodeExists,
    NodeStat,
    NoNode,
    NotEmpty,
    OutcomeUnknown,
    SessionId,
    SetData,
    StoreError,
    StoreUnavailable,
    Zxid,
)
from strandline.errors import MalformedFrame
from strandline.protocol.messages import metadata_store as wire
from strandline.protocol.schema import encode
from strandline.storage.real_files import RealFiles
from tests.broker.store_worlds import LONG_MS, Follower, until

Scenario: TypeAlias = Callable[[StoreServer], Awaitable[None]]

paths = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
numbers = st.integers(0, 2**62)
versions = st.integers(-1, 2**31 - 1)
stats = st.builds(
    NodeStat,
    numbers.map(Zxid),
    numbers.map(Zxid),
    st.integers(0, 2**31 - 1),
    st.one_of(st.just(NO_SESSION), numbers.map(SessionId)),
)
operations = st.one_of(
    st.builds(Create, paths, st.binary(), st.booleans(), st.booleans()),
    st.builds(SetData, paths, st.binary(), versions),
    st.builds(Delete, paths, versions),
    st.builds(Check, paths, versions),
)
results = st.one_of(
    st.builds(Created, paths), st.builds(DataSet, stats), st.just(Deleted()), st.just(Checked())
)
changes = st.one_of(
    st.builds(NodeCreated, paths, st.binary(), stats),
    st.builds(NodeDataSet, paths, st.binary(), stats),
    st.builds(NodeDeleted, paths),
)


def travelled(message: messages.Message) -> messages.Message:
    """The message as the other end reads it."""

    async def read() -> messages.Message:
        reader = asyncio.StreamReader()
        reader.feed_data(messages.frame_of(message))
        reader.feed_eof()
        return await messages.read_message(reader, messages.ANSWER_BYTES_MAX)

    return asyncio.run(read())


@given(st.lists(operations, max_size=5), st.lists(results, max_size=5), st.lists(changes))
def test_what_is_said_is_what_is_heard(
    said: list[Create | SetData | Delete | Check],
    came: list[Created | DataSet | Deleted | Checked],
    happened: list[NodeCreated | NodeDataSet | NodeDeleted],
) -> None:
    multi = travelled(messages.message_of(7, said))
    assert isinstance(multi, wire.Multi)
    assert messages.operations_of(multi) == said
    answer = travelled(messages.outcome(7, tuple(came)))
    assert isinstance(answer, wire.Outcome)
    assert (answer.number, messages.results_of(answer)) == (7, tuple(came))
    told = travelled(messages.told(Changes(Zxid(9), tuple(happened))))
    assert isinstance(told, wire.Told)
    assert messages.changes_of(told) == Changes(Zxid(9), tuple(happened))


@pytest.mark.parametrize(
    "kind", [NodeExists, NoNode, BadVersion, NotEmpty, NoChildrenForEphemerals, InvalidPath]
)
def test_refusals_keep_their_kind_and_place(kind: type[MultiRefused]) -> None:
    answer = travelled(messages.failure(1, kind("/größe", 3)))
    assert isinstance(answer, wire.Outcome)
    heard = messages.results_of(answer)
    assert type(heard) is kind
    assert (heard.path, heard.index) == ("/größe", 3)


@pytest.mark.parametrize("error", [StoreUnavailable("Disk."), OutcomeUnknown("Disk.")])
def test_failures_keep_whether_they_are_definite(error: StoreError) -> None:
    answer = travelled(messages.failure(1, error))
    assert isinstance(answer, wire.Outcome)
    heard = messages.results_of(answer)
    assert isinstance(heard, StoreError)
    assert (type(heard), str(heard)) == (type(error), "Disk.")


def test_a_path_without_bytes_is_refused_before_it_is_sent() -> None:
    with pytest.raises(InvalidPath) as refused:
        messages.message_of(1, [Check("/"), Create("/\ud800")])
    assert refused.value.index == 1


def serve(tmp_path: Path, scenario: Scenario) -> None:
    """Run a scenario beside a store's server."""

    async def run() -> None:
        store = EmbeddedStore(RealFiles(), str(tmp_path))
        with tempfile.TemporaryDirectory(prefix="store") as short:  # sockets have short paths
            with socket.socket(socket.AF_UNIX) as left:  # by a process that was killed
                left.bind(f"{short}/s")
            server = await StoreServer.start(store, f"{short}/s")
            assert stat.S_IMODE(os.stat(f"{short}/s").st_mode) == 0o600
            try:
                async with asyncio.timeout(LONG_MS / 1000):
                    await scenario(server)
            finally:
                await server.close()
                await store.close()

    asyncio.run(run())


def hello(session_timeout_ms: int = LONG_MS) -> bytes:
    return messages.frame_of(wire.Hello(broker_id=9, session_timeout_ms=session_timeout_ms))


def multi(operation: wire.Operation) -> bytes:
    return messages.frame_of(wire.Multi(number=1, operations=[operation]))


BAD = {
    "a size that is not allowed": struct.pack(">i", messages.REQUEST_BYTES_MAX + 1),
    "a size below zero": struct.pack(">i", -1),
    "nothing": struct.pack(">i", 0),
    "an unknown kind": struct.pack(">ib", 1, 99),
    "not a message": struct.pack(">ib", 3, 1) + b"\xff\xff",
    "a message with more behind it": struct.pack(">ib", 3, 2) + encode(wire.Ping(), 0) + b"x",
    "an answer": messages.frame_of(wire.Outcome()),
    "a second hello": hello(),
    "an unknown operation": multi(wire.Operation(kind=9, path=b"/a")),
    "a path that is no text": multi(wire.Operation(path=b"/\xff")),
}


def test_bad_input_ends_its_connection_and_nothing_else(tmp_path: Path) -> None:
    async def scenario(server: StoreServer) -> None:
        good = Follower(RemoteStore(server.path, 1, session_timeout_ms=LONG_MS))
        await good.load()
        await good.store.multi([Create("/good", ephemeral=True)])
        for greeting in (b"", hello()):
            for what, bad in BAD.items():
                if not greeting and bad == hello():
                    continue
                reader, writer = await asyncio.open_unix_connection(server.path)
                writer.write(greeting + bad)
                try:
                    while await reader.read(1 << 16):
                        pass  # the welcome
                except ConnectionResetError:
                    pass
                assert reader.at_eof() or reader.exception() is not None, what
                writer.close()
        assert await good.store.multi([Check("/good", 0)]) == (Checked(),)
        with pytest.raises(MultiTooLarge):
            await good.store.multi([Create("/large", bytes(messages.REQUEST_BYTES_MAX))])
        assert good.paths() == ["/good"]
        await good.store.close()

    serve(tmp_path, scenario)


def test_an_end_of_the_connection_ends_no_session_but_silence_does(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(server: StoreServer) -> None:
        witness = Follower(RemoteStore(server.path, 1, session_timeout_ms=LONG_MS))
        await witness.load()
        reader, writer = await asyncio.open_unix_connection(server.path)
        writer.write(hello(500) + multi(wire.Operation(path=b"/mine", is_ephemeral=True)))
        await until(lambda: "/mine" in witness.nodes)
        welcome = await messages.read_message(reader, messages.ANSWER_BYTES_MAX)
        assert isinstance(welcome, wire.Welcome)
        writer.close()
        again = wire.Hello(broker_id=9, session=welcome.session, session_timeout_ms=500)
        reader, writer = await asyncio.open_unix_connection(server.path)
        writer.write(messages.frame_of(again))
        same = await messages.read_message(reader, messages.ANSWER_BYTES_MAX)
        assert isinstance(same, wire.Welcome)
        assert same.session == welcome.session
        assert "/mine" in witness.nodes
        await until(lambda: "/mine" not in witness.nodes)
        assert "Nothing was heard of broker 9 for 0.5 s" in caplog.text
        while await reader.read(1 << 16):
            pass  # its connection is closed, which it learns when it wakes
        writer.close()
        reader, writer = await asyncio.open_unix_connection(server.path)
        writer.write(messages.frame_of(again))
        other = await messages.read_message(reader, messages.ANSWER_BYTES_MAX)
        assert isinstance(other, wire.Welcome)
        assert other.session not in (0, welcome.session)
        writer.close()
        await witness.store.close()

    serve(tmp_path, scenario)


def test_a_session_that_ends_while_its_broker_comes_back_is_not_its_session_any_more(
    tmp_path: Path,
) -> None:
    """A write of the lost connection is waited for, by a disk that takes its time."""

    async def scenario(server: StoreServer) -> None:
        durable, goes_on = server._store._durable, threading.Event()
        carry_out = durable.carry_out

        def slowly(write: Write) -> None:
            goes_on.wait()
            carry_out(write)

        durable.carry_out = slowly  # type: ignore[method-assign]
        reader, writer = await asyncio.open_unix_connection(server.path)
        writer.write(hello() + multi(wire.Operation(path=b"/mine", is_ephemeral=True)))
        welcome = await messages.read_message(reader, messages.ANSWER_BYTES_MAX)
        assert isinstance(welcome, wire.Welcome)
        former = server._sessions[SessionId(welcome.session)].connection
        assert former is not None
        await until(lambda: bool(former._multis))
        writer.close()
        again = wire.Hello(broker_id=9, session=welcome.session, session_timeout_ms=LONG_MS)
        reader, writer = await asyncio.open_unix_connection(server.path)
        writer.write(messages.frame_of(again))
        await until(lambda: former._is_ending)
        died = asyncio.create_task(server.broker_died(9))
        await until(lambda: former.session.ending is not None)
        goes_on.set()
        await died
        other = await messages.read_message(reader, messages.ANSWER_BYTES_MAX)
        assert isinstance(other, wire.Welcome)
        assert other.session not in (0, welcome.session)
        assert SessionId(other.session) in server._sessions
        writer.close()

    serve(tmp_path, scenario)


def test_a_large_tree_is_told_in_several_frames(tmp_path: Path) -> None:
    async def scenario(server: StoreServer) -> None:
        one = Follower(RemoteStore(server.path, 1, session_timeout_ms=LONG_MS))
        await one.load()
        data = bytes(messages.VIEW_BYTES // 3)
        await one.store.multi([Create(f"/{number}", data) for number in range(9)])
        other = Follower(RemoteStore(server.path, 2, session_timeout_ms=LONG_MS))
        await other.load()
        assert other.nodes == one.nodes
        await one.store.close()
        await other.store.close()

    serve(tmp_path, scenario)


def test_time_in_which_this_process_stood_still_is_no_silence_of_others() -> None:
    async def scenario() -> list[str]:
        said: list[str] = []
        silence = Silence(0.1, 4, lambda: said.append("silent"), lambda: said.append("tick"))
        time.sleep(0.5)  # noqa: ASYNC251 - as if the process were stopped
        await until(lambda: bool(said))
        silence.heard()
        assert said == ["tick"]
        await until(lambda: "silent" in said)
        silence.stop()
        return said

    assert asyncio.run(scenario()) == ["tick", "tick", "tick", "tick", "silent"]


def test_what_is_malformed_is_said() -> None:
    with pytest.raises(MalformedFrame, match="kind 9"):
        messages.operations_of(wire.Multi(operations=[wire.Operation(kind=9)]))
    with pytest.raises(MalformedFrame, match="kind 9"):
        messages.results_of(wire.Outcome(results=[wire.Result(kind=9)]))
    with pytest.raises(MalformedFrame, match="kind 9"):
        messages.changes_of(wire.Told(changes=[wire.Change(kind=9)]))
