"""OAUTHBEARER: tokens of an identity provider's keys, and those that are none of them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import confluent_kafka
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

import strandline
from strandline.broker import oauth_keys
from strandline.errors import AuthenticationFailed, InvalidSetting
from tests.broker.harness import PATIENCE_S, LocalBroker

RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
OTHER = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def jwks(**keys: Any) -> str:
    """A document with these public keys, by their ids."""
    described = []
    for name, key in keys.items():
        of = (
            jwt.algorithms.RSAAlgorithm
            if isinstance(key, rsa.RSAPrivateKey)
            else jwt.algorithms.ECAlgorithm
        )
        described.append({**of.to_jwk(key.public_key(), as_dict=True), "kid": name, "use": "sig"})
    return json.dumps({"keys": described})


def token(
    key: Any = RSA_KEY, kid: str | None = "first", algorithm: str = "RS256", **changed: Any
) -> str:
    now = int(time.time())
    claims = {
        "sub": "alice",
        "aud": "kafka",
        "iss": "https://idp.example",
        "iat": now,
        "exp": now + 600,
        **changed,
    }
    given = {name: value for name, value in claims.items() if value is not None}
    return jwt.encode(given, key, algorithm, headers={} if kid is None else {"kid": kid})


def settings(url: str) -> tuple[str, ...]:
    return (
        "listeners=SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms=OAUTHBEARER",
        f"sasl.oauthbearer.jwks.endpoint.url={url}",
        "sasl.oauthbearer.expected.audience=kafka,other",
        "sasl.oauthbearer.expected.issuer=https://idp.example",
        "sasl.oauthbearer.clock.skew.seconds=5",
        "connection.failed.authentication.delay.ms=0",
    )


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    directory = tmp_path_factory.mktemp("oauth")
    document = directory / "keys.json"
    document.write_text(jwks(first=RSA_KEY, second=EC_KEY))
    with LocalBroker(directory / "data", *settings(f"file:{document}")) as running:
        yield running


def client(broker: LocalBroker, text: str) -> dict[str, str]:
    return {
        "bootstrap.servers": f"127.0.0.1:{broker.port}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token": text,
    }


def come_in(broker: LocalBroker, text: str) -> None:
    with strandline.Admin(client(broker, text)) as admin:
        admin.list_topics()


GOOD = {
    "RS256": lambda: token(),
    "RS512": lambda: token(algorithm="RS512"),
    "ES256": lambda: token(EC_KEY, "second", "ES256"),
    "for several": lambda: token(aud=["nothing", "other"]),
    "of a clock that is ahead": lambda: token(nbf=int(time.time()) + 2),
}


@pytest.mark.parametrize("kind", list(GOOD))
def test_a_token_of_one_of_the_keys_lets_its_user_in(broker: LocalBroker, kind: str) -> None:
    come_in(broker, GOOD[kind]())


def test_librdkafka_comes_in_and_its_session_ends_with_its_token(broker: LocalBroker) -> None:
    def fresh(_: str) -> tuple[str, float]:
        return token(), time.time() + 600

    own = client(broker, "")
    del own["sasl.oauthbearer.token"]
    producer = confluent_kafka.Producer({**own, "oauth_cb": fresh})
    producer.produce("orders", b"one")
    assert producer.flush(PATIENCE_S) == 0
    server: Any = broker.broker._server
    connections = broker.call(lambda: [each.connection for each in server._transports.values()])
    mine = [each for each in connections if str(each.principal) == "User:alice"]
    assert mine
    assert all(each.gate.may_authenticate_again for each in mine)


def forged() -> dict[str, str]:
    """Tokens that must not be taken."""
    public = RSA_KEY.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )

    def part(value: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    _, payload, signature = token().split(".")
    none = part({"alg": "none", "kid": "first"})
    shared = f"{part({'alg': 'HS256', 'kid': 'first'})}.{payload}"
    mac = base64.urlsafe_b64encode(hmac.digest(public, shared.encode(), hashlib.sha256))
    return {
        "alg none": f"{none}.{payload}.",
        "alg none, signed": f"{none}.{payload}.{signature}",
        "the public key as a secret": f"{shared}.{mac.decode().rstrip('=')}",
        "another key": token(OTHER),
        "a key id that there is not": token(OTHER, "third"),
        "the wrong key": token(EC_KEY, "first", "ES256"),
        "without a key id": token(kid=None),
        "changed": token().replace(payload[-6:], "AAAAAA"),
        "expired": token(exp=int(time.time()) - 60),
        "not yet": token(nbf=int(time.time()) + 60),
        "without an end": token(exp=None),
        "for others": token(aud="else"),
        "for nothing": token(aud=None),
        "of another issuer": token(iss="https://else.example"),
        "without a name": token(sub=None),
        "a name that is none": token(sub=""),
        "no token": "a.b.c",
        "too long": token(more="x" * 70_000),
    }


@pytest.mark.parametrize("kind", list(forged()))
def test_an_invalid_token_is_refused(
    broker: LocalBroker, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    caplog.set_level(logging.INFO)
    text = forged()[kind]
    with pytest.raises(AuthenticationFailed, match="invalid_token"):
        come_in(broker, text)
    assert "A token of OAUTHBEARER was refused" in caplog.text
    assert text not in caplog.text
    assert text.split(".")[1] not in caplog.text or kind == "no token"


def test_keys_of_a_file_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oauth_keys, "_FILE_LOOKED_AT_S", 0.0)
    document = tmp_path / "keys.json"
    document.write_text(jwks(first=OTHER))
    with LocalBroker(tmp_path / "data", *settings(f"file:{document}")) as broker:
        with pytest.raises(AuthenticationFailed):
            come_in(broker, token())
        document.write_text("{ half a docum")
        with pytest.raises(AuthenticationFailed):
            come_in(broker, token())
        document.write_text(jwks(first=RSA_KEY, more=EC_KEY))
        come_in(broker, token())


class Provider(ThreadingHTTPServer):
    """An identity provider that has keys, and counts how often it was asked."""

    def __init__(self) -> None:
        self.document = jwks(first=OTHER)
        self.asked = 0
        super().__init__(("127.0.0.1", 0), _Answer)


class _Answer(BaseHTTPRequestHandler):
    server: Provider

    def do_GET(self) -> None:
        self.server.asked += 1
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.server.document.encode())

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - its name there
        del format, arguments


def test_keys_behind_a_url_are_asked_for_when_a_token_names_a_new_one(tmp_path: Path) -> None:
    with Provider() as provider:
        thread = Thread(target=provider.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{provider.server_port}/keys"
        quick = ("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms=1",)
        with LocalBroker(tmp_path, *settings(url), *quick) as broker:
            assert provider.asked == 1
            provider.document = jwks(second=EC_KEY)
            wanted = token(EC_KEY, "second", "ES256")
            deadline = time.monotonic() + PATIENCE_S
            while True:
                try:
                    come_in(broker, wanted)
                    break
                except AuthenticationFailed:
                    assert time.monotonic() < deadline
            assert provider.asked >= 2
        provider.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("url", "told"),
    [("", "set sasl.oauthbearer.jwks.endpoint.url"), ("http://idp.example/keys", "an https URL")],
)
def test_a_provider_that_cannot_be_trusted_is_refused(tmp_path: Path, url: str, told: str) -> None:
    with pytest.raises(InvalidSetting, match=told):
        LocalBroker(tmp_path, *settings(url))
