"""Listeners that ask clients for certificates: each connection is asked, and files may be odd."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from strandline.protocol.messages.metadata import MetadataRequest
from tests.broker.harness import LocalBroker
from tests.broker.test_tls import TlsWire, context_of, port_of, principals, secured
from tests.certificates import Authority, Certificate


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def certificate(authority: Authority) -> Certificate:
    return authority.issue("broker", "127.0.0.1", "localhost")


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
