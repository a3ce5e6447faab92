"""SCRAM on the side of the broker (RFC 5802, RFC 7677; KIP-84).

    client-first    n,[a=NAME],n=NAME,r=NONCE[,tokenauth=true]
    server-first    r=NONCE + MORE,s=SALT,i=ITERATIONS
    client-final    c=HEADER,r=NONCE + MORE,p=PROOF
    server-final    v=SIGNATURE

A user that there is not gets a salt, always the same one, and fails with the proof like one whose
password is wrong: names cannot be tried out. With `tokenauth` the name is the id of a delegation
token (KIP-48), and its owner is who authenticates. This file knows messages, no store and no
connection.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable
from random import Random
from typing import Final

from strandline.cluster.scram_credentials import ITERATIONS_MIN, ScramCredential, ScramMechanism
from strandline.node.authentication.delegation_tokens import TokenCredential
from strandline.node.authentication.mechanisms import (
    Authenticated,
    Exchange,
    Refused,
    invalid_credentials,
)
from strandline.types import Instant

_NONCE_BITS: Final = 160
_MESSAGE_BYTES_MAX: Final = 4096
_FIRST: Final = re.compile(
    r"(n,(?:a=(?:[^,=]|=2C|=3D)*)?,)(n=((?:[^,=]|=2C|=3D)+),r=([!-+\--~]+)(,.*)?)"
)
_FINAL: Final = re.compile(r"(c=([A-Za-z0-9+/=]+),r=([!-+\--~]+)),p=([A-Za-z0-9+/=]+)")

Lookup = Callable[[str, ScramMechanism], ScramCredential | None]
"""The credential of a user, or None."""
TokenLookup = Callable[[str, ScramMechanism, Instant], TokenCredential | None]
"""That of a delegation token, or None: there is none, or it has expired."""
_DELEGATED: Final = "tokenauth=true"


class Scram:
    """One of the mechanisms, for all users."""

    def __init__(
        self, mechanism: ScramMechanism, lookup: Lookup, tokens: TokenLookup, random: Random
    ) -> None:
        self.mechanism = mechanism
        self.lookup = lookup
        self.tokens = tokens
        self.random = random
        self._decoy = random.getrandbits(256).to_bytes(32, "big")

    def begin(self) -> Exchange:
        return _Exchange(self)

    def decoy(self, name: str) -> ScramCredential:
        """What a user that there is not is told of; no proof fits it."""
        size = hashlib.new(self.mechanism.hash_name).digest_size
        salt = hmac.digest(self._decoy, name.encode(), "sha256")[:20]
        return ScramCredential(salt, bytes(size), bytes(size), ITERATIONS_MIN)


class _Exchange:
    """One authentication."""

    def __init__(self, scram: Scram) -> None:
        self._scram = scram
        self._name = ""
        self._token: TokenCredential | None = None
        self._credential: ScramCredential | None = None
        self._is_known = False
        self._header = ""
        self._nonce = ""
        self._signed = ""
        """The messages so far, as they get signed."""

    def answer(self, message: bytes, now: Instant) -> bytes | Authenticated:
        try:
            text = message.decode() if len(message) <= _MESSAGE_BYTES_MAX else ""
        except UnicodeDecodeError:
            text = ""
        if self._credential is None:
            return self._first(text, now)
        return self._final(text, self._credential)

    def _first(self, text: str, now: Instant) -> bytes:
        match = _FIRST.fullmatch(text)
        if match is None:
            raise Refused("Invalid SASL/SCRAM client first message format")
        header, bare, name, nonce, extensions = match.groups()
        self._name = _unescaped(name)
        authorization = header[4:-1] if header.startswith("n,a=") else ""
        if authorization and _unescaped(authorization) != self._name:
            raise Refused(
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
        scram = self._scram
        if _DELEGATED in (extensions or "").lower().split(","):
            self._token = scram.tokens(self._name, scram.mechanism, now)
            found = None if self._token is None else self._token.credential
        else:
            found = scram.lookup(self._name, scram.mechanism)
        self._is_known = found is not None
        self._credential = credential = found or scram.decoy(self._name)
        own = scram.random.getrandbits(_NONCE_BITS).to_bytes(_NONCE_BITS // 8, "big")
        self._header, self._nonce = (
            header,
            nonce + base64.urlsafe_b64encode(own).decode().rstrip("="),
        )
        salt = base64.b64encode(credential.salt).decode()
        first = f"r={self._nonce},s={salt},i={credential.iterations}"
        self._signed = f"{bare},{first}"
        return first.encode()

    def _final(self, text: str, credential: ScramCredential) -> Authenticated:
        match = _FINAL.fullmatch(text)
        if match is None:
            raise Refused("Invalid SASL/SCRAM client final message format")
        without_proof, binding, nonce, proof = match.groups()
        expected = base64.b64encode(self._header.encode()).decode()
        # librdkafka before 2.6.1 writes its own part twice; Kafka 3.9 compares the end, too. The
        # proof is over what was written, so nothing is weaker for it.
        if binding != expected or not nonce.endswith(self._nonce):
            raise Refused("Invalid client nonce or channel binding in the final client message")
        hash_name = self._scram.mechanism.hash_name
        signed = f"{self._signed},{without_proof}".encode()
        signature = hmac.digest(credential.stored_key, signed, hash_name)
        try:
            given = base64.b64decode(proof, validate=True)
        except binascii.Error:
            given = b""
        if len(given) != len(signature):
            raise invalid_credentials(self._scram.mechanism.sasl_name)
        client_key = bytes(left ^ right for left, right in zip(given, signature, strict=True))
        stored = hashlib.new(hash_name, client_key).digest()
        if not hmac.compare_digest(stored, credential.stored_key) or not self._is_known:
            raise invalid_credentials(self._scram.mechanism.sasl_name)
        server_signature = hmac.digest(credential.server_key, signed, hash_name)
        data = b"v=" + base64.b64encode(server_signature)
        token = self._token
        if token is None:
            return Authenticated(self._name, data)
        return Authenticated(token.owner, data, token.expires_ms, is_token=True)


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")
