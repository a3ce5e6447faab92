"""Asking real brokers over a socket, and one that does not know the question."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from strandline.client.cluster import ClusterClient
from strandline.client.connection import Connection
from strandline.client.inspection import inspect, inspect_all, inspect_each
from strandline.client.settings import Address
from strandline.client.stream import PlainStream
from strandline.errors import ErrorCode, ProtocolError
from strandline.types import BrokerId
from tests.client.conftest import FAST, BrokerThread

ONE = BrokerId(1)


@pytest.fixture
def client(broker: BrokerThread) -> Iterator[ClusterClient]:
    with ClusterClient(broker.address, FAST) as client:
        yield client


def test_a_broker_tells_its_status(client: ClusterClient) -> None:
    assert inspect(client, ONE, "status", topics=[])["broker"] == ONE
    assert inspect_all(client, "status")[ONE]["version"] >= 1


def test_refusals_keep_the_brokers_sentence(client: ClusterClient) -> None:
    with pytest.raises(ProtocolError, match="There is no subject 'nonsense'") as refused:
        inspect_all(client, "nonsense")
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    found = inspect_each(client, "nonsense")[ONE]
    assert isinstance(found, ProtocolError)


def test_a_connection_that_ended_meanwhile_is_made_anew(client: ClusterClient) -> None:
    inspect(client, ONE, "status")
    connection = client.connection_to(ONE)
    assert isinstance(connection._stream, PlainStream)
    connection._stream._socket.shutdown(socket.SHUT_RDWR)
    assert inspect(client, ONE, "status")["broker"] == ONE


def test_a_broker_that_hangs_up_is_none_of_ours(
    client: ClusterClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.refresh()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = Address("127.0.0.1", listening.getsockname()[1])

        def hang_up() -> None:
            for _ in range(2):
                accepted, _ = listening.accept()
                accepted.recv(1000)
                accepted.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        monkeypatch.setattr(Connection, "_negotiate", lambda self, wait_ms: True)
        monkeypatch.setattr(
            ClusterClient, "connection_to", lambda self, _: Connection.open(address, FAST)
        )
        with pytest.raises(ProtocolError, match="no Strandline broker") as refused:
            inspect(client, ONE, "status")
        thread.join()
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
