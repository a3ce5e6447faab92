"""Clusters with security: clients of all kinds come in, others do not, and no secret is shown."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import socket
import ssl
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

import strandline
from strandline.client.cluster import ClusterClient
from strandline.client.inspection import inspect_each
from strandline.client.security.names import security_of
from strandline.client.settings import ClientSettings
from strandline.errors import AuthenticationFailed
from strandline.protocol.apis import KNOWN, ApiKey
from strandline.protocol.framing import request_frame
from strandline.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from strandline.protocol.messages.sasl_handshake import SaslHandshakeRequest
from strandline.testing import Cluster
from tests.node.world import joined

PATIENCE_S = 60.0
SECRET = "planted-secret-of-alice"
SOURCES = Path(__file__).parents[2] / "src"


@pytest.fixture(scope="module")
def scram_cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, security="SASL_SSL", users={"alice": SECRET, "bob": "b"}) as cluster:
        cluster.create_topic("orders", partitions=2, min_insync_replicas=2)
        yield cluster


def principals(cluster: Cluster, listener: str) -> set[str]:
    """Who is connected at the moment, brokers included."""

    async def now() -> set[str]:
        return {
            str(transport.connection.principal)
            for broker in cluster.control._local.brokers.values()
            for transport in broker._server._transports.values()
            if transport.connection.listener == listener
        }

    return cluster.run(now())


def round_trip(cluster: Cluster, value: bytes, user: str | None = None) -> None:
    """A record by librdkafka, through followers on secured links, and back by our own client."""
    settings = cluster.client_config(user)
    producer = confluent_kafka.Producer({**settings, "acks": "all"})
    producer.produce("orders", value, partition=0)
    assert producer.flush(PATIENCE_S) == 0
    own = {**settings, "group.id": f"g-{value.decode()}", "auto.offset.reset": "earliest"}
    with strandline.Consumer(own) as consumer:
        consumer.subscribe(["orders"])
        found: set[bytes] = set()
        while value not in found:
            found |= {record.value for record in consumer.poll(1000) if record.value}


@pytest.mark.skipif(shutil.which("kcat") is None, reason="there is no kcat on the path")
def test_kcat_of_a_distribution_gets_in(scram_cluster: Cluster) -> None:
    """Its librdkafka is older than 2.6.1, and writes its nonce twice."""
    config = scram_cluster.client_config("alice")
    words = [word for name, value in config.items() for word in ("-X", f"{name}={value}")]
    said = subprocess.run(["kcat", *words, "-L"], capture_output=True, text=True, check=True)
    assert 'topic "orders" with 2 partitions' in said.stdout


@pytest.mark.parametrize(
    ("security", "mechanism"),
    [("SSL", "SCRAM-SHA-512"), ("SASL_PLAINTEXT", "PLAIN"), ("SASL_SSL", "SCRAM-SHA-256")],
)
def test_brokers_and_clients_speak_by_each_protocol(security: str, mechanism: str) -> None:
    with Cluster(brokers=3, security=security, sasl_mechanism=mechanism) as cluster:  # type: ignore[arg-type]
        cluster.create_topic("orders", min_insync_replicas=3)
        round_trip(cluster, b"one")
        cluster.wait_until_in_sync("orders")
        assert principals(cluster, security) >= {"User:broker"}


@pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")
def test_other_clients_come_in(scram_cluster: Cluster) -> None:
    round_trip(scram_cluster, b"librdkafka", "alice")
    kafka_python(scram_cluster.client_config("bob"))
    asyncio.run(aiokafka(scram_cluster.client_config("bob")))


def kafka_python(settings: dict[str, str]) -> None:
    import kafka

    producer = kafka.KafkaProducer(
        bootstrap_servers=settings["bootstrap.servers"],
        security_protocol=settings["security.protocol"],
        ssl_cafile=settings["ssl.ca.location"],
        sasl_mechanism=settings["sasl.mechanism"],
        sasl_plain_username=settings["sasl.username"],
        sasl_plain_password=settings["sasl.password"],
    )
    assert producer.send("orders", b"kafka-python", partition=1).get(PATIENCE_S).offset == 0
    producer.close()


async def aiokafka(settings: dict[str, str]) -> None:
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(
        bootstrap_servers=settings["bootstrap.servers"],
        security_protocol=settings["security.protocol"],
        ssl_context=ssl.create_default_context(cafile=settings["ssl.ca.location"]),
        sasl_mechanism=settings["sasl.mechanism"],
        sasl_plain_username=settings["sasl.username"],
        sasl_plain_password=settings["sasl.password"],
    )
    async with asyncio.timeout(PATIENCE_S), producer:
        assert (await producer.send_and_wait("orders", b"aiokafka", partition=1)).partition == 1


def test_commands_come_in_with_a_client_config(scram_cluster: Cluster, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text("".join(f"{k}={v}\n" for k, v in scram_cluster.client_config().items()))
    command = [sys.executable, "-m", "strandline.cli", "--client-config", str(config)]
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    listed = subprocess.run(
        [*command, "topics", "list"], env=environment, capture_output=True, text=True, check=False
    )
    assert listed.returncode == 0, listed.stderr
    assert "orders" in listed.stdout
    status = subprocess.run(
        [*command, "status", "--json"], env=environment, capture_output=True, text=True, check=False
    )
    assert json.loads(status.stdout)
    assert SECRET not in listed.stdout + listed.stderr + status.stdout + status.stderr


def test_who_is_not_known_does_not_come_in(scram_cluster: Cluster) -> None:
    wrong = {**scram_cluster.client_config("alice"), "sasl.password": "wrong"}
    with (
        pytest.raises(AuthenticationFailed, match="invalid credentials"),
        strandline.Admin(wrong) as admin,
    ):
        admin.list_topics()
    plain: dict[str, str | int | float | bool] = {
        "bootstrap.servers": wrong["bootstrap.servers"],
        "socket.timeout.ms": 1000,
    }
    with pytest.raises(confluent_kafka.KafkaException):
        AdminClient(plain).list_topics(timeout=2)


def test_a_session_is_renewed_on_links_and_by_clients() -> None:
    """Sessions of a second: links between brokers authenticate again, and replication goes on."""
    settings = {"connections.max.reauth.ms": 1000}
    with Cluster(brokers=2, security="SASL_PLAINTEXT", settings=settings) as cluster:
        cluster.create_topic("orders", replication_factor=2, min_insync_replicas=2)

        async def attempts() -> int:
            return sum(
                sum(broker.node.authentication.attempts.values())
                for broker in cluster.control._local.brokers.values()
            )

        with strandline.Producer(cluster.client_config()) as producer:
            before = cluster.run(attempts())
            number = 0
            while cluster.run(attempts()) < before + 8:
                producer.send("orders", str(number).encode())
                assert producer.flush().delivered == 1
                number += 1


# -- Clients that mean no good -------------------------------------------------------------------


def test_tokens_that_are_too_large_and_requests_that_come_too_early_end_a_connection(
    scram_cluster: Cluster,
) -> None:
    host, _, port = (
        scram_cluster.client_config()["bootstrap.servers"].partition(",")[0].rpartition(":")
    )
    context = ssl.create_default_context(cafile=scram_cluster.client_config()["ssl.ca.location"])

    def connect() -> ssl.SSLSocket:
        plain = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
        return context.wrap_socket(plain, server_hostname=host)

    shake = KNOWN[ApiKey.SASL_HANDSHAKE]
    mechanism = SaslHandshakeRequest(mechanism="SCRAM-SHA-512")
    first = joined(request_frame(shake, 1, 1, "hostile", mechanism))
    with connect() as wire:
        wire.sendall(first)
        assert wire.recv(1000)
        wire.sendall(struct.pack(">i", 600_000) + bytes(1000))
        assert wire.recv(1000) == b"", "announced more than sasl.server.max.receive.size"
    with connect() as wire:
        token = SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=" + b"r" * 500_000)
        big = joined(request_frame(KNOWN[ApiKey.SASL_AUTHENTICATE], 2, 2, "hostile", token))
        wire.sendall(first + big)
        assert wire.recv(1000)
        wire.recv(1000)
        assert wire.recv(1000) == b""
    with connect() as wire:
        wire.sendall(struct.pack(">ihhi", 100_000_000, 0, 9, 1))
        assert wire.recv(1000) == b"", "not the limit of those that are through"


def test_no_secret_is_in_a_log_a_status_or_the_settings_that_are_told(
    scram_cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    security = scram_cluster.control.security
    planted = {SECRET, *security._passwords.values()} - {"b"}
    with (
        pytest.raises(AuthenticationFailed),
        strandline.Admin(
            {**scram_cluster.client_config("alice"), "sasl.username": SECRET}
        ) as admin,
    ):
        admin.list_topics()
    round_trip(scram_cluster, b"logged", "alice")
    admin_client = AdminClient({**scram_cluster.client_config()})
    resource = confluent_kafka.admin.ConfigResource("broker", "1")
    (told,) = admin_client.describe_configs([resource]).values()
    entries = {name: entry.value for name, entry in told.result(PATIENCE_S).items()}
    jaas = "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config"
    assert entries.get(jaas) is None
    shown = caplog.text + repr(entries) + repr(scram_cluster) + repr(scram_cluster.control.options)
    shown += str(scram_cluster.status()) + repr(security.first_users)
    given = scram_cluster.client_config()
    del given["bootstrap.servers"]
    settings = ClientSettings(security=security_of(given))
    with ClusterClient(scram_cluster.bootstrap_servers, settings) as asking:
        documents = [inspect_each(asking, subject) for subject in ("status", "why", "picture")]
    assert "authentications" in str(documents)
    shown += str(documents)
    assert not [each for each in planted if each in shown]


def test_security_that_there_is_not_is_refused_by_name() -> None:
    with pytest.raises(strandline.StrandlineError, match="security is TLS"):
        Cluster(security="TLS").open()  # type: ignore[arg-type]
    with pytest.raises(strandline.StrandlineError, match="not GSSAPI"):
        Cluster(security="SASL_SSL", sasl_mechanism="GSSAPI").open()
