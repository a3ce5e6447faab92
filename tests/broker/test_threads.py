"""A process that may have no more threads: a sentence at the start, and afterwards it goes on."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from strandline.broker.worker import Worker
from strandline.errors import StorageError
from tests.broker.harness import LocalBroker, Wire
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
