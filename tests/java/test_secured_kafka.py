"""Our clients at a real Kafka that demands TLS and SASL: every protocol and mechanism.

Kafka runs once for all tests of the file, with a listener for each security protocol. A session
lasts two seconds, so that clients have to authenticate again while they work (KIP-368).
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import strandline
from strandline.cli.main import cli
from strandline.client.delivery import Delivery
from strandline.errors import AuthenticationFailed, ErrorCode, InvalidSetting, ProtocolError
from strandline.lakehouse.reading.catalogue import Catalogue
from strandline.lakehouse.reading.ranges import OffsetRange, RangeReader
from strandline.lakehouse.source.options import parse_options
from strandline.types import TopicPartition
from tests.certificates import Authority
from tests.java.kafka_broker import Kafka, free_ports
from tests.java.processes import ToolServer, Workshop

SESSION_MS = 2000
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required "
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


@dataclass
class Secured:
    """Where Kafka listens, by security protocol, and what its clients need."""

    authority: Authority
    addresses: dict[str, str]
    directory: Path

    def settings(self, protocol: str, **more: Any) -> dict[str, Any]:
        """Settings of a client; underscores stand for dots."""
        named = {name.replace("_", "."): value for name, value in more.items()}
        if protocol.endswith("SSL"):
            named.setdefault("ssl.truststore.location", str(self.authority.path))
        return {
            "bootstrap.servers": self.addresses[protocol],
            "security.protocol": protocol,
            "default.api.timeout.ms": 30_000,
            **named,
        }


@pytest.fixture(scope="module")
def secured(workshop: Workshop, tools: ToolServer) -> Secured:
    directory = workshop.directory / "secured"
    directory.mkdir()
    authority = Authority(directory)
    server = authority.issue("server", "localhost", "127.0.0.1")
    kafka = Kafka(
        workshop,
        tools,
        workshop.directory / "kafka",
        *("--add-scram", "SCRAM-SHA-256=[name=alice,password=alice-secret]"),
        *("--add-scram", "SCRAM-SHA-512=[name=bob,password=pässword]"),
    )
    protocols = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
    ports = dict(zip(protocols, free_ports(3), strict=True))
    listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
    base = f"PLAINTEXT://{kafka.address}"
    jaas = {
        "plain": f'{PLAIN}user_carol="carol-secret";',
        "scram-sha-256": f"{SCRAM};",
        "scram-sha-512": f"{SCRAM};",
        "oauthbearer": f'{OAUTH} unsecuredLoginStringClaim_sub="server";',
    }
    kafka.start(
        f"listeners={base},CONTROLLER://{kafka.controller_address},{listeners}",
        f"advertised.listeners={base},{listeners}",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL,"
        "SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
        "inter.broker.listener.name=PLAINTEXT",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={server.both()}",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={authority.path}",
        "listener.name.ssl.ssl.client.auth=required",
        "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        f"connections.max.reauth.ms={SESSION_MS}",
        *(
            f"listener.name.{listener}.{mechanism}.sasl.jaas.config={line}"
            for listener in ("sasl_plaintext", "sasl_ssl")
            for mechanism, line in jaas.items()
        ),
    )
    return Secured(
        authority, {name: f"127.0.0.1:{port}" for name, port in ports.items()}, directory
    )


def token(name: str, lifetime_s: int = 3600) -> str:
    """An unsigned token, as Kafka's default callbacks take them."""

    def part(value: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    now = int(time.time())
    return f"{part({'alg': 'none'})}.{part({'sub': name, 'iat': now, 'exp': now + lifetime_s})}."


def used(settings: dict[str, Any], topic: str) -> None:
    """Write and read for longer than a session lasts, through all public clients that block."""
    with strandline.Admin(settings) as admin:
        admin.create_topic(topic, partitions=1)
    until = time.monotonic() + 1.5 * SESSION_MS / 1000
    sent = 0
    with strandline.Producer(settings) as producer:
        while time.monotonic() < until or sent < 3:
            producer.send(topic, b"%d" % sent)
            assert not producer.flush().failed
            sent += 1
            time.sleep(0.05)  # so that the loop has no ten thousand rounds
    with strandline.Consumer(settings | {"auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        values: list[bytes | None] = []
        while len(values) < sent:
            values += [record.value for record in consumer.poll(30_000)]
    assert values == [b"%d" % number for number in range(sent)]


CREDENTIALS: dict[str, dict[str, Any]] = {
    "PLAIN": {"sasl_username": "carol", "sasl_password": "carol-secret"},
    "SCRAM-SHA-256": {"sasl_jaas_config": f'{SCRAM} username="alice" password="alice-secret";'},
    "SCRAM-SHA-512": {"sasl_username": "bob", "sasl_password": "pässword"},
}


@pytest.mark.parametrize("mechanism", CREDENTIALS)
def test_a_name_and_a_password(secured: Secured, mechanism: str) -> None:
    given = CREDENTIALS[mechanism]
    used(secured.settings("SASL_SSL", sasl_mechanism=mechanism, **given), mechanism.lower())


def test_a_token_of_a_file(secured: Secured) -> None:
    file = secured.directory / "token"
    file.write_text(token("dora") + "\n")
    given = {"sasl_mechanism": "OAUTHBEARER", "sasl_oauthbearer_token": f"file:{file}"}
    used(secured.settings("SASL_PLAINTEXT", **given), "token")


def test_a_certificate_of_the_client(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    own = secured.authority.issue("eve")
    monkeypatch.setenv("KEY_PASSWORD", "of the key")
    used(
        secured.settings(
            "SSL",
            ssl_certificate_location=str(own.chain()),
            ssl_key_location=str(own.key("of the key")),
            ssl_key_password="env:KEY_PASSWORD",
        ),
        "certificate",
    )
    packed = secured.settings(
        "SSL",
        ssl_keystore_location=str(own.pkcs12("of the file")),
        ssl_keystore_type="PKCS12",
        ssl_keystore_password="of the file",
    )
    with strandline.Admin(packed) as admin:
        assert "certificate" in [topic.name for topic in admin.list_topics()]


def test_the_clients_of_an_event_loop(secured: Secured) -> None:
    settings = secured.settings(
        "SASL_SSL",
        sasl_mechanism="SCRAM-SHA-256",
        sasl_username="alice",
        sasl_password="alice-secret",
    )

    async def use() -> list[bytes | None]:
        async with strandline.AsyncAdmin(settings) as admin:
            await admin.create_topic("loop", partitions=1)
        async with strandline.AsyncProducer(settings) as producer:
            deliveries: list[Delivery] = []
            until = time.monotonic() + 1.5 * SESSION_MS / 1000
            while time.monotonic() < until:
                deliveries.append(await producer.send("loop", b"%d" % len(deliveries)))
                await asyncio.sleep(0.02)  # so that the loop has no ten thousand rounds
            await producer.flush()
        values: list[bytes | None] = []
        async with strandline.AsyncConsumer(
            settings | {"auto.offset.reset": "earliest"}
        ) as consumer:
            await consumer.assign([TopicPartition("loop", 0)])
            while len(values) < len(deliveries):
                values += [record.value for record in await consumer.poll(30_000)]
        assert values == [b"%d" % number for number in range(len(deliveries))]
        return values

    assert len(asyncio.run(use())) > 10


REFUSED: dict[str, tuple[str, dict[str, Any]]] = {
    "refused PLAIN": (
        "SASL_SSL",
        {"sasl_mechanism": "PLAIN", "sasl_username": "carol", "sasl_password": "my secret"},
    ),
    "refused SCRAM": (
        "SASL_SSL",
        {"sasl_mechanism": "SCRAM-SHA-256", "sasl_username": "al", "sasl_password": "my secret"},
    ),
    "refused OAUTHBEARER: invalid_token": (
        "SASL_SSL",
        {"sasl_mechanism": "OAUTHBEARER", "sasl_oauthbearer_token": token("late", -60)},
    ),
    "client certificate": ("SSL", {}),
}


@pytest.mark.parametrize("said", REFUSED)
def test_who_is_refused_is_told_at_once(secured: Secured, said: str) -> None:
    protocol, given = REFUSED[said]
    with (
        strandline.Admin(secured.settings(protocol, **given)) as admin,
        pytest.raises(AuthenticationFailed, match=said) as failed,
    ):
        admin.list_topics()
    assert "my secret" not in str(failed.value)


def test_a_broker_that_proves_nothing_is_told_nothing(secured: Secured, tmp_path: Path) -> None:
    """Another authority, and a name that the certificate is not for."""
    settings = secured.settings("SASL_SSL", sasl_mechanism="PLAIN", **CREDENTIALS["PLAIN"])
    other = settings | {"ssl.truststore.location": str(Authority(tmp_path).path)}
    with (
        strandline.Admin(other) as admin,
        pytest.raises(AuthenticationFailed, match=r"ssl\.truststore\.location"),
    ):
        admin.list_topics()
    without = {name: value for name, value in settings.items() if "truststore" not in name}
    with strandline.Admin(without) as admin, pytest.raises(AuthenticationFailed):
        admin.list_topics()


def test_the_wrong_protocol_is_a_sentence(secured: Secured) -> None:
    encrypted = {"bootstrap.servers": secured.addresses["SASL_SSL"], "default.api.timeout.ms": 500}
    with (
        strandline.Admin(encrypted) as admin,
        pytest.raises(AuthenticationFailed, match="SASL_SSL"),
    ):
        admin.list_topics()
    plain = secured.settings("SASL_SSL", sasl_mechanism="PLAIN", **CREDENTIALS["PLAIN"])
    plain["bootstrap.servers"] = secured.addresses["SASL_PLAINTEXT"]
    with (
        strandline.Admin(plain) as admin,
        pytest.raises(ProtocolError, match=r"security\.protocol|speak TLS"),
    ):
        admin.list_topics()
    no_sasl = secured.settings("SASL_PLAINTEXT")
    no_sasl["security.protocol"] = "PLAINTEXT"
    with strandline.Admin(no_sasl | {"default.api.timeout.ms": 500}) as admin:
        with pytest.raises(ProtocolError) as failed:
            admin.list_topics()
        assert failed.value.code is not ErrorCode.NONE


def test_commands_take_a_file(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    """`bootstrap.servers` of the file counts unless there is a `-b`; errors show no secret."""
    file = secured.directory / "client.properties"
    settings = secured.settings("SASL_SSL", sasl_mechanism="SCRAM-SHA-512")
    settings |= {"sasl.username": "bob", "sasl.password": "env:PASSWORD_OF_BOB", "acks": "all"}
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    monkeypatch.setenv("PASSWORD_OF_BOB", "pässword")
    runner = CliRunner()
    created = runner.invoke(
        cli, ["topics", "create", "typed", "--client-config", str(file)], catch_exceptions=False
    )
    assert created.exit_code == 0, created.output
    listed = runner.invoke(
        cli, ["--client-config", str(file), "topics", "list"], catch_exceptions=False
    )
    assert "typed" in listed.output
    file.write_text(file.read_text() + "sasl.mechanism=NONE\nsasl.password=my secret\n")
    refused = runner.invoke(cli, ["topics", "list", "--client-config", str(file)])
    assert refused.exit_code == 2
    assert "sasl.mechanism takes PLAIN" in refused.output
    assert "my secret" not in refused.output


def test_sparks_source_reads_with_its_options(secured: Secured) -> None:
    """What its planner and its tasks do, without Spark."""
    given = {"sasl_mechanism": "SCRAM-SHA-256", "sasl_username": "alice"}
    settings = secured.settings("SASL_SSL", **given, sasl_password="alice-secret")
    with strandline.Producer(settings) as producer:
        for number in range(10):
            producer.send("tabled", b'{"n": %d}' % number)
    options = parse_options(
        {
            "subscribe": "tabled",
            **{f"kafka.{name}": str(value) for name, value in settings.items()},
        },
        is_stream=False,
    )
    with Catalogue(options.reading) as catalogue, RangeReader(options.reading) as reader:
        partition = TopicPartition("tabled", 0)
        end = catalogue.latest([partition])[partition].offset
        planned = OffsetRange(topic="tabled", partition=0, start=0, end=end)
        rows = [
            value for batch in reader.read(planned) for value in batch.column("value").to_pylist()
        ]
    assert rows == [b'{"n": %d}' % number for number in range(10)]
    assert "alice-secret" not in repr(options)


def test_an_unknown_mechanism_names_those_that_are_served(secured: Secured) -> None:
    with pytest.raises(InvalidSetting, match="GSSAPI"):
        strandline.Admin(secured.settings("SASL_SSL", sasl_mechanism="GSSAPI"))
