"""Telling messages of the formats 0 and 1 from damage.

Kafka wrote them before 0.11, and later for topics with an older `message.format.version`; Kafka 4
still has them in logs that are older than that (KIP-724). This file knows as much of them as shows
that one is whole. It must not know what is in them, nor what is done about a log that has them.

    ┌─ at ┬──────────────────────────────────────┬ bytes ┐
    │   0 │ offset                               │     8 │
    │   8 │ length                               │     4 │ of all that follows
    │  12 │ CRC-32 of 16..end                    │     4 │
    │  16 │ magic                                │     1 │ 0 or 1
    │  17 │ attributes                           │     1 │
    │  18 │ timestamp, with magic 1              │ 0 / 8 │
    │     │ key and value, sizes in front of them│       │
    └─────┴──────────────────────────────────────┴───────┘

A compressed message has such messages in its value, and looks alike from outside.
"""

from __future__ import annotations

from struct import Struct
from typing import Final
from zlib import crc32

from strandline.storage.files import File

_PREFIX: Final = Struct(">qiIB")
_MAGIC_AT: Final = 16
_LOG_OVERHEAD: Final = 12
_LENGTH_MIN: Final = (14, 22)
"""By magic: checksum, magic, attributes, perhaps the timestamp, and the sizes of key and value."""
_CHUNK_BYTES: Final = 1024 * 1024


def old_magic_at(file: File, position: int) -> int | None:
    """The format, 0 or 1, of the message that lies there; None if none lies there that is whole and
    matches its checksum."""
    prefix = file.read_at(position, _PREFIX.size)
    if len(prefix) < _PREFIX.size:
        return None
    _, length, stored, magic = _PREFIX.unpack(prefix)
    end = position + _LOG_OVERHEAD + length
    if magic >= len(_LENGTH_MIN) or length < _LENGTH_MIN[magic] or end > file.size:
        return None
    found, at = 0, position + _MAGIC_AT
    while at < end:
        chunk = file.read_at(at, min(_CHUNK_BYTES, end - at))
        if not chunk:
            return None
        found = crc32(chunk, found)
        at += len(chunk)
    return magic if found == stored else None
