"""The few elements of DER on the way to what is asked of a certificate (X.509, RFC 5280)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, NamedTuple

_SEQUENCE, _VERSION, _UTC_TIME = 0x30, 0xA0, 0x17
VALIDITY: Final = 3
SUBJECT: Final = 4
"""Which field, behind the version: serial number, signature algorithm, issuer, validity, subject.
"""


class Validity(NamedTuple):
    """From when until when a certificate counts, in milliseconds since 1970."""

    begins_ms: int
    expires_ms: int


def validity(certificate: bytes) -> Validity:
    """When a certificate in DER begins to count and expires. Raises `ValueError`."""
    begins, expires = elements(field_of(certificate, VALIDITY))
    return Validity(_moment_ms(begins), _moment_ms(expires))


def _moment_ms(field: tuple[int, bytes, int]) -> int:
    tag, text, _ = field
    digits = text.decode("ascii")
    if tag == _UTC_TIME:  # two digits of the year: those from 50 on are of the last century
        digits = ("19" if digits >= "50" else "20") + digits
    moment = datetime.strptime(digits, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def field_of(certificate: bytes, index: int) -> bytes:
    """The content of a field that is a sequence. Raises `ValueError` if it cannot be read."""
    try:
        _, outer, _ = element(certificate, 0)
        _, body, _ = element(outer, 0)
        parts = list(elements(body))
    except IndexError:
        raise ValueError("The certificate is cut off.") from None
    if parts and parts[0][0] == _VERSION:
        index += 1
    if len(parts) <= index or parts[index][0] != _SEQUENCE:
        raise ValueError("The certificate has no such field.")
    return parts[index][1]


def elements(content: bytes) -> Iterator[tuple[int, bytes, int]]:
    """Tag, content and end of each. Raises `IndexError` if the last is cut off."""
    position = 0
    while position < len(content):
        found = element(content, position)
        yield found
        position = found[2]


def element(data: bytes, position: int) -> tuple[int, bytes, int]:
    """Tag, content and end of the element there."""
    tag, size, start = data[position], data[position + 1], position + 2
    if size & 0x80:
        count = size & 0x7F
        size = int.from_bytes(data[start : start + count], "big")
        start += count
    end = start + size
    if end > len(data):
        raise IndexError
    return tag, data[start:end], end
