"""Listeners that are opened and closed while the broker runs: real sockets, and their refusals."""

from __future__ import annotations

import logging
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from strandline.cluster.znodes import Endpoint
from strandline.errors import ErrorCode
from strandline.protocol.messages import incremental_alter_configs as configs
from strandline.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from strandline.protocol.messages.metadata import MetadataRequest
from strandline.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from strandline.protocol.messages.sasl_handshake import SaslHandshakeRequest
from strandline.types import BrokerId
from tests.broker.harness import PATIENCE_S, LocalBroker, Wire, works
from tests.certificates import Authority

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
OWN = "PLAINTEXT://127.0.0.1:0"
MAP = "listener.security.protocol.map"


@pytest.fixture(scope="module")
def keystore(authority: Authority) -> Path:
    return authority.issue("broker", "127.0.0.1").both()


def change(broker: LocalBroker, settings: Mapping[str, str | None]) -> tuple[int, str]:
    """What the broker says to these settings of its own; None takes one away."""
    altered = [
        configs.AlterableConfig(name=name, config_operation=int(value is None), value=value)
        for name, value in settings.items()
    ]
    resource = configs.AlterConfigsResource(resource_type=4, resource_name="1", configs=altered)
    with Wire(broker.port) as wire:
        request = configs.IncrementalAlterConfigsRequest(resources=[resource])
        (answer,) = wire.ask(request, 1).responses
        return answer.error_code, answer.error_message or ""


def endpoints(broker: LocalBroker) -> dict[str, Endpoint]:
    """What the cluster knows of the broker."""
    image = broker.call(lambda: broker.broker.node.metadata.image)
    return {each.listener: each for each in image.brokers[BrokerId(1)].endpoints}


def remembered(broker: LocalBroker) -> set[str]:
    """What the cluster knows of the broker even when it is down."""
    image = broker.call(lambda: broker.broker.node.metadata.image)
    return {each.listener for each in image.registrations[BrokerId(1)].endpoints}


def until(condition: Callable[[], bool]) -> None:
    patience = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < patience
        time.sleep(0.01)


def secured(keystore: Path) -> dict[str, str | None]:
    """A second listener and everything that it needs."""
    own = "listener.name.secure"
    return {
        "listeners": f"{OWN},SECURE://127.0.0.1:0",
        MAP: "PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL",
        f"{own}.ssl.keystore.location": str(keystore),
        f"{own}.sasl.enabled.mechanisms": "PLAIN",
        f"{own}.plain.sasl.jaas.config": f'{PLAIN} user_alice="env:PASSWORD_OF_ALICE";',
        f"{own}.max.connections": "2",
    }


class SecureWire(Wire):
    """A client that logs in over TLS."""

    def __init__(self, port: int, authority: Authority) -> None:
        super().__init__(port)
        context = ssl.create_default_context(cafile=str(authority.path))
        self.socket = context.wrap_socket(self.socket, server_hostname="127.0.0.1")
        assert self.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
        login = SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret-of-alice")
        assert self.ask(login, 2).error_code == 0

    def broker_port(self) -> int:
        return int(self.ask(MetadataRequest(topics=None), 9).brokers[0].port)


