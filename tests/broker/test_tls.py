"""Listeners with TLS: real handshakes, certificates of clients, and clients that mean no good."""

from __future__ import annotations

import logging
import re
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from strandline.broker import handshakes
from strandline.errors import ErrorCode, InvalidSetting
from strandline.node.authentication.der import validity
from strandline.protocol.messages import incremental_alter_configs as configs
from strandline.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from strandline.protocol.messages.metadata import MetadataRequest
from strandline.types import BrokerId
from tests.broker.harness import PATIENCE_S, LocalBroker, Wire
from tests.certificates import Authority, Certificate
from tests.node.messages import batch, produce

RULES = "RULE:^CN=([a-z]+),.*$/$1/U, DEFAULT"


def secured(certificate: Certificate, *more: str) -> tuple[str, ...]:
    """Settings of a broker with a listener for each protocol of TLS alone."""
    return (
        "listeners=PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        f"ssl.keystore.location={certificate.both()}",
        "ssl.keystore.type=PEM",
        *more,
    )


def port_of(broker: LocalBroker, name: str) -> int:
    return next(each.port for each in broker.report.addresses if each.name == name)


class TlsWire(Wire):
    """A client within TLS."""

    socket: ssl.SSLSocket

    def __init__(
        self, port: int, context: ssl.SSLContext, session: ssl.SSLSession | None = None
    ) -> None:
        super().__init__(port)
        self.socket = context.wrap_socket(self.socket, server_hostname="127.0.0.1", session=session)


def context_of(authority: Authority, own: Certificate | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.path))
    if own is not None:
        context.load_cert_chain(own.both())
    return context


def principals(broker: LocalBroker) -> set[str]:
    """Who is connected at the moment."""
    server: Any = broker.broker._server
    connections = broker.call(lambda: list(server._transports.values()))
    return {str(each.connection.principal) for each in connections}


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_requests_of_all_sizes_travel_within_tls(
    tmp_path: Path, authority: Authority, certificate: Certificate, version: ssl.TLSVersion
) -> None:
    """Many records of TLS in one read, a frame in many of them, and answers from files."""
    context = context_of(authority)
    context.minimum_version = context.maximum_version = version
    settings = secured(certificate, "message.max.bytes=4000000")
    with (
        LocalBroker(tmp_path, *settings) as broker,
        TlsWire(port_of(broker, "SSL"), context) as wire,
    ):
        wire.create_topic("orders")
        values = [
            bytes([65 + number]) * size for number, size in enumerate((10, 300_000, 3_000_000))
        ]
        for value in values:
            wire.send((produce(batch(value)), 9))
        assert all(
            wire.receive().responses[0].partition_responses[0].error_code == 0 for _ in values
        )
        # Small ones, all in one piece: they come in one read, and some stay in OpenSSL's buffer.
        small = [bytes([97 + number % 26]) * 2_000 for number in range(500)]
        wire.send(*((produce(batch(value)), 9) for value in small))
        for _ in small:
            wire.receive()
        fetched = wire.ask(
            FetchRequest(
                max_wait_ms=0,
                min_bytes=1,
                max_bytes=50_000_000,
                topics=[
                    FetchTopic(
                        topic="orders",
                        partitions=[
                            FetchPartition(
                                partition=0, fetch_offset=0, partition_max_bytes=50_000_000
                            )
                        ],
                    )
                ],
            ),
            11,
        )
        records = bytes(fetched.responses[0].partitions[0].records)
        assert all(value in records for value in (*values, *small))
        assert wire.socket.version() == version.name.replace("_", ".").replace("TLSv1.", "TLSv1.")


def test_each_client_is_told_the_addresses_of_its_own_listener(
    tmp_path: Path, authority: Authority, certificate: Certificate
) -> None:
    with LocalBroker(tmp_path, *secured(certificate)) as broker:
        plain, tls = port_of(broker, "PLAINTEXT"), port_of(broker, "SSL")
        with Wire(plain) as wire:
            assert wire.ask(MetadataRequest(topics=None), 9).brokers[0].port == plain
        with TlsWire(tls, context_of(authority)) as wire:
            assert wire.ask(MetadataRequest(topics=None), 9).brokers[0].port == tls
        registered = broker.call(
            lambda: broker.broker.node.metadata.image.brokers[BrokerId(1)].endpoints
        )
        assert [(each.listener, each.protocol, each.port) for each in registered] == [
            ("PLAINTEXT", "PLAINTEXT", plain),
            ("SSL", "SSL", tls),
        ]


