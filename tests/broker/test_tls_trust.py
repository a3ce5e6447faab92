"""Listeners that ask clients for certificates: each connection is asked, and files may be odd."""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from typing import Any

import pytest

from strandline.broker.tls_listener import TlsListener
from strandline.client.cluster import ClusterClient
from strandline.client.inspection import answers_of, inspect_each
from strandline.client.security.names import security_of
from strandline.client.settings import Address, ClientSettings
from strandline.errors import AuthenticationFailed
from strandline.protocol.messages.metadata import MetadataRequest
from tests.broker.harness import LocalBroker
from tests.broker.test_tls import TlsWire, context_of, port_of, principals, secured
from tests.certificates import Authority, Certificate


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("mode", ["required", "requested"])
def test_each_connection_shows_its_certificate(
    tmp_path: Path,
    authority: Authority,
    certificate: Certificate,
    version: ssl.TLSVersion,
    mode: str,
) -> None:
    """A session that is taken up again would not be asked for one, even when it has expired."""
    asked = (f"ssl.client.auth={mode}", f"ssl.truststore.location={authority.path}")
    context = context_of(authority, authority.issue("alice", "alice.example"))
    context.minimum_version = context.maximum_version = version
    sessions: list[ssl.SSLSession | None] = [None]
    with LocalBroker(tmp_path, *secured(certificate, *asked)) as broker:
        for _ in range(2):
            with TlsWire(port_of(broker, "SSL"), context, sessions[-1]) as wire:
                assert wire.ask(MetadataRequest(topics=None), 9).brokers
                (principal,) = principals(broker)
                assert principal.startswith("User:CN=alice,")
                assert not wire.socket.session_reused
                sessions.append(wire.socket.session)


def test_authorities_with_comments_in_any_language_are_taken_up(
    tmp_path: Path,
    authority: Authority,
    certificate: Certificate,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("strandline.broker.tls_listener._LOOK_AGAIN_S", 0.0)
    (tmp_path / "other").mkdir()
    trusted, other = tmp_path / "trusted.pem", Authority(tmp_path / "other")
    trusted.write_text(authority.path.read_text())
    asked = ("ssl.client.auth=required", f"ssl.truststore.location={trusted}")
    context = context_of(authority, other.issue("bob"))
    with LocalBroker(tmp_path / "data", *secured(certificate, *asked)) as broker:
        port = port_of(broker, "SSL")
        comment = "# Autorit\u00e9 de Certification\n"
        trusted.write_text(comment + other.path.read_text(), encoding="utf-8")
        with TlsWire(port, context) as wire:
            assert wire.ask(MetadataRequest(topics=None), 9).brokers


def test_a_client_whose_handshake_cannot_be_begun_is_sent_away(
    tmp_path: Path,
    authority: Authority,
    certificate: Certificate,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is counted no more, and its connection is closed."""

    def fails(*arguments: object) -> None:
        raise TypeError("a bug of ours")

    with LocalBroker(tmp_path, *secured(certificate)) as broker:
        server: Any = broker.broker._server
        port = port_of(broker, "SSL")
        with monkeypatch.context() as patch:
            patch.setattr(TlsListener, "wrap", fails)
            with pytest.raises(OSError, match=r"(?i)EOF|reset"):
                TlsWire(port, context_of(authority))
            assert broker.call(lambda: server._limits._count) == 0
        with TlsWire(port, context_of(authority)) as wire:
            assert wire.ask(MetadataRequest(topics=None), 9).brokers


@pytest.mark.parametrize(
    ("stranger", "told", "cause"),
    [
        (
            False,
            "the broker demands a client certificate (ssl.client.auth=required): set "
            "ssl.keystore.location",
            "it shows no certificate, which ssl.client.auth=required demands",
        ),
        (True, "of an authority that the broker's ssl.truststore.location has", "not accepted"),
    ],
)
def test_a_client_without_a_certificate_that_counts_is_told_what_it_lacks(
    tmp_path: Path,
    authority: Authority,
    certificate: Certificate,
    stranger: bool,
    told: str,
    cause: str,
) -> None:
    """By the sentence of the client, and by `why` of the broker."""
    asked = ("listener.name.ssl.ssl.client.auth=required",)
    trusted = f"ssl.truststore.location={authority.path}"
    (tmp_path / "other").mkdir()
    own = Authority(tmp_path / "other").issue("bob") if stranger else None
    config = {"security.protocol": "SSL", "ssl.truststore.location": str(authority.path)}
    if own is not None:
        config["ssl.keystore.location"] = str(own.both())
    security = security_of(config)
    with LocalBroker(tmp_path / "data", *secured(certificate, *asked, trusted)) as broker:
        settings = ClientSettings(security=security)
        address = Address("127.0.0.1", port_of(broker, "SSL"))
        with (
            ClusterClient([address], settings) as client,
            pytest.raises(AuthenticationFailed, match=re.escape(told)),
        ):
            client.refresh()
        plain = Address("127.0.0.1", port_of(broker, "PLAINTEXT"))
        with ClusterClient([plain]) as client:
            (found,) = answers_of(inspect_each(client, "why")).values()
    (finding,) = found["findings"]
    assert finding["rule"] == "handshake-failed"
    assert cause in finding["cause"]
    assert finding["about"] == "the client at 127.0.0.1, by listener SSL"
