"""Limits on connections: how many, how many per address, how long idle, and no descriptors left."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

from strandline.protocol.messages.metadata import MetadataRequest
from tests.broker.harness import PATIENCE_S, BrokerProcess, LocalBroker, Wire, works
from tests.node.messages import batch, fetch, produce, produced


def serves(wire: Wire) -> bool:
    return bool(wire.ask(MetadataRequest(topics=None), 9).brokers)


def test_the_number_of_connections_is_limited(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "data", "max.connections=3") as broker:
        wires = [Wire(broker.port) for _ in range(3)]
        assert all(serves(wire) for wire in wires)
        with Wire(broker.port) as fourth:
            assert fourth.is_closed()
        wires.pop().close()
        _until_served(broker.port)
        for wire in wires:
            wire.close()


def test_the_number_of_connections_per_address_is_limited(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "data", "max.connections.per.ip=2") as broker:
        wires = [Wire(broker.port) for _ in range(2)]
        assert all(serves(wire) for wire in wires)
        with Wire(broker.port) as third:
            assert third.is_closed()
        wires.pop().close()
        _until_served(broker.port)
        wires.pop().close()


def test_idle_connections_are_closed_and_those_that_wait_are_not(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "data", "connections.max.idle.ms=2000") as broker:
        with Wire(broker.port) as maker:
            maker.create_topic("orders")
        with Wire(broker.port) as waiting, Wire(broker.port) as idle:
            waiting.send((fetch(("orders", 0, 0), max_wait_ms=6000), 11))
            assert serves(idle)
            assert idle.is_closed()
            assert waiting.receive().responses
        with Wire(broker.port) as silent:
            assert silent.is_closed(), "one that never said anything is closed, too"


def test_without_descriptors_the_broker_goes_on_and_recovers(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as process:
        with Wire(process.port) as known:
            known.create_topic("orders")
            for _ in range(3):
                assert produced(known.ask(produce(batch(b"a")), 9)).error_code == 0
            limit = process.open_files() + 5
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (limit, limit))
            crowd = [Wire(process.port) for _ in range(40)]
            for _ in range(20):
                assert produced(known.ask(produce(batch(b"b")), 9)).error_code == 0
            assert process.open_files() <= limit
            # Waiting for room must not turn into a loop that eats a processor.
            before, began = _cpu_s(process.pid), time.monotonic()
            while time.monotonic() - began < 1.0:
                assert produced(known.ask(produce(batch(b"b")), 9)).error_code == 0
                time.sleep(0.05)
            assert _cpu_s(process.pid) - before < 0.5
            for wire in crowd:
                wire.close()
            assert works(process.port)
            assert produced(known.ask(produce(batch(b"c")), 9)).error_code == 0
        assert process.stop()


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _until_served(port: int) -> None:
    """A closed connection is noticed soon, not at once."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            if works(port):
                return
        except ConnectionError:
            continue
    raise AssertionError("The place of a closed connection is never given away.")