def test_a_client_certificate_says_who_asks(
    tmp_path: Path, authority: Authority, certificate: Certificate
) -> None:
    settings = secured(
        certificate,
        "ssl.client.auth=required",
        f"ssl.truststore.location={authority.path}",
        f"ssl.principal.mapping.rules={RULES}",
    )
    alice = authority.issue("alice", "alice.example")
    with LocalBroker(tmp_path, *settings) as broker:
        port = port_of(broker, "SSL")
        with TlsWire(port, context_of(authority, alice)) as wire:
            assert wire.ask(MetadataRequest(topics=None), 9).brokers
            (principal,) = principals(broker)
        assert principal == "User:ALICE"
        with (
            pytest.raises(OSError, match=r"(?i)certificate required|EOF|reset"),
            TlsWire(port, context_of(authority)) as wire,
        ):
            wire.ask(MetadataRequest(topics=None), 9)


def test_without_a_client_certificate_everyone_is_anonymous(
    tmp_path: Path, authority: Authority, certificate: Certificate
) -> None:
    requested = ("ssl.client.auth=requested", f"ssl.truststore.location={authority.path}")
    with (
        LocalBroker(tmp_path, *secured(certificate, *requested)) as broker,
        TlsWire(port_of(broker, "SSL"), context_of(authority)) as wire,
    ):
        assert wire.ask(MetadataRequest(topics=None), 9).brokers
        assert principals(broker) == {"User:ANONYMOUS"}


@pytest.mark.parametrize(
    "given",
    [
        ("ssl.keystore.location={}",),
        ("ssl.keystore.certificate.chain=file:{}", "ssl.keystore.key=file:{}"),
    ],
    ids=["location", "reference"],
)
def test_a_changed_certificate_is_shown_without_a_restart(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch, given: tuple[str, ...]
) -> None:
    monkeypatch.setattr("strandline.broker.tls_listener._LOOK_AGAIN_S", 0.0)
    first, second = (authority.issue(f"reloaded{each}", "127.0.0.1") for each in (1, 2))
    path = tmp_path / "broker.pem"
    path.write_text(first.key_pem() + first.chain_pem)

    def shown(port: int) -> bytes:
        with TlsWire(port, context_of(authority)) as wire:
            assert isinstance(wire.socket, ssl.SSLSocket)
            return wire.socket.getpeercert(binary_form=True) or b""

    settings = [setting.format(path) for setting in given]
    with LocalBroker(tmp_path / "data", "listeners=SSL://127.0.0.1:0", *settings) as broker:
        port = broker.port
        assert shown(port) == ssl.PEM_cert_to_DER_cert(first.chain_pem)
        path.write_text("no certificate")
        assert shown(port) == ssl.PEM_cert_to_DER_cert(first.chain_pem), "the former one stays"
        path.write_text(second.key_pem() + second.chain_pem)
        assert shown(port) == ssl.PEM_cert_to_DER_cert(second.chain_pem)
        certificates = broker.broker.node.parts.certificates
        assert certificates is not None
        [told] = broker.call(certificates)
        assert (told.listener, "CN=reloaded2" in told.subject) == ("SSL", True)
        expires = x509.load_pem_x509_certificate(second.chain_pem.encode()).not_valid_after_utc
        assert told.expires_wall_ms == expires.timestamp() * 1000


def test_other_certificates_are_shown_when_a_setting_names_them(
    tmp_path: Path, authority: Authority, certificate: Certificate
) -> None:
    other = authority.issue("other", "127.0.0.1")
    name = "listener.name.ssl.ssl.keystore.location"

    def shown(broker: LocalBroker) -> bytes:
        with TlsWire(port_of(broker, "SSL"), context_of(authority)) as wire:
            assert isinstance(wire.socket, ssl.SSLSocket)
            return wire.socket.getpeercert(binary_form=True) or b""

    def change(broker: LocalBroker, value: str) -> tuple[int, str | None]:
        config = configs.AlterableConfig(name=name, config_operation=0, value=value)
        resource = configs.AlterConfigsResource(
            resource_type=4, resource_name="1", configs=[config]
        )
        with Wire(port_of(broker, "PLAINTEXT")) as wire:
            request = configs.IncrementalAlterConfigsRequest(resources=[resource])
            (answer,) = wire.ask(request, 1).responses
            return answer.error_code, answer.error_message

    first, second = (ssl.PEM_cert_to_DER_cert(each.chain_pem) for each in (certificate, other))
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("no certificate")
    with LocalBroker(tmp_path / "data", *secured(certificate)) as broker:
        assert shown(broker) == first
        code, sentence = change(broker, str(wrong))
        assert (code, name in (sentence or "")) == (ErrorCode.INVALID_REQUEST, True)
        code, sentence = change(broker, str(tmp_path / "missing.pem"))
        assert (code, "missing.pem" in (sentence or "")) == (ErrorCode.INVALID_REQUEST, True)
        assert shown(broker) == first
        assert change(broker, str(other.both())) == (0, None)
        assert shown(broker) == second
    with LocalBroker(tmp_path / "data", *secured(certificate)) as broker:
        assert shown(broker) == second, "it is kept"