def test_a_listener_comes_with_its_settings_and_goes_with_its_clients(
    tmp_path: Path, authority: Authority, keystore: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASSWORD_OF_ALICE", "secret-of-alice")
    with LocalBroker(tmp_path / "data") as broker:
        before = endpoints(broker)
        assert change(broker, secured(keystore)) == (0, "")
        until(lambda: "SECURE" in endpoints(broker))
        port = endpoints(broker)["SECURE"].port
        with SecureWire(port, authority) as wire, Wire(broker.port) as plain:
            assert wire.broker_port() == port
            assert plain.ask(MetadataRequest(topics=None), 9).brokers[0].port == broker.port
    with LocalBroker(tmp_path / "data") as broker:
        until(lambda: "SECURE" in endpoints(broker))
        port = endpoints(broker)["SECURE"].port
        until(lambda: remembered(broker) == {*before, "SECURE"})
        with SecureWire(port, authority) as wire, Wire(broker.port) as plain:
            assert wire.broker_port() == port
            assert change(broker, {"listeners": OWN}) == (0, "")
            wire.socket.settimeout(PATIENCE_S)
            assert wire.socket.recv(1) == b"", "its clients have to go"
            assert plain.ask(MetadataRequest(topics=None), 9).brokers[0].port == broker.port
        until(lambda: "SECURE" not in endpoints(broker))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        # Once more, and away by taking the setting away.
        assert change(broker, {"listeners": f"{OWN},SECURE://127.0.0.1:0"}) == (0, "")
        until(lambda: "SECURE" in endpoints(broker))
        with SecureWire(endpoints(broker)["SECURE"].port, authority) as wire:
            assert wire.broker_port()
        assert change(broker, {"listeners": None, MAP: None}) == (0, "")
        until(lambda: "SECURE" not in endpoints(broker))


def test_a_listener_moves_to_another_port(tmp_path: Path) -> None:
    names = f"{MAP}=PLAINTEXT:PLAINTEXT,SECOND:PLAINTEXT"
    opened = f"listeners={OWN},SECOND://127.0.0.1:0"
    with LocalBroker(tmp_path, names, opened, "inter.broker.listener.name=PLAINTEXT") as broker:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with Wire(endpoints(broker)["SECOND"].port) as wire:
            assert change(broker, {"listeners": f"{OWN},SECOND://127.0.0.1:{port}"}) == (0, "")
            wire.socket.settimeout(PATIENCE_S)
            assert wire.socket.recv(1) == b""
        until(lambda: endpoints(broker)["SECOND"].port == port)
        with Wire(port) as wire:
            assert wire.ask(MetadataRequest(topics=None), 9).brokers[0].port == port


def test_a_port_that_a_listener_gives_up_may_be_another_ones(tmp_path: Path) -> None:
    """Of the same name at another address, and of another name."""
    names = f"{MAP}=PLAINTEXT:PLAINTEXT,SECOND:PLAINTEXT,THIRD:PLAINTEXT"
    opened = f"listeners={OWN},SECOND://127.0.0.1:0"
    with LocalBroker(tmp_path, names, opened, "inter.broker.listener.name=PLAINTEXT") as broker:
        port = endpoints(broker)["SECOND"].port
        assert change(broker, {"listeners": f"{OWN},SECOND://127.0.0.1:{port}"}) == (0, "")
        assert change(broker, {"listeners": f"{OWN},SECOND://localhost:{port}"}) == (0, "")
        until(lambda: endpoints(broker)["SECOND"].host == "localhost")
        with Wire(port) as wire:
            assert wire.ask(MetadataRequest(topics=None), 9).brokers[0].port == port
        assert change(broker, {"listeners": f"{OWN},THIRD://127.0.0.1:{port}"}) == (0, "")
        until(lambda: endpoints(broker).keys() == {"PLAINTEXT", "THIRD"})
        with Wire(port) as wire:
            assert wire.ask(MetadataRequest(topics=None), 9).brokers[0].port == port
        # Whether the address is there, and may be open, is looked at all the same.
        for host, told in (("203.0.113.1", "cannot be bound"), ("", "has no authentication")):
            code, sentence = change(broker, {"listeners": f"{OWN},THIRD://{host}:{port}"})
            assert (code, told in sentence) == (ErrorCode.INVALID_REQUEST, True)
        assert works(port)


def test_what_is_not_advertised_is_opened_all_the_same(tmp_path: Path) -> None:
    told = "advertised.listeners=PLAINTEXT://localhost:7"
    more = {"listeners": f"{OWN},HIDDEN://127.0.0.1:0", MAP: "PLAINTEXT:PLAINTEXT,HIDDEN:PLAINTEXT"}
    with LocalBroker(tmp_path, told) as broker:
        assert change(broker, more) == (0, "")
        listening = broker.broker._server._listening
        until(lambda: "HIDDEN" in listening._bound)
        with Wire(listening._bound["HIDDEN"].port) as wire:
            assert wire.ask(MetadataRequest(topics=None), 9).brokers == [], "as in Kafka"
        assert endpoints(broker).keys() == {"PLAINTEXT"}


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory, keystore: Path) -> Iterator[LocalBroker]:
    """A broker with a second listener that has TLS."""
    with LocalBroker(
        tmp_path_factory.mktemp("refusals"),
        f"listeners={OWN},SECOND://127.0.0.1:0",
        f"{MAP}=PLAINTEXT:PLAINTEXT,SECOND:SSL,THIRD:SASL_SSL,OPEN:PLAINTEXT",
        "inter.broker.listener.name=PLAINTEXT",
        f"listener.name.second.ssl.keystore.location={keystore}",
    ) as broker:
        yield broker


