"""A process that may have no more threads: a sentence at the start, and afterwards it goes on."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from strandline.broker.worker import Worker
from strandline.errors import StorageError
from strandline.protocol.messages.metadata import MetadataRequest
from tests.broker.harness import LocalBroker, Wire
from tests.broker.test_tls import TlsWire, context_of, port_of, secured
from tests.certificates import Authority
from tests.node.messages import batch, fetch, produce, produced, values


def no_thread(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_the_start_says_which_thread_it_could_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    with pytest.raises(StorageError, match="Cannot start the thread strandline-sync: can't start"):
        Worker("strandline-sync")


def test_a_broker_serves_and_stops_when_there_are_no_more_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = LocalBroker(tmp_path)
    with Wire(broker.port) as wire:
        monkeypatch.setattr(threading.Thread, "start", no_thread)
        wire.create_topic("t")
        assert produced(wire.ask(produce(batch(b"v"), "t"), 9)).error_code == 0
        assert values(wire.ask(fetch(("t", 0, 0)), 11)) == [b"v"]
    assert broker.stop(), "it ends cleanly"


def test_a_tls_handshake_for_which_there_is_no_thread_fails_and_holds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    settings = secured(authority.issue("broker", "127.0.0.1"))
    with LocalBroker(tmp_path / "data", *settings) as broker:
        port, context = port_of(broker, "SSL"), context_of(authority)
        with monkeypatch.context() as without:
            without.setattr(threading.Thread, "start", no_thread)
            for _ in range(3):
                with pytest.raises(OSError, match=r"(?i)EOF|reset"):
                    TlsWire(port, context)
            server = broker.broker._server
            assert broker.call(lambda: len(server._handshakes._stepping)) == 0
            assert broker.call(lambda: len(server._transports)) == 0
        with TlsWire(port, context) as wire:
            assert wire.ask(MetadataRequest(topics=None), 9).brokers


def test_one_thread_does_the_handshakes_if_there_is_no_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    settings = secured(authority.issue("broker", "127.0.0.1"))
    with LocalBroker(tmp_path / "data", *settings) as broker:
        start = threading.Thread.start
        started: list[threading.Thread] = []

        def start_one(thread: threading.Thread) -> None:
            if started:
                no_thread(thread)
            started.append(thread)
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", start_one)
        for _ in range(3):
            with TlsWire(port_of(broker, "SSL"), context_of(authority)) as wire:
                assert wire.ask(MetadataRequest(topics=None), 9).brokers
        assert len(started) == 1