def test_dates_of_certificates() -> None:
    """Of both forms: years with two digits are those until 2049."""
    for year in (1999, 2049, 2050, 2999):
        end = datetime(year, 12, 31, 23, 59, 58, tzinfo=UTC)
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "broker")])
        key = ec.generate_private_key(ec.SECP256R1())
        made = (
            x509.CertificateBuilder(name, name, key.public_key(), 1)
            .not_valid_before(datetime(1998, 1, 1, tzinfo=UTC))
            .not_valid_after(end)
            .sign(key, hashes.SHA256())
        )
        der = made.public_bytes(serialization.Encoding.DER)
        begin = datetime(1998, 1, 1, tzinfo=UTC)
        assert validity(der) == (begin.timestamp() * 1000, end.timestamp() * 1000)
        with pytest.raises(ValueError, match="cut off"):
            validity(der[:100])


@pytest.mark.parametrize(
    ("begins_in_days", "expires_in_days", "told"),
    [
        (-2, -1, "has expired: clients refuse it since 20"),
        (1, 90, "is not valid before 20"),
        (-2, 29, "expires 20"),
        (-2, 31, None),
    ],
)
def test_a_certificate_whose_time_is_not_now_is_a_notice_of_the_start(
    tmp_path: Path, begins_in_days: int, expires_in_days: int, told: str | None
) -> None:
    day, now = timedelta(days=1), datetime.now(UTC)
    own = Authority(tmp_path).issue(
        "broker",
        "127.0.0.1",
        not_before=now + begins_in_days * day,
        not_after=now + expires_in_days * day,
    )
    with LocalBroker(tmp_path / "data", *secured(own)) as broker:
        notices = [each for each in broker.report.notices if "certificate" in each]
    wanted = [] if told is None else [f"The certificate of the listener SSL ({own.both()}) {told}"]
    assert [each[: len(begin)] for each, begin in zip(notices, wanted, strict=True)] == wanted


# -- Clients that mean no good -------------------------------------------------------------------


@pytest.fixture
def guarded(tmp_path: Path, certificate: Certificate) -> Iterator[LocalBroker]:
    with LocalBroker(
        tmp_path, *secured(certificate, "strandline.authentication.timeout.ms=300")
    ) as broker:
        yield broker


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40),  # half of a ClientHello
        b"\x16\x03\x01\xff",  # half of a record's head
    ],
)
def test_a_handshake_that_stalls_is_given_up(guarded: LocalBroker, said: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port_of(guarded, "SSL"))) as stalled:
        stalled.settimeout(PATIENCE_S)
        stalled.sendall(said)
        assert stalled.recv(100) == b""


@pytest.mark.parametrize(
    "said", [b"GET / HTTP/1.1\r\n\r\n", struct.pack(">ihhi", 10, 18, 0, 1), b"\x00" * 70_000]
)
def test_what_is_no_tls_is_refused_at_once(
    guarded: LocalBroker, caplog: pytest.LogCaptureFixture, said: bytes
) -> None:
    caplog.set_level(logging.INFO)
    with socket.create_connection(("127.0.0.1", port_of(guarded, "SSL"))) as wrong:
        wrong.settimeout(PATIENCE_S)
        wrong.sendall(said)
        try:
            while wrong.recv(100):
                pass  # an alert
        except ConnectionResetError:
            pass
    assert "The TLS handshake with 127.0.0.1 on the listener SSL failed" in caplog.text


def test_who_says_nothing_makes_room_for_others(
    tmp_path: Path,
    authority: Authority,
    certificate: Certificate,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handshakes.Handshakes.__init__, "__defaults__", (8,))
    with LocalBroker(tmp_path, *secured(certificate)) as broker:
        port = port_of(broker, "SSL")
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
        with TlsWire(port, context_of(authority)) as wire:
            assert wire.ask(MetadataRequest(topics=None), 9).brokers
        server: Any = broker.broker._server
        assert broker.call(lambda: len(server._handshakes)) <= 8
        assert server._admission.failed >= 12
        assert broker.call(server._is_flood), "those who are served come first now"
        for each in silent:
            each.close()
        patience = time.monotonic() + PATIENCE_S
        while broker.call(lambda: server._limits._count) and time.monotonic() < patience:
            time.sleep(0.01)  # the broker has still to read that they are gone
        assert broker.call(lambda: server._limits._count) == 0


