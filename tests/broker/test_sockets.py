"""Bytes on real sockets: cut anywhere, too many, too few, too big, not taken."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from strandline.protocol.messages.api_versions import ApiVersionsRequest
from strandline.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from strandline.protocol.messages.metadata import MetadataRequest
from tests.broker.harness import PATIENCE_S, BrokerProcess, LocalBroker, Wire, works
from tests.node.messages import batch, fetch, list_offsets, produce, produced, values

MEGABYTE = 1 << 20
ANNOUNCED = 90 * MEGABYTE


def versions() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="wire", client_software_version="1")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path_factory.mktemp("data")) as broker:
        yield broker


@pytest.fixture
def topic(broker: LocalBroker, request: pytest.FixtureRequest) -> str:
    name = str(request.node.name)[:200].translate(str.maketrans("[]", "__"))
    with Wire(broker.port) as wire:
        wire.create_topic(name)
    return name


def test_many_requests_in_one_piece_are_answered_in_order(broker: LocalBroker, topic: str) -> None:
    with Wire(broker.port) as wire:
        wire.send(*[(produce(batch(b"%d" % i), topic), 9) for i in range(500)])
        assert [produced(wire.receive()).base_offset for _ in range(500)] == list(range(500))
        wire.send((versions(), 3), (fetch((topic, 0, 0)), 11), (list_offsets(-1, topic), 7))
        assert wire.receive().error_code == 0
        assert len(values(wire.receive())) == 500
        assert wire.receive().topics[0].partitions[0].offset == 500


def test_byte_by_byte(broker: LocalBroker, topic: str) -> None:
    with Wire(broker.port) as wire:
        wire.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in wire.frame(produce(batch(b"slowly"), topic), 9):
            wire.socket.sendall(bytes([byte]))
        assert produced(wire.receive()).error_code == 0


@pytest.mark.parametrize("seed", range(6))
def test_cut_and_joined_anywhere(broker: LocalBroker, topic: str, seed: int) -> None:
    """Frames from bytes to megabytes, sent in pieces that know nothing of them."""
    rng = Random(seed)
    with Wire(broker.port) as wire:
        sizes = [rng.choice([1, 50, 5_000, 70_000, 300_000, 900_000]) for _ in range(25)]
        stream = b"".join(
            wire.frame(produce(batch(rng.randbytes(size)), topic), 9) for size in sizes
        )
        position, answers = 0, 0
        while position < len(stream):
            piece = rng.choice([1, 3, 100, 4_000, 66_000, 400_000, 2_000_000])
            wire.socket.sendall(stream[position : position + piece])
            position += piece
            if answers < 10 and rng.random() < 0.02:
                assert produced(wire.receive()).base_offset == answers
                answers += 1
        for base in range(answers, 25):
            assert produced(wire.receive()).base_offset == base
        found: list[int] = []
        while len(found) < 25:
            request = fetch((topic, 0, len(found)), partition_max_bytes=MEGABYTE)
            found += [len(value or b"") for value in values(wire.ask(request, 11))]
        assert found == sizes


@pytest.mark.parametrize("size", [-1, -(2**31), 100 * MEGABYTE + 1, 2**31 - 1])
def test_a_size_that_is_not_allowed_closes_the_connection(broker: LocalBroker, size: int) -> None:
    with Wire(broker.port) as wire:
        wire.send((versions(), 3))
        wire.receive()
        wire.socket.sendall(struct.pack(">i", size) + b"xx")
        assert wire.is_closed()
    assert works(broker.port)


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\0\x01\0\x01\xfc"])
def test_other_protocols_are_turned_away(broker: LocalBroker, data: bytes) -> None:
    with Wire(broker.port) as wire:
        wire.socket.sendall(data)
        assert wire.is_closed()
    assert works(broker.port)


def test_an_empty_frame_closes_its_connection(broker: LocalBroker) -> None:
    with Wire(broker.port) as wire:
        wire.socket.sendall(bytes(4))
        assert wire.is_closed()


@pytest.mark.parametrize("sent", [0, 3, 100])
def test_a_client_that_goes_in_the_middle_of_a_frame(broker: LocalBroker, sent: int) -> None:
    for abrupt in (False, True):
        wire = Wire(broker.port)
        wire.socket.sendall(struct.pack(">i", 70_000 if sent == 100 else 50) + bytes(sent))
        if abrupt:
            wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        wire.close()
    assert works(broker.port)


def test_a_half_closed_socket_gets_the_answers_that_are_ready(
    broker: LocalBroker, topic: str
) -> None:
    with Wire(broker.port) as wire:
        wire.send((produce(batch(b"a"), topic), 9))
        assert produced(wire.receive()).error_code == 0
        wire.socket.shutdown(socket.SHUT_WR)
        assert wire.is_closed()
    assert works(broker.port)


def test_nothing_is_left_of_clients_that_waited_and_went(broker: LocalBroker, topic: str) -> None:
    wires = [Wire(broker.port) for _ in range(30)]
    for wire in wires:
        wire.send(*[(fetch((topic, 0, 0), max_wait_ms=600_000), 11)] * 5)
    purgatory = broker.broker.node.purgatory
    _until(lambda: broker.call(lambda: len(purgatory)) == 150)
    for wire in wires:
        wire.close()
    _until(lambda: broker.call(lambda: len(purgatory)) == 0)
    assert works(broker.port)


def test_requests_behind_a_full_queue_are_answered_as_soon_as_there_is_room(
    broker: LocalBroker, topic: str
) -> None:
    with Wire(broker.port) as wire:
        maximum = broker.broker.node.settings.in_flight_max
        for _ in range(3):
            waiting = [(fetch((topic, 0, 0), max_wait_ms=200), 11)] * maximum
            wire.send(*waiting, (versions(), 3), (list_offsets(-1, topic), 7))
            for _ in range(maximum):
                assert values(wire.receive()) == []
            # Nothing more comes on this socket: what is not answered now never is.
            assert wire.receive().error_code == 0
            assert wire.receive().topics[0].partitions[0].error_code == 0


def test_a_bug_in_a_handler_costs_one_connection(
    broker: LocalBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = broker.broker.node

    def bug(*args: object) -> None:
        raise RuntimeError("a bug of ours")

    with Wire(broker.port) as healthy, Wire(broker.port) as unlucky:
        assert healthy.ask(versions(), 3).error_code == 0
        monkeypatch.setattr(type(node.replicas), "hosted", bug)
        unlucky.send((list_offsets(-1, topic), 7))
        assert unlucky.is_closed()
        monkeypatch.undo()
        assert healthy.ask(list_offsets(-1, topic), 7).topics[0].partitions[0].error_code == 0
    assert works(broker.port)


@pytest.mark.parametrize("method", ["finish_turn", "metadata_changed", "metadata_written"])
def test_a_bug_in_a_turn_is_survived(tmp_path: Path, method: str) -> None:
    with LocalBroker(tmp_path / "data") as broker, Wire(broker.port) as unlucky:
        node = broker.broker.node
        original = getattr(node, method)
        failures: list[str] = []

        def bug(*args: object) -> object:
            if not failures:
                failures.append(method)
                raise RuntimeError("a bug of ours")
            return original(*args)

        broker.call(lambda: setattr(node, method, bug))
        topic = CreatableTopic(name="new", num_partitions=1, replication_factor=1)
        unlucky.send((CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5))
        _until(lambda: bool(failures))
        assert works(broker.port)
        with Wire(broker.port) as wire:
            wire.create_topic("another")
            assert produced(wire.ask(produce(batch(b"a"), "another"), 9)).error_code == 0


# -- memory ----------------------------------------------------------------------------------


@pytest.fixture
def process(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data") as process:
        yield process


def test_announced_bytes_are_not_allocated(process: BrokerProcess) -> None:
    assert works(process.port)
    before = process.resident_bytes()
    wires = [Wire(process.port) for _ in range(100)]
    for wire in wires:
        wire.socket.sendall(struct.pack(">i", ANNOUNCED) + b"\0" * 1000)
    assert works(process.port)
    assert process.resident_bytes() - before < 30 * MEGABYTE
    for wire in wires:
        wire.close()
    assert works(process.port)


def test_a_slow_reader_costs_little_and_hinders_no_other_client(
    process: BrokerProcess,
) -> None:
    with Wire(process.port) as writer:
        writer.create_topic("big", 4)
        data = Random(1).randbytes(900_000)
        for i in range(40):
            assert produced(writer.ask(produce(batch(data), "big", i % 4), 9)).error_code == 0
        before = process.resident_bytes()
        files = process.open_files()
        lazy = [Wire(process.port, receive_buffer=65_536) for _ in range(10)]
        for wire in lazy:
            wanted = [("big", i, 0) for i in range(4)]
            wire.send(*[(fetch(*wanted, partition_max_bytes=20 * MEGABYTE), 11)] * 6)
            wire.send(*[(MetadataRequest(topics=None), 9)] * 200)
        # They never read, so a caller that had to wait for them would wait for ever.
        for _ in range(50):
            assert produced(writer.ask(produce(batch(b"x"), "big"), 9)).error_code == 0
        assert process.resident_bytes() - before < 60 * MEGABYTE
        assert process.open_files() - files <= len(lazy) + 10
        # Who reads late still gets everything, in order.
        late = lazy[0]
        for _ in range(6):
            assert len(values(late.receive())) >= 40
        for _ in range(200):
            assert late.receive().topics
        for wire in lazy:
            wire.close()


def _until(condition: object) -> None:
    assert callable(condition)
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
