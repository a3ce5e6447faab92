"""Floods of new clients, and of frames that are none: those who are served already come first."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from strandline.broker import newcomers
from strandline.broker.newcomers import Newcomers, Suspects
from strandline.protocol.messages.api_versions import ApiVersionsRequest
from strandline.protocol.messages.metadata import MetadataRequest
from strandline.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from strandline.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.broker.harness import PATIENCE_S, LocalBroker, Wire

_MANY = 40
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_USERS = 'user_alice="secret" user_mallory="secret"'


@pytest.fixture
def pairs() -> Iterator[Callable[[], tuple[socket.socket, socket.socket]]]:
    made: list[socket.socket] = []

    def pair() -> tuple[socket.socket, socket.socket]:
        ours, theirs = socket.socketpair()
        made.extend((ours, theirs))
        return ours, theirs

    yield pair
    for each in made:
        each.close()


def test_known_sockets_come_before_each_step_of_newcomers(
    pairs: Callable[[], tuple[socket.socket, socket.socket]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(newcomers, "_SLICE_OF_FLOODS_NS", 0)
    known, client = pairs()
    others = [pairs() for _ in range(_MANY)]
    done: list[str] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        all_done = asyncio.Event()
        crowd = Newcomers(lambda: True, lambda: done.append("before"))

        def served() -> None:
            known.recv(1)
            done.append("known")

        def read(ours: socket.socket) -> None:
            ours.recv(1)
            crowd.remove_reader(ours)
            done.append("new")
            client.send(b"x")
            if done.count("new") == _MANY:
                all_done.set()

        loop.add_reader(known, served)
        for ours, theirs in others:
            theirs.send(b"x")
            crowd.add_reader(ours, read, ours)
        async with asyncio.timeout(PATIENCE_S):
            await all_done.wait()
        loop.remove_reader(known)
        crowd.close()

    asyncio.run(run())
    steps = [each for each in done if each != "before"]
    assert steps == ["new", "known"] * (_MANY - 1) + ["new"]
    assert done.count("before") >= _MANY


def test_what_is_given_up_or_paused_is_not_called(
    pairs: Callable[[], tuple[socket.socket, socket.socket]],
) -> None:
    (first, first_client), (second, second_client) = pairs(), pairs()
    done: list[str] = []

    async def run() -> None:
        crowd = Newcomers(lambda: False, lambda: None)
        is_called, is_written = asyncio.Event(), asyncio.Event()

        def written() -> None:
            done.append("write")
            crowd.remove_writer(first)
            is_written.set()

        def readable() -> None:
            done.append("read")
            give_up()

        for ours, theirs in ((first, first_client), (second, second_client)):
            theirs.send(b"x")
            # Whichever is first gives both up.
            crowd.add_reader(ours, readable)

        def give_up() -> None:
            for ours in (first, second):
                crowd.remove_reader(ours)
            crowd.later(is_called.set)

        async with asyncio.timeout(PATIENCE_S):
            await is_called.wait()
            assert done == ["read"]
            crowd.pause()
            is_called.clear()
            crowd.later(is_called.set)
            crowd.add_writer(first, written)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert (done, is_called.is_set()) == (["read"], False)
            crowd.resume()
            await is_called.wait()
            await is_written.wait()
        assert done == ["read", "write"]
        crowd.close()
        crowd.close()

    asyncio.run(run())


def test_suspects_and_floods_are_forgotten_in_time() -> None:
    suspects = Suspects()
    for number in range(8):
        assert not suspects.is_flood(number)
        assert "mallory" not in suspects
        suspects.note("mallory", number)
    assert "mallory" in suspects
    assert suspects.is_flood(7)
    assert "alice" not in suspects
    suspects.note("bob", 50_000)
    suspects.forgive(60_007)
    assert "mallory" not in suspects
    assert not suspects.is_flood(120_000)
    for number in range(2000):
        suspects.note(f"127.0.{number // 256}.{number % 256}", 60_010)
    for _ in range(7):
        suspects.note("bob", 60_010)
    assert "bob" not in suspects, "so many others drove him out: memory is bounded"


def test_a_broker_serves_who_comes_in_a_flood(tmp_path: Path) -> None:
    """Users, and clients without a name: in their order, one after the other, and in large."""
    settings = (
        "listeners=PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "inter.broker.listener.name=PLAINTEXT",
        "sasl.enabled.mechanisms=PLAIN",
        f"listener.name.sasl.plain.sasl.jaas.config={_PLAIN} {_USERS};",
    )
    with LocalBroker(tmp_path / "data", *settings) as broker:
        sasl = broker.broker.report.addresses[1].port
        with Wire(broker.port) as known:
            known.create_topic("orders")
            assert known.ask(MetadataRequest(topics=None), 9).topics
            for _ in range(_MANY):
                with Wire(sasl) as bad:
                    bad.socket.sendall(b"\x7f\xff\xff\xff")
                    assert bad.is_closed()
                with _logged_in(sasl, "mallory") as bad:
                    bad.socket.sendall(b"\x00\x00\x00\x04\x7f\xff\x00\x00")
                    assert bad.is_closed()
            for port, user in ((sasl, "mallory"), (sasl, "alice"), (broker.port, None)):
                with _logged_in(port, user) if user else Wire(port) as wire:
                    wire.send(*[(MetadataRequest(topics=None), 9)] * _MANY)
                    for _ in range(_MANY):
                        assert [each.name for each in wire.receive().topics] == ["orders"]
            assert known.ask(MetadataRequest(topics=None), 9).topics


def _logged_in(port: int, user: str) -> Wire:
    wire = Wire(port)
    assert wire.ask(ApiVersionsRequest(), 0).error_code == 0
    assert wire.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
    password = f"\0{user}\0secret".encode()
    assert wire.ask(SaslAuthenticateRequest(auth_bytes=password), 2).error_code == 0
    return wire
