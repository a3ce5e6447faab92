"""Security by Kafka's names: what is read, what is refused, and that no secret is shown."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import pytest

from strandline.client.security import scram
from strandline.client.security.authentication import Authentication
from strandline.client.security.exchanges import exchange_of
from strandline.client.security.jaas import parse_jaas
from strandline.client.security.mechanisms import OauthBearer, Plain, Scram
from strandline.client.security.names import SECRET_NAMES, security_of
from strandline.client.security.secret import Secret
from strandline.client.security.settings import PLAINTEXT, Sasl, Security
from strandline.client.settings import ClientSettings
from strandline.client.versions import ServedVersions
from strandline.errors import AuthenticationFailed, ErrorCode, InvalidSetting, ProtocolError
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from strandline.protocol.messages.sasl_handshake import SaslHandshakeResponse
from strandline.protocol.versions import VersionRange

MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required"
SCRAM = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.jaas.config": f'{MODULE} username="alice" password="a \\"quoted\\" secret";',
}


# -- Names ---------------------------------------------------------------------------------------


def test_without_a_protocol_nothing_is_secured() -> None:
    assert security_of({"client.id": "c"}) is PLAINTEXT
    assert PLAINTEXT.protocol == "PLAINTEXT"


def test_name_and_password_of_a_jaas_line() -> None:
    security = security_of(SCRAM)
    assert security.protocol == "SASL_SSL"
    assert security.sasl is not None
    assert security.sasl.username == "alice"
    assert security.sasl.password is not None
    assert security.sasl.password.reveal() == 'a "quoted" secret'


def test_a_delegation_token_of_a_jaas_line() -> None:
    line = f'{MODULE} username="id" password="hmac" tokenauth="true";'
    sasl = security_of(SCRAM | {"sasl.jaas.config": line}).sasl
    assert sasl is not None
    assert Scram(sasl, "hmac", nonce="n").first() == b"n,,n=id,r=n,tokenauth=true"
    own = {"sasl.username": "id", "sasl.password": "hmac", "sasl.tokenauth": "true"}
    without = {name: value for name, value in SCRAM.items() if name != "sasl.jaas.config"}
    assert security_of(without | own).sasl == Sasl(
        mechanism="SCRAM-SHA-512",
        username="id",
        password=Secret("sasl.password", "hmac"),
        is_delegation_token=True,
    )


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"security.protocol": "TLS"}, "security.protocol"),
        ({"security.protocol": "SSL"}, "sasl.mechanism"),
        ({"security.protocol": "PLAINTEXT"}, "sasl.mechanism"),
        ({"security.protocol": "SASL_PLAINTEXT", "ssl.ca.location": "f"}, "ssl.ca.location"),
        ({"sasl.mechanism": "GSSAPI"}, "sasl.mechanism"),
        ({"sasl.mechanism": "PLAIN"}, "sasl.jaas.config"),
        ({"sasl.jaas.config": "com.example.Login required;"}, "sasl.jaas.config"),
        ({"sasl.jaas.config": f'{MODULE} username="alice";'}, "sasl.password"),
        ({"sasl.jaas.config": f'{MODULE} username="a" password="p"'}, "sasl.jaas.config"),
        ({"sasl.tokenauth": "yes"}, "sasl.tokenauth"),
        ({"sasl.client.callback.handler.class": "C"}, "sasl.client.callback.handler.class"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "ssl.enabled.protocols"),
        ({"ssl.enabled.protocols": "TLSv1.3", "ssl.protocol": "TLSv1.2"}, "ssl.enabled.protocols"),
        ({"ssl.key.location": "key.pem"}, "ssl.key.location"),
        ({"ssl.ca.location": "a", "ssl.truststore.location": "b"}, "ssl.ca.location"),
        ({"ssl.endpoint.identification.algorithm": "x"}, "ssl.endpoint.identification.algorithm"),
        ({"enable.ssl.certificate.verification": "false"}, "enable.ssl.certificate.verification"),
    ],
)
def test_what_cannot_be_is_refused_by_name_and_shows_no_secret(
    changed: dict[str, str], named: str
) -> None:
    with pytest.raises(InvalidSetting) as refused:
        security_of(SCRAM | changed)
    assert refused.value.name == named
    assert named in str(refused.value)
    assert "quoted" not in str(refused.value)


def test_oauth_needs_a_token_or_an_endpoint_with_credentials() -> None:
    oauth = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    url = "sasl.oauthbearer.token.endpoint.url"
    for more in ({}, {url: "https://idp.example/token"}, {url: "http://idp.example/token"}):
        with pytest.raises(InvalidSetting, match=r"sasl\.oauthbearer"):
            security_of(oauth | more)
    ids = "sasl.oauthbearer.client.credentials.client."
    given = oauth | {url: "https://idp/t", ids + "id": "me", ids + "secret": "env:S"}
    sasl = security_of(given).sasl
    assert sasl is not None
    assert sasl.endpoint is not None
    assert (sasl.endpoint.client_id, str(sasl.endpoint.client_secret)) == ("me", "env:S")


def test_values_of_a_jaas_line_may_be_quoted_either_way_or_not_at_all() -> None:
    assert parse_jaas(f"{MODULE} a=1 b='x;y' c=\"\\\\\" ;").options == {
        "a": "1",
        "b": "x;y",
        "c": "\\",
    }


# -- Secrets -------------------------------------------------------------------------------------


def test_secrets_are_in_no_text_of_the_settings() -> None:
    given = SCRAM | {"ssl.key.password": "hidden too"}
    settings = ClientSettings(security=security_of(given))
    assert "quoted" not in repr(settings) + str(settings)
    assert "hidden too" not in repr(settings) + str(settings)
    assert "sasl.jaas.config" in SECRET_NAMES


def test_a_secret_that_is_named_is_in_no_pickle_of_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """SECURITY.md says so, and that one which is given itself is."""
    monkeypatch.setenv("MY_PASSWORD", "planted-word")
    for given, is_in in (("env:MY_PASSWORD", False), ("planted-word", True)):
        jaas = f'{MODULE} username="alice" password="{given}";'
        settings = ClientSettings(security=security_of(SCRAM | {"sasl.jaas.config": jaas}))
        assert (b"planted-word" in pickle.dumps(settings)) is is_in
        assert settings.security.sasl is not None
        assert settings.security.sasl.password is not None
        assert settings.security.sasl.password.reveal() == "planted-word"


def test_a_reference_is_resolved_when_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "password"
    of_file, of_environment = Secret("s", f"file:{file}"), Secret("s", "env:MY_PASSWORD")
    for secret, missing in ((of_file, "cannot be read"), (of_environment, "MY_PASSWORD")):
        with pytest.raises(InvalidSetting, match=missing):
            secret.reveal()
    file.write_text("first\n")
    monkeypatch.setenv("MY_PASSWORD", "other")
    assert (of_file.reveal(), of_environment.reveal()) == ("first", "other")
    file.write_text("second")
    assert of_file.reveal() == "second"
    assert str(of_file) == f"file:{file}"
    assert str(Secret("s", "itself")) == "[hidden]"


# -- Mechanisms ----------------------------------------------------------------------------------


def exchange() -> Scram:
    """The exchange of RFC 7677, section 3."""
    sasl = Sasl(mechanism="SCRAM-SHA-256", username="user")
    return Scram(sasl, "pencil", nonce="rOprNGfwEbeRWgbNEkqO")


FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"


def test_scram_is_that_of_the_rfc() -> None:
    client = exchange()
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert client.answer(FIRST) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert client.answer(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None


@pytest.mark.parametrize(
    "first",
    [
        FIRST.replace(b"r=rO", b"r=xO"),
        b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        FIRST.replace(b"i=4096", b"i=1"),
        FIRST.replace(b"i=4096", b"i=2000000000"),
        FIRST.replace(b"s=W2", b"s=!!"),
        b"\xff\xfe",
        b"",
    ],
)
def test_a_first_message_of_scram_that_is_not_to_be_answered(first: bytes) -> None:
    with pytest.raises(AuthenticationFailed, match="SCRAM-SHA-256"):
        exchange().answer(first)


@pytest.mark.parametrize("final", [b"v=AAAA", b"", b"v=!", b"e=other-error"])
def test_a_server_that_does_not_know_the_password_fails_scram(final: bytes) -> None:
    client = exchange()
    client.answer(FIRST)
    with pytest.raises(AuthenticationFailed, match="SCRAM-SHA-256"):
        client.answer(final)


def test_names_are_escaped_in_scram() -> None:
    assert scram.client_first_bare("a=b,c", "n") == "n=a=3Db=2Cc,r=n"


def test_a_refused_token_is_acknowledged_before_its_refusal_comes() -> None:
    client = OauthBearer("t", (("tenant", "x"),))
    assert client.first() == b"n,,\x01auth=Bearer t\x01tenant=x\x01\x01"
    assert client.answer(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(AuthenticationFailed, match="invalid_token"):
        client.answer(b"again")


# -- Authentication ------------------------------------------------------------------------------

SERVED = ServedVersions(
    "broker at b:1",
    {ApiKey.SASL_HANDSHAKE: VersionRange(0, 1), ApiKey.SASL_AUTHENTICATE: VersionRange(0, 2)},
)


def test_a_mechanism_that_is_not_served_is_told_with_those_that_are() -> None:
    authentication = Authentication("broker at b:1", "PLAIN", Plain("u", "p"), SERVED)
    answer = SaslHandshakeResponse(
        error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=["SCRAM-SHA-256", "GSSAPI"]
    )
    with pytest.raises(AuthenticationFailed, match="GSSAPI, SCRAM-SHA-256"):
        authentication.answered(answer)


def test_a_broker_without_sasl_is_told() -> None:
    with pytest.raises(AuthenticationFailed, match="SaslHandshake"):
        Authentication("broker at b:1", "PLAIN", Plain("u", "p"), ServedVersions("b", {}))


def test_trouble_of_the_broker_may_be_tried_again() -> None:
    authentication = Authentication("broker at b:1", "PLAIN", Plain("u", "p"), SERVED)
    authentication.answered(SaslHandshakeResponse(mechanisms=["PLAIN"]))
    busy = SaslAuthenticateResponse(error_code=ErrorCode.REQUEST_TIMED_OUT)
    with pytest.raises(ProtocolError) as failed:
        authentication.answered(busy)
    assert failed.value.retriable


# -- Token endpoints -----------------------------------------------------------------------------


class _Endpoint(BaseHTTPRequestHandler):
    """Answers with `status` and `answer`, and keeps what was asked."""

    status: ClassVar[int] = 200
    answer: ClassVar[bytes] = b"{}"
    moved_to: ClassVar[str | None] = None
    asked: ClassVar[list[tuple[str | None, bytes]]] = []

    def do_GET(self) -> None:
        self.asked.append((self.headers["Authorization"], b""))
        self.send_response(404)
        self.end_headers()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.asked.append((self.headers["Authorization"], body))
        self.send_response(self.status)
        if self.moved_to is not None:
            self.send_header("Location", self.moved_to)
        self.end_headers()
        self.wfile.write(self.answer)

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
        """Nothing: it would go to standard error."""


@pytest.fixture
def endpoint() -> Iterator[tuple[type[_Endpoint], str]]:
    handler = type("Endpoint", (_Endpoint,), {"asked": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield handler, f"http://127.0.0.1:{server.server_address[1]}/token"
        server.shutdown()
        thread.join()


def asking(url: str) -> Security:
    ids = "sasl.oauthbearer.client.credentials.client."
    return security_of(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": url,
            "sasl.oauthbearer.scope": "kafka",
            ids + "id": "me",
            ids + "secret": "my secret",
        }
    )


def first_of(security: Security) -> bytes:
    assert security.sasl is not None
    return exchange_of(security, security.sasl).first()


def test_connections_share_the_token_of_an_endpoint(endpoint: tuple[type[_Endpoint], str]) -> None:
    handler, url = endpoint
    handler.answer = json.dumps({"access_token": "tok", "expires_in": 3600}).encode()
    for _ in range(3):
        assert b"Bearer tok\x01" in first_of(asking(url))
    assert handler.asked == [
        ("Basic bWU6bXkgc2VjcmV0", b"grant_type=client_credentials&scope=kafka")
    ]


def test_a_secret_does_not_follow_a_redirect(endpoint: tuple[type[_Endpoint], str]) -> None:
    handler, url = endpoint
    handler.status, handler.moved_to = 302, url + "/elsewhere"
    with pytest.raises(AuthenticationFailed, match="302, a redirect, which is not followed"):
        first_of(asking(url))
    assert len(handler.asked) == 1


@pytest.mark.parametrize(
    ("status", "answer", "retriable"), [(503, b"", True), (200, b"[]", True), (401, b"{}", False)]
)
def test_an_endpoint_that_gives_no_token(
    endpoint: tuple[type[_Endpoint], str], status: int, answer: bytes, *, retriable: bool
) -> None:
    handler, url = endpoint
    handler.status, handler.answer = status, answer
    with pytest.raises(ProtocolError, match="token endpoint") as failed:
        first_of(asking(url))
    assert failed.value.retriable is retriable
    assert "my secret" not in str(failed.value)
