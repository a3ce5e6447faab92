"""Limits on connections: how many, how many per address, how long idle, and no descriptors left."""

from __future__ import annotations

import os
import resource
import select
import time
from pathlib import Path

from strandline.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from strandline.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from strandline.protocol.messages.metadata import MetadataRequest
from tests.broker.harness import PATIENCE_S, BrokerProcess, LocalBroker, Wire, works
from tests.node.messages import batch, fetch, produce, produced
from tests.process_limits import set_limits

_MANY = 100
"""Connections that nothing makes in so many seconds."""


def serves(wire: Wire) -> bool:
    return bool(wire.ask(MetadataRequest(topics=None), 9).brokers)


def test_the_number_and_rate_of_connections_are_limited(tmp_path: Path) -> None:
    """Of a listener, of the broker, and of an address; clients wait, as at a Kafka."""
    own = "listener.name.plaintext.max.connections=3"
    with LocalBroker(tmp_path / "data", own) as broker:
        known, *others = [Wire(broker.port) for _ in range(3)]
        assert all(serves(wire) for wire in (known, *others))
        with Wire(broker.port) as late:
            late.send((MetadataRequest(topics=None), 9))
            assert not _is_answered(late, known)
            _configure(known, {"listener.name.plaintext.max.connections": "9"})
            assert late.receive().brokers, "the listener takes more now"
        _configure(known, {"listener.name.plaintext.max.connections": "3"})
        with Wire(broker.port) as late:
            late.send((MetadataRequest(topics=None), 9))
            assert not _is_answered(late, known)
            _configure(known, {"max.connections": "2"})
            others.pop().close()
            assert not _is_answered(late, known), "two are as many as may be now"
            _configure(known, {"max.connections": "3"})
            assert late.receive().brokers
        _until_served(broker.port)
        _configure(known, {"max.connections.per.ip": "2"})
        with Wire(broker.port) as third:
            assert third.is_closed()
        others.pop().close()
        _until_served(broker.port)
        _configure(known, {"max.connection.creation.rate": "1", "max.connections.per.ip": "9"})
        for _ in range(_MANY):
            with Wire(broker.port) as slow:
                slow.send((MetadataRequest(topics=None), 9))
                at_once = _is_answered(slow, known)
                assert slow.receive().brokers, "it is its turn after a while"
            if not at_once:
                break
        else:
            raise AssertionError("They were let in as fast as they came.")
        known.close()


def test_other_clients_make_way_for_brokers(tmp_path: Path) -> None:
    listeners = (
        "listeners=PLAINTEXT://127.0.0.1:0,INNER://127.0.0.1:0",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,INNER:PLAINTEXT",
        "inter.broker.listener.name=INNER",
        "max.connections=2",
    )
    with LocalBroker(tmp_path / "data", *listeners) as broker:
        inner = broker.broker.report.addresses[1].port
        with Wire(broker.port) as first, Wire(broker.port) as second:
            assert serves(first)
            assert serves(second)
            began = time.monotonic()
            while time.monotonic() < began + 0.01:
                assert serves(first)
            assert serves(first), "also if the time was over before the first look at it"
            with Wire(inner) as peer:
                assert serves(peer)
                assert second.is_closed(), "it was idle for longer"
                assert serves(first)


def test_connections_of_an_address_that_come_too_fast_are_sent_away(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "data") as broker, Wire(broker.port) as known:
        entry = EntryData(
            entity=[EntityData(entity_type="ip", entity_name="127.0.0.1")],
            ops=[OpData(key="connection_creation_rate", value=1.0)],
        )
        assert known.ask(AlterClientQuotasRequest(entries=[entry]), 1).entries[0].error_code == 0
        for _ in range(_MANY):
            with Wire(broker.port) as late:
                late.send((MetadataRequest(topics=None), 9))
                if late.is_closed():
                    break
        else:
            raise AssertionError("They were let in as fast as they came.")
        assert serves(known)


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


def test_an_answer_that_came_late_is_no_idleness(tmp_path: Path) -> None:
    """As in Kafka a connection is used, too, when its answer leaves."""
    with LocalBroker(tmp_path / "data", "connections.max.idle.ms=3000") as broker:
        with Wire(broker.port) as maker:
            maker.create_topic("orders")
        with Wire(broker.port) as used, Wire(broker.port) as waiting, Wire(broker.port) as idle:
            assert serves(idle)
            waiting.send((fetch(("orders", 0, 0), max_wait_ms=60_000), 11))
            while not select.select([idle.socket], [], [], 0.1)[0]:
                assert serves(used)
            assert idle.is_closed(), "the request that waits is as old"
            with Wire(broker.port) as producer:
                assert produced(producer.ask(produce(batch(b"a")), 9)).error_code == 0
            assert waiting.receive().responses
            closed, _, _ = select.select([used.socket, waiting.socket], [], [], PATIENCE_S)
            assert used.socket in closed, "it was used for the last time before the other one"


def test_without_descriptors_the_broker_goes_on_and_recovers(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as process:
        with Wire(process.port) as known:
            known.create_topic("orders")
            for _ in range(3):
                assert produced(known.ask(produce(batch(b"a")), 9)).error_code == 0
            limit = process.open_files() + 5
            set_limits(process.pid, resource.RLIMIT_NOFILE, (limit, limit))
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


def _is_answered(wire: Wire, other: Wire) -> bool:
    """Whether a client was heard, now that another was, twice."""
    for _ in range(2):
        assert serves(other)
    return bool(select.select([wire.socket], [], [], 0)[0])


def _configure(wire: Wire, settings: dict[str, str]) -> None:
    resource = AlterConfigsResource(
        resource_type=4,
        resource_name="",
        configs=[
            AlterableConfig(name=name, config_operation=0, value=value)
            for name, value in settings.items()
        ],
    )
    answer = wire.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert answer.responses[0].error_code == 0, answer
