"""Identifiers of topics and clusters: 128 random bits, written as 22 characters of base64url.

The text form is Kafka's (`org.apache.kafka.common.Uuid`): URL-safe base64 of the sixteen bytes
without padding. A cluster id has the same form. Randomness is an argument, never ambient.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from random import Random
from typing import Final
from uuid import UUID

_TEXT_LENGTH: Final = 22
_RESERVED: Final = frozenset(UUID(int=number) for number in range(101))
"""Kafka keeps the first hundred ids, the zero id among them, for purposes of its own."""


def random_uuid(random: Random) -> UUID:
    """A version 4 UUID that is not reserved and whose text can be a command line argument."""
    while True:
        candidate = UUID(int=random.getrandbits(128), version=4)
        if candidate not in _RESERVED and not uuid_text(candidate).startswith("-"):
            return candidate


def uuid_text(identifier: UUID) -> str:
    """The 22 characters of an id."""
    return urlsafe_b64encode(identifier.bytes).rstrip(b"=").decode("ascii")


def uuid_from_text(text: str) -> UUID:
    """The id that the 22 characters name. Raises `ValueError`."""
    if len(text) != _TEXT_LENGTH or not text.isascii():
        raise ValueError(f"{text!r} is not 22 characters of base64")
    identifier = UUID(bytes=urlsafe_b64decode(text + "=="))
    if uuid_text(identifier) != text:
        raise ValueError(f"{text!r} is not the base64 form of 16 bytes")
    return identifier
