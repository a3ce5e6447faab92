"""Snappy data as Kafka's clients write it: one raw block, or xerial's framing around many.

This file knows these two shapes and nothing of record batches. The framing is the one of the Java
library snappy-java, not the framing that the Snappy project itself defines later:

    ┌ 82 'SNAPPY' 00 ┬ version 1 ┬ compatible with 1 ┬ chunk ... ┐
    │ 8              │ 4         │ 4                 │           │      chunk: size (4) · raw block
    └────────────────┴───────────┴───────────────────┴───────────┘

Java's client writes the framing, librdkafka a raw block. A reader tells them apart by the first
eight bytes, as snappy-java does. A raw block starts with the length that it decompresses to, so the
limit is checked before anything is allocated.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

import cramjam

from strandline.errors import CorruptRecords, RecordsTooLarge

_MAGIC: Final = b"\x82SNAPPY\x00"
_WRITTEN_HEADER: Final = _MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_CHUNK_BYTES: Final = 32 * 1024
_CHUNKS_MAX: Final = 1 << 15
"""Most chunks that are read; each costs a round in Python. Writers fill theirs, so that this many
hold 1 GiB."""
_UINT32: Final = Struct(">I")


def compress_stream(data: memoryview) -> bytes:
    """Compress into xerial's framing with chunks of 32 KiB, as Java writes."""
    parts: list[bytes] = [_WRITTEN_HEADER]
    for start in range(0, len(data), _CHUNK_BYTES):
        packed = bytes(cramjam.snappy.compress_raw(data[start : start + _CHUNK_BYTES]))
        parts += (_UINT32.pack(len(packed)), packed)
    return b"".join(parts)


def decompress_stream(data: memoryview, max_bytes: int) -> bytes:
    """Decompress either shape; the result has at most `max_bytes`."""
    if bytes(data[: len(_MAGIC)]) != _MAGIC:
        return _decompress_block(data, max_bytes)
    position = len(_WRITTEN_HEADER)
    if len(data) < position:
        raise CorruptRecords("The header of Snappy's framing is cut off.")
    parts: list[bytes] = []
    room = max_bytes
    while position < len(data):
        if len(data) - position < 4:
            raise CorruptRecords("A Snappy chunk's size is cut off.")
        size: int = _UINT32.unpack_from(data, position)[0]
        position += 4
        if size > len(data) - position:
            raise CorruptRecords(f"A Snappy chunk of {size} bytes is cut off.")
        parts.append(_decompress_block(data[position : position + size], room))
        room -= len(parts[-1])
        position += size
        if len(parts) > _CHUNKS_MAX:
            raise CorruptRecords(f"Snappy data has more than {_CHUNKS_MAX} chunks.")
    return b"".join(parts)


def _decompress_block(block: memoryview, room: int) -> bytes:
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > room:
            raise RecordsTooLarge(f"Snappy data decompresses to more than {room} bytes.")
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise CorruptRecords("A Snappy block is damaged.") from error
