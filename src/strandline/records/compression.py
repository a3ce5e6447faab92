"""Compressing and decompressing the records of a batch, within limits.

This file knows which codec does what to bytes. It must not know what the bytes mean.

A batch of one megabyte may decompress to gigabytes, so `decompress` takes the most that the caller
accepts and never allocates beyond it. Formats that are taken apart here, block by block, have a
limit on their blocks as well. Which library serves a codec follows from that, then from speed:

- gzip: the standard library's zlib, the only one here that stops at a given output size.
- snappy: cramjam; a block states its size in front.
- lz4: cramjam, block by block; its frame reader takes no limit (`lz4_frame.py`).
- zstd: cramjam into a buffer whose size `zstd_frame.py` finds first. (Its decoder reserves address
  space for the frame's window, at most 128 MiB, but touches only what it writes.)
"""

from __future__ import annotations

import threading
import zlib
from typing import Final

import cramjam

from strandline.errors import CorruptRecords, RecordsTooLarge
from strandline.records import lz4_frame, snappy_stream, zstd_frame
from strandline.records.codec import CODEC_BY_SETTING, Codec

__all__ = [
    "CODEC_BY_SETTING",
    "DECOMPRESSED_BYTES_MAX",
    "DEFAULT_LEVELS",
    "Codec",
    "compress",
    "decompress",
    "inflate",
]

DECOMPRESSED_BYTES_MAX: Final = 128 * 1024 * 1024
"""What one batch may decompress to unless a caller says otherwise."""

DEFAULT_LEVELS: Final = {Codec.GZIP: -1, Codec.LZ4: lz4_frame.DEFAULT_LEVEL, Codec.ZSTD: 3}
"""Kafka's defaults of `compression.gzip.level`, `.lz4.level` and `.zstd.level`."""

_BUFFER_IS_FULL: Final = "failed to write whole buffer"
"""What the library says of a buffer that is too small for what comes out."""
_SCRATCH_BYTES: Final = 128 * 1024  # what one block makes at most
_GZIP_WINDOW_BITS: Final = 31  # a window of 2^15 bytes, plus 16: with gzip's header and trailer
_GZIP_MEMBERS_MAX: Final = 64  # writers make one; each further one costs a copy of what follows it


def compress(codec: Codec, data: bytes | bytearray | memoryview, level: int | None = None) -> bytes:
    """Compress `data` the way Java's client does. `level` None is the codec's default."""
    if level is None:
        level = DEFAULT_LEVELS.get(codec, 0)
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return zlib.compress(data, level, _GZIP_WINDOW_BITS)
        case Codec.SNAPPY:
            return snappy_stream.compress_stream(memoryview(data))
        case Codec.LZ4:
            return lz4_frame.compress_frame(memoryview(data), level)
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=level))


def decompress(
    codec: Codec, data: bytes | bytearray | memoryview, max_bytes: int = DECOMPRESSED_BYTES_MAX
) -> bytes:
    """Decompress all of `data`; see `inflate`."""
    return bytes(inflate(codec, data, max_bytes))


def inflate(
    codec: Codec, data: bytes | bytearray | memoryview, max_bytes: int = DECOMPRESSED_BYTES_MAX
) -> bytes | memoryview:
    """Decompress all of `data`, for who only looks at it: no copy is made where none is needed.

    Raises `CorruptRecords` when damaged, and its subclass `RecordsTooLarge` above `max_bytes`.
    """
    match codec:
        case Codec.NONE:
            if len(data) > max_bytes:
                raise RecordsTooLarge(f"The records take more than {max_bytes} bytes.")
            return memoryview(data)
        case Codec.GZIP:
            return _gunzip(memoryview(data), max_bytes)
        case Codec.SNAPPY:
            return snappy_stream.decompress_stream(memoryview(data), max_bytes)
        case Codec.LZ4:
            return lz4_frame.decompress_frame(memoryview(data), max_bytes)
        case Codec.ZSTD:
            return _unzstd(memoryview(data), max_bytes)


def _gunzip(data: memoryview, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    room = max_bytes
    for _ in range(_GZIP_MEMBERS_MAX):
        member = zlib.decompressobj(_GZIP_WINDOW_BITS)
        try:
            part = member.decompress(data, room + 1)
        except zlib.error as error:
            raise CorruptRecords(f"Gzip data is damaged: {error}.") from error
        room -= len(part)
        if room < 0:
            raise RecordsTooLarge(f"Gzip data decompresses to more than {max_bytes} bytes.")
        if not member.eof:
            raise CorruptRecords("Gzip data is cut off.")
        parts.append(part)
        if not member.unused_data:
            return part if len(parts) == 1 else b"".join(parts)
        data = data[len(data) - len(member.unused_data) :]
    raise CorruptRecords(f"Gzip data has more than {_GZIP_MEMBERS_MAX} members.")


class _Scratch(threading.local):
    """Of each thread: where what is small is decompressed to, and copied from.

    A frame that was written as a stream does not say its size: for a block of some bytes the bound
    is 128 KiB. To allocate and clear so much costs several times what decompressing does.
    """

    def __init__(self) -> None:
        self.buffer = bytearray(_SCRATCH_BYTES)


_scratch = _Scratch()


def _unzstd(data: memoryview, max_bytes: int) -> bytes | memoryview:
    if not data:
        raise CorruptRecords("There is no Zstandard frame.")
    content_bytes_max = zstd_frame.content_bytes_max(data)
    room = min(content_bytes_max, max_bytes)
    is_copied = room <= _SCRATCH_BYTES
    out = memoryview(_scratch.buffer)[:room] if is_copied else memoryview(bytearray(room))
    try:
        size = cramjam.zstd.decompress_into(data, out)
    except cramjam.DecompressionError as error:
        if content_bytes_max > max_bytes and str(error) == _BUFFER_IS_FULL:
            raise RecordsTooLarge(
                f"Zstandard data decompresses to more than {max_bytes} bytes."
            ) from error
        raise CorruptRecords(f"Zstandard data is damaged: {error}.") from error
    return bytes(out[:size]) if is_copied else out[:size]
