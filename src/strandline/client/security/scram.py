"""SCRAM's formulas and messages (RFC 5802, RFC 7677), as far as Kafka uses them.

    client-first    n,,n=NAME,r=NONCE[,tokenauth=true]
    server-first    r=NONCE + MORE,s=SALT,i=ITERATIONS
    client-final    c=biws,r=NONCE + MORE,p=PROOF
    server-final    v=SIGNATURE, or e=ERROR

This file knows texts and hashes: no connection, no setting, no randomness. It is written here and
not taken from a library because Kafka differs from the RFC: names and passwords are not prepared
by SASLprep, and delegation tokens are told by an extension (KIP-48).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass, field
from typing import Final

from strandline.numerals import whole_number

ITERATIONS_MIN: Final = 4096
"""A server that asks for fewer would get hashes that are cheap to guess from; as Kafka."""
ITERATIONS_MAX: Final = 1_000_000
"""A server that asks for more would keep the client busy for seconds."""
_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_NO_BINDING: Final = "n,,"
_ENCODED_NO_BINDING: Final = base64.b64encode(_NO_BINDING.encode()).decode()


class BadScram(ValueError):
    """A message of the other side that is none, or proves nothing; the text is a clause."""


@dataclass(frozen=True, slots=True)
class ServerFirst:
    """What the server sends first. `text` is the message itself, which gets signed."""

    text: str
    nonce: str
    salt: bytes = field(repr=False)
    iterations: int


def client_first_bare(username: str, nonce: str, *, is_token: bool = False) -> str:
    """The first message without its header, which gets signed."""
    name = username.replace("=", "=3D").replace(",", "=2C")
    return f"n={name},r={nonce}" + (",tokenauth=true" if is_token else "")


def client_first(bare: str) -> bytes:
    """The first message: no channel binding, no other authorization id."""
    return (_NO_BINDING + bare).encode()


def parse_server_first(message: bytes, client_nonce: str) -> ServerFirst:
    """Raises `BadScram`, also if the nonce does not begin with the client's, or is that alone."""
    fields = _fields(message)
    nonce = fields.get("r", "")
    if not nonce.startswith(client_nonce) or nonce == client_nonce:
        raise BadScram("its nonce does not continue the client's")
    try:
        salt = base64.b64decode(fields["s"], validate=True)
        iterations = whole_number(fields["i"], ITERATIONS_MAX)
    except (KeyError, binascii.Error) as error:
        raise BadScram("its first message has no salt or no iterations") from error
    if iterations is None or iterations < ITERATIONS_MIN:
        raise BadScram(
            f"it wants {fields['i'][:20]} iterations, where {ITERATIONS_MIN} to {ITERATIONS_MAX} "
            "are accepted"
        )
    return ServerFirst(message.decode(), nonce, salt, iterations)


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """What proofs and signatures are made from; takes milliseconds."""
    return hashlib.pbkdf2_hmac(_HASHES[mechanism], password.encode(), salt, iterations)


def client_final(mechanism: str, salted: bytes, bare: str, server: ServerFirst) -> bytes:
    """The client's proof that it knows the password."""
    without_proof = f"c={_ENCODED_NO_BINDING},r={server.nonce}"
    client_key = _hmac(mechanism, salted, b"Client Key")
    stored_key = hashlib.new(_HASHES[mechanism], client_key).digest()
    signature = _hmac(mechanism, stored_key, _signed(bare, server, without_proof))
    proof = bytes(key ^ mask for key, mask in zip(client_key, signature, strict=True))
    return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


def verify_server_final(
    mechanism: str, salted: bytes, bare: str, server: ServerFirst, message: bytes
) -> None:
    """Check the server's proof that it knows the password too. Raises `BadScram`."""
    fields = _fields(message)
    if "e" in fields:
        raise BadScram(f"it answers {fields['e']}")
    without_proof = f"c={_ENCODED_NO_BINDING},r={server.nonce}"
    server_key = _hmac(mechanism, salted, b"Server Key")
    expected = _hmac(mechanism, server_key, _signed(bare, server, without_proof))
    try:
        given = base64.b64decode(fields.get("v", ""), validate=True)
    except binascii.Error:
        given = b""
    if not hmac.compare_digest(given, expected):
        raise BadScram("it does not prove that it knows the password")


def _signed(bare: str, server: ServerFirst, without_proof: str) -> bytes:
    return f"{bare},{server.text},{without_proof}".encode()


def _hmac(mechanism: str, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, _HASHES[mechanism])


def _fields(message: bytes) -> dict[str, str]:
    try:
        parts = [part.partition("=") for part in message.decode().split(",")]
    except UnicodeDecodeError as error:
        raise BadScram("its message is no text") from error
    return {name: value for name, equals, value in parts if equals}
