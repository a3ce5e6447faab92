"""Where a broker listens: names, every interface, and the same port by IPv4 and IPv6."""

from __future__ import annotations

import asyncio
import errno
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from strandline.broker import addresses
from strandline.broker.addresses import advertised_endpoints, bind, bound_socket, plain_peer
from strandline.broker.reserved_ports import ReservedPort
from strandline.config.load import load_broker_config
from strandline.config.loopback import IPV4, IPV6, loopback
from strandline.errors import InvalidSetting
from strandline.protocol.messages.metadata import MetadataRequest
from tests.broker.harness import LocalBroker, Wire, works


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind((IPV6, 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="no interface has ::1")


class Machine:
    """Stands in for the module `socket`: a machine that lacks addresses, and has other names.

    The module itself stays as it is: clusters that tests share use it in threads of their own.
    """

    def __init__(self) -> None:
        self.lacking: set[str] = set()
        self.name = socket.gethostname()
        self.resolved: list[Any] | None = None
        machine = self

        class Socket(socket.socket):
            def bind(self, address: Any) -> None:
                if address[0] in machine.lacking:
                    raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")
                super().bind(address)

        self.socket = Socket

    def gethostname(self) -> str:
        return self.name

    def getaddrinfo(self, *words: Any, **options: Any) -> list[Any]:
        if self.resolved is not None:
            return list(self.resolved)
        return socket.getaddrinfo(*words, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(socket, name)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    for module in (addresses, sys.modules[loopback.__module__]):
        monkeypatch.setattr(module, "socket", made)
    return made


@needs_ipv6
def test_every_interface_is_of_both_families(tmp_path: Path) -> None:
    with LocalBroker(
        tmp_path,
        "listeners=PLAINTEXT://:0",
        "advertised.listeners=PLAINTEXT://localhost:0",
        "max.connections.per.ip.overrides=127.0.0.1:1",
        "strandline.allow.insecure.listeners=true",
    ) as broker:
        with socket.create_connection((IPV6, broker.port)):
            pass
        with Wire(broker.port) as first, Wire(broker.port) as second:
            assert second.is_closed(), "an IPv4 peer is known by its IPv4 address"
            assert first.ask(MetadataRequest(topics=None), 9).brokers


def test_without_ipv6_every_interface_is_of_ipv4(machine: Machine, tmp_path: Path) -> None:
    machine.lacking = {"::"}
    with LocalBroker(
        tmp_path,
        "listeners=PLAINTEXT://:0",
        "advertised.listeners=PLAINTEXT://localhost:0",
        "strandline.allow.insecure.listeners=true",
    ) as broker:
        assert works(broker.port)


@needs_ipv6
def test_a_name_is_bound_at_its_first_address_that_is_here(machine: Machine) -> None:
    machine.resolved = [
        (socket.AF_INET6, socket.SOCK_STREAM, 6, "", (IPV6, 0, 0, 0)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", (IPV4, 0)),
    ]
    with bound_socket("both.test", 0) as sock:
        assert sock.getsockname()[0] == IPV4
    machine.lacking = {IPV4}
    with bound_socket("both.test", 0) as sock:
        assert sock.getsockname()[0] == IPV6
    machine.lacking = {IPV4, IPV6}
    with pytest.raises(OSError, match="Cannot assign"):
        bound_socket("both.test", 0)


def test_a_port_that_is_taken_is_not_looked_for_elsewhere() -> None:
    with bound_socket(IPV4, 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        config = load_broker_config(None, [f"listeners=PLAINTEXT://localhost:{port}"]).config
        with pytest.raises(InvalidSetting, match=r"listeners: .*localhost.*already in use"):
            bind(config.listeners[0], config)


@needs_ipv6
def test_loopback_is_ipv6_only_where_there_is_nothing_else(machine: Machine) -> None:
    assert loopback() == IPV4
    machine.lacking = {IPV4}
    assert loopback() == IPV6
    port = ReservedPort()
    assert port.address == f"[{IPV6}]:{port.number}"
    port.release()
    machine.lacking = {IPV4, IPV6}
    assert loopback() == IPV4


@pytest.mark.parametrize(
    ("address", "plain"),
    [
        (("::ffff:10.0.0.1", 9, 0, 0), ("10.0.0.1", 9)),
        (("::1", 9, 0, 0), ("::1", 9, 0, 0)),
        (("::ffff:0:1", 9, 0, 0), ("::ffff:0:1", 9, 0, 0)),
        (("10.0.0.1", 9), ("10.0.0.1", 9)),
    ],
)
def test_peers(address: tuple[object, ...], plain: tuple[object, ...]) -> None:
    assert plain_peer(address) == plain


def test_an_own_name_that_is_not_resolved(machine: Machine) -> None:
    machine.name = "no-such-machine.invalid"
    config = load_broker_config(None, ["listeners=PLAINTEXT://:0"]).config
    with pytest.raises(InvalidSetting, match=r"'no-such-machine\.invalid'.*advertised\.listeners"):
        asyncio.run(advertised_endpoints(config, config.listeners))
    given = load_broker_config(
        None, ["listeners=PLAINTEXT://:0", "advertised.listeners=PLAINTEXT://here.test:5"]
    ).config
    (endpoint,) = asyncio.run(advertised_endpoints(given, given.listeners))
    assert (endpoint.host, endpoint.port) == ("here.test", 5)
