"""UUIDs as Kafka writes them: 16 bytes in URL-safe base64 without padding, 22 characters.

This file knows the notation only. It is used in `partition.metadata` and `meta.properties`.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from typing import Final
from uuid import UUID

_TEXT_MAX: Final = 24
_ALPHABET: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=")


def format_uuid(uuid: UUID) -> str:
    """The UUID in Kafka's notation."""
    return urlsafe_b64encode(uuid.bytes).rstrip(b"=").decode()


def parse_uuid(text: str) -> UUID:
    """Read Kafka's notation, with or without padding. Raises `ValueError` for anything else."""
    if len(text) > _TEXT_MAX or not _ALPHABET.issuperset(text):
        raise ValueError(f"{text[:40]!r} is not a UUID in base64.")
    try:
        data = urlsafe_b64decode(text.rstrip("=") + "==")
    except Error as error:
        raise ValueError(f"{text!r} is not a UUID in base64.") from error
    if len(data) != 16:
        raise ValueError(f"{text!r} has {len(data)} bytes; a UUID has 16.")
    return UUID(bytes=data)