BOTH = f"{OWN},SECOND://127.0.0.1:0"
THIRD = f"{BOTH},THIRD://127.0.0.1:0"


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"listeners": "SECOND://127.0.0.1:0"}, "inter.broker.listener.name is PLAINTEXT"),
        ({"listeners": "PLAINTEXT://127.0.0.1:1"}, "by the listener PLAINTEXT, which must stay"),
        ({"advertised.listeners": OWN}, "configs dynamically: [advertised.listeners]"),
        ({MAP: "PLAINTEXT:PLAINTEXT,SECOND:PLAINTEXT"}, "updated for existing listener SECOND"),
        ({"listeners": f"{BOTH},FOURTH://127.0.0.1:0"}, "says no security protocol"),
        ({"listener.name.second.ssl.client.auth": "none"}, "cannot change at run time"),
        ({"listener.name.third.max.connections": "5"}, "no listener 'third'"),
        ({"listeners": THIRD}, "listener THIRD has no certificate"),
        (
            {"listeners": THIRD, "listener.name.third.ssl.keystore.location": "{keystore}"},
            "sasl.enabled.mechanisms is not set for the listener THIRD",
        ),
        (
            {
                "listeners": THIRD,
                "listener.name.third.ssl.keystore.location": "{keystore}",
                "listener.name.third.sasl.enabled.mechanisms": "OAUTHBEARER",
            },
            "cannot begin to take OAUTHBEARER",
        ),
        (
            {
                "listeners": THIRD,
                "listener.name.third.plain.sasl.jaas.config": f"{PLAIN} user_bob=bare;",
            },
            "would be a secret in the metadata",
        ),
        ({"listeners": f"{BOTH},OPEN://127.0.0.1:{{taken}}"}, "cannot be bound"),
        ({"listeners": f"{BOTH},OPEN://:0"}, "has no authentication"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    second: LocalBroker, keystore: Path, settings: dict[str, str], told: str
) -> None:
    before = endpoints(second)
    filled = {
        name: value.format(keystore=keystore, taken=second.port) for name, value in settings.items()
    }
    code, sentence = change(second, filled)
    assert code == ErrorCode.INVALID_REQUEST
    assert told in sentence
    assert endpoints(second) == before


def test_what_listeners_are_is_described_as_changeable(second: LocalBroker) -> None:
    resource = DescribeConfigsResource(
        resource_type=4,
        resource_name="1",
        configuration_keys=["listeners", "advertised.listeners", MAP],
    )
    with Wire(second.port) as wire:
        (result,) = wire.ask(DescribeConfigsRequest(resources=[resource]), 4).results
    described = {each.name: each.read_only for each in result.configs}
    assert described == {"listeners": False, MAP: False, "advertised.listeners": True}


def test_what_cannot_be_opened_at_a_start_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    more = {
        "listeners": f"{OWN},SECOND://127.0.0.1:{port}",
        MAP: "PLAINTEXT:PLAINTEXT,SECOND:PLAINTEXT",
    }
    with LocalBroker(tmp_path) as broker:
        assert change(broker, more) == (0, "")
        until(lambda: "SECOND" in endpoints(broker))
    caplog.set_level(logging.ERROR)
    with socket.create_server(("127.0.0.1", port)) as taken, LocalBroker(tmp_path) as broker:
        assert endpoints(broker).keys() == {"PLAINTEXT"}
        assert "cannot be bound" in caplog.text
        assert change(broker, {"log.retention.ms": "5000000"}) == (0, "")
        assert endpoints(broker).keys() == {"PLAINTEXT"}
        taken.close()
        assert change(broker, {"log.retention.ms": "6000000"}) == (0, "")
        until(lambda: "SECOND" in endpoints(broker))