# -- Settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ((), "The listener SSL has no certificate: set ssl.keystore.location"),
        (("ssl.keystore.location=/nowhere.pem",), "the file /nowhere.pem cannot be read"),
        (("{own}", "ssl.enabled.protocols=TLSv1.1"), "it must have TLSv1.2 or TLSv1.3"),
        (("{own}", "ssl.client.auth=required"), "trusts no authority"),
        (("{own}", "ssl.principal.mapping.rules=RULE:^CN=(/x/"), "which is none"),
        (("{own}", "ssl.principal.mapping.rules=RULE:a"), "cannot be read at 'RULE:a'"),
        (("ssl.keystore.location={jks}",), "keytool -importkeystore"),
        (
            ("{own}", "listener.name.ssl.ssl.keystore.certificate.chain=x"),
            "exclude each other",
        ),
        (("{stranger}",), "stranger.pem): the private key is not that of the certificate."),
        (("{locked}",), "is encrypted, and its password (ssl.key.password) is missing."),
        (("{locked}", "ssl.key.password=x"), "its password (ssl.key.password) is wrong."),
        (("{cut}",), "cut.pem): the certificate or its private key cannot be read as PEM text"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(
    tmp_path: Path, certificate: Certificate, settings: tuple[str, ...], told: str
) -> None:
    java = tmp_path / "store.jks"
    java.write_bytes(b"\xfe\xed\xfe\xed")
    wrong = {
        "stranger": Authority(tmp_path).issue("other", "localhost").key_pem()
        + certificate.chain_pem,
        "locked": certificate.key_pem("secret") + certificate.chain_pem,
        "cut": certificate.key_pem() + certificate.chain_pem[:200],
    }
    for name, text in wrong.items():
        (tmp_path / f"{name}.pem").write_text(text)
    named = {name: f"ssl.keystore.location={tmp_path / name}.pem" for name in wrong}
    named["own"] = f"ssl.keystore.location={certificate.both()}"
    given = [each.format(**named, jks=java) if "{" in each else each for each in settings]
    with pytest.raises(InvalidSetting, match=re.escape(told)):
        LocalBroker(tmp_path / "data", "listeners=SSL://127.0.0.1:0", *given)


def test_the_settings_of_a_listener_win(
    tmp_path: Path, authority: Authority, certificate: Certificate
) -> None:
    """Two listeners with TLS, of which one wants a certificate; a key apart, with a password."""
    settings = (
        "listeners=IN://127.0.0.1:0,OUT://127.0.0.1:0",
        "listener.security.protocol.map=IN:SSL,OUT:SSL",
        "inter.broker.listener.name=IN",
        f"ssl.keystore.location={certificate.pkcs12('of the store')}",
        "ssl.keystore.password=of the store",
        "listener.name.out.ssl.client.auth=required",
        f"listener.name.out.ssl.truststore.location={authority.path}",
    )
    with LocalBroker(tmp_path, *settings) as broker:
        with TlsWire(port_of(broker, "IN"), context_of(authority)) as wire:
            assert wire.ask(MetadataRequest(topics=None), 9).brokers
        with (
            pytest.raises(OSError, match=r"(?i)certificate required|EOF|reset"),
            TlsWire(port_of(broker, "OUT"), context_of(authority)) as wire,
        ):
            wire.ask(MetadataRequest(topics=None), 9)


def test_a_listener_that_lets_everyone_in_stays_on_loopback(
    tmp_path: Path, authority: Authority, certificate: Certificate
) -> None:
    own = f"ssl.keystore.location={certificate.both()}"
    to_all = "advertised.listeners=PLAINTEXT://localhost:0"
    with pytest.raises(InvalidSetting, match="--insecure"):
        LocalBroker(tmp_path / "refused", "listeners=PLAINTEXT://:0", to_all)
    with pytest.raises(InvalidSetting, match="no authentication"):
        LocalBroker(tmp_path / "tls", "listeners=SSL://:0", "advertised.listeners=SSL://h:0", own)
    meant = "strandline.allow.insecure.listeners=true"
    with LocalBroker(tmp_path / "meant", "listeners=PLAINTEXT://:0", to_all, meant) as broker:
        assert "has no authentication" in " ".join(broker.report.notices)
    required = ("ssl.client.auth=required", f"ssl.truststore.location={authority.path}")
    at = ("listeners=SSL://:0", "advertised.listeners=SSL://localhost:0")
    with LocalBroker(tmp_path / "required", *at, own, *required) as broker:
        assert not broker.report.notices
