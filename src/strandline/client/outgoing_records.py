"""Records as programs give them to a producer: checked one by one, since what cannot be written
would make all of its batch fail later."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Final, TypeAlias

from strandline.errors import ErrorCode, ProtocolError
from strandline.records.batch import HEADER_BYTES
from strandline.records.record import Record
from strandline.types import NO_OFFSET, NO_TIMESTAMP

TIMESTAMP_MAX: Final = 2**63 - 2
"""Times of a batch are written as differences of 64 bits, and one of them may be -1."""

Part: TypeAlias = bytes | bytearray | memoryview | None
"""A key, a value, or the value of a header. What can change later is copied."""

Headers: TypeAlias = Iterable[tuple[str, Part]]


def outgoing_record(key: Part, value: Part, headers: Headers, timestamp_ms: int) -> Record:
    """The record. Raises `TypeError` or `ValueError` if it cannot be written."""
    if not NO_TIMESTAMP <= operator.index(timestamp_ms) <= TIMESTAMP_MAX:
        raise ValueError(f"The timestamp {timestamp_ms} is not a time in milliseconds.")
    return Record(
        NO_OFFSET,
        timestamp_ms,
        key if type(key) is bytes else _copy("key", key),
        value if type(value) is bytes else _copy("value", value),
        tuple(_header(each) for each in headers) if headers else (),
    )


def _copy(what: str, part: Part) -> bytes | None:
    if part is None:
        return None
    if isinstance(part, (bytes, bytearray)) or (
        isinstance(part, memoryview) and part.nbytes == len(part)
    ):
        return bytes(part)
    raise TypeError(f"The {what} of a record is bytes or None, not {type(part).__name__}.")


def _header(given: tuple[str, Part]) -> tuple[str, bytes | None]:
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        raise TypeError(f"Headers are pairs of a name and bytes: [('trace', b'1')]; not {given!r}.")
    name, value = given
    if not isinstance(name, str):
        raise TypeError(f"The name of a header is text, not {type(name).__name__}.")
    try:
        name.encode("utf-8", "surrogateescape")  # as names that are not UTF-8 are read
    except UnicodeEncodeError as error:
        raise ValueError(f"The header name {name!r} cannot be written as UTF-8.") from error
    return name, _copy(f"header {name!r}", value)


def checked_size(record: Record, limit_bytes: int) -> int:
    """What a record adds to a batch at most, before compression. Raises `ProtocolError` if no
    buffer can hold it."""
    size = 32 + len(record.key or b"") + len(record.value or b"")
    for key, value in record.headers:
        size += 10 + 4 * len(key) + len(value or b"")
    if size + HEADER_BYTES > limit_bytes:
        raise ProtocolError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"A record of {size} bytes does not fit in the producer's buffer of "
            f"{limit_bytes} bytes.",
        )
    return size
