"""SCRAM credentials of users, as Kafka keeps them: `/config/users/<user>` (KIP-84, KIP-554).

    {"version": 1, "config": {"SCRAM-SHA-512":
        "salt=...,stored_key=...,server_key=...,iterations=4096"}}

With a credential a broker can check a password and prove that it knows it, and cannot tell it. The
salted password, from which both keys come, is never kept. This file knows the texts and formulas.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16_384
"""Kafka's bounds for credentials that are stored."""


class ScramMechanism(IntEnum):
    """The mechanisms, by the numbers that they have on the wire."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        """As Python's `hashlib` calls it."""
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"


MECHANISMS: Final = {each.sasl_name: each for each in ScramMechanism}
"""By the names that SASL has for them."""


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What is kept of a password. All fields but the last are secrets."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    @classmethod
    def of_salted(
        cls, mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int
    ) -> ScramCredential:
        """From a salted password (RFC 5802, 3)."""
        client_key = hmac.digest(salted, b"Client Key", mechanism.hash_name)
        stored_key = hashlib.new(mechanism.hash_name, client_key).digest()
        server_key = hmac.digest(salted, b"Server Key", mechanism.hash_name)
        return cls(salt, stored_key, server_key, iterations)

    @classmethod
    def of_password(
        cls, mechanism: ScramMechanism, password: str, salt: bytes, iterations: int
    ) -> ScramCredential:
        """From the password itself; takes milliseconds."""
        salted = hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)
        return cls.of_salted(mechanism, salted, salt, iterations)

    @classmethod
    def parse(cls, text: str) -> ScramCredential:
        """From Kafka's text form. Raises `ValueError`, whose text has nothing of it."""
        given = dict(part.partition("=")[::2] for part in text.split(","))
        try:
            salt, stored_key, server_key = (
                base64.b64decode(given[name], validate=True)
                for name in ("salt", "stored_key", "server_key")
            )
            return cls(salt, stored_key, server_key, int(given["iterations"]))
        except (KeyError, ValueError, binascii.Error):
            raise ValueError("It is no SCRAM credential.") from None

    def text(self) -> str:
        """Kafka's text form."""
        salt, stored_key, server_key = (
            base64.b64encode(each).decode()
            for each in (self.salt, self.stored_key, self.server_key)
        )
        return (
            f"salt={salt},stored_key={stored_key},server_key={server_key},"
            f"iterations={self.iterations}"
        )
