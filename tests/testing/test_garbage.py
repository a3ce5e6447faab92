"""Connections that end leave nothing that only the garbage collector would find: to find what a
flood of them has left holds the event loop, and every client with it."""

from __future__ import annotations

import gc
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from bench.raw_connection import RawConnection, frame_of
from bench.readiness import api_versions_request
from strandline.client.connection import Connection
from strandline.client.security.names import security_of
from strandline.client.settings import Address, ClientSettings
from strandline.errors import AuthenticationFailed
from strandline.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from strandline.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from strandline.records.builder import build_batch
from strandline.records.record import Record
from strandline.testing import Cluster

PATIENCE_S = 30.0
CONNECTIONS = 10


@contextmanager
def kept_garbage() -> Iterator[Counter[str]]:
    """What of ours only the collector finds, by class, is known when this is left."""
    found: Counter[str] = Counter()
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield found
        gc.collect()
        kinds = (type(each) for each in gc.garbage)
        found.update(
            f"{kind.__module__}.{kind.__qualname__}"
            for kind in kinds
            if kind.__module__.startswith(("strandline.node", "strandline.broker"))
        )
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        if was_enabled:
            gc.enable()


def connected(cluster: Cluster) -> int:
    (broker,) = cluster.control._local.brokers.values()
    return len(broker._server._transports)


def until_only(cluster: Cluster, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while connected(cluster) != count:
        assert time.monotonic() < deadline, "the broker does not notice that connections end"
        time.sleep(0.005)


def port_of(cluster: Cluster) -> int:
    return int(cluster.bootstrap_servers.rpartition(":")[2])


def malformed(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.sendall(struct.pack(">i", 20) + b"\xff" * 20)
        while sock.recv(4096):
            continue


def silent(port: int) -> None:
    socket.create_connection(("127.0.0.1", port)).close()


def asks(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.sendall(api_versions_request())
        assert sock.recv(4096)


def writes(port: int) -> None:
    """Twice: the second request takes the fast path."""
    connection = RawConnection(port)
    batch = build_batch([Record(timestamp=int(time.time() * 1000), value=b"x")])
    partition = PartitionProduceData(index=0, records=memoryview(batch))
    topic = TopicProduceData(name="orders", partition_data=[partition])
    for _ in range(3):
        request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])
        answer = connection.answer(request, 9)
        assert answer.responses[0].partition_responses[0].error_code == 0
    connection.close()


def reads(port: int) -> None:
    connection = RawConnection(port)
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = FetchTopic(topic="orders", partitions=[partition])
    for _ in range(3):
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=[topic])
        assert connection.answer(request, 11).responses[0].partitions[0].records
    connection.close()


def waits(port: int) -> None:
    """For records that do not come: the request ends with its connection."""
    partition = FetchPartition(partition=1, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = FetchTopic(topic="orders", partitions=[partition])
    request = FetchRequest(max_wait_ms=60_000, min_bytes=1, max_bytes=1 << 20, topics=[topic])
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.sendall(frame_of(request, 11) + api_versions_request())
        sock.settimeout(0.05)
        with pytest.raises(TimeoutError):
            sock.recv(1)


@pytest.fixture(scope="module")
def plain() -> Iterator[Cluster]:
    with Cluster(brokers=1) as cluster:
        cluster.create_topic("orders", partitions=2)
        writes(port_of(cluster))
        yield cluster


@pytest.mark.parametrize("client", [malformed, silent, asks, writes, reads, waits])
def test_connections_of_a_plain_listener_leave_no_garbage(
    plain: Cluster, client: Callable[[int], None]
) -> None:
    left(plain, client)


def left(cluster: Cluster, client: Callable[[int], None]) -> None:
    client(port_of(cluster))  # what is imported or made once is no garbage of a connection
    until_only(cluster, 0)
    with kept_garbage() as found:
        for _ in range(CONNECTIONS):
            client(port_of(cluster))
        until_only(cluster, 0)
    assert not found


def logs_in(port: int, password: str = "alice-secret") -> None:
    settings = security_of(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "alice",
            "sasl.password": password,
        }
    )
    Connection.open(Address("127.0.0.1", port), ClientSettings(security=settings)).close()


def fails(port: int) -> None:
    with pytest.raises(AuthenticationFailed):
        logs_in(port, "another")


@pytest.fixture(scope="module")
def secured() -> Iterator[Cluster]:
    with Cluster(brokers=1, security="SASL_PLAINTEXT", users={"alice": "alice-secret"}) as cluster:
        yield cluster


@pytest.mark.parametrize("client", [malformed, silent, logs_in, fails])
def test_connections_of_a_listener_with_sasl_leave_no_garbage(
    secured: Cluster, client: Callable[[int], None]
) -> None:
    left(secured, client)
