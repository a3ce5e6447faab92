"""LZ4 frames as Kafka uses them: written like Java's client, read block by block.

This file knows the LZ4 frame format 1.5.1 and nothing of record batches.

    ┌ magic ┬ FLG ┬ BD ┬ content size ┬ HC ┬ block ... ┬ end mark ┬ content checksum ┐
    │ 4, LE │  1  │ 1  │ 0 or 8       │ 1  │           │ 4 x 00   │ 0 or 4           │
    └───────┴─────┴────┴──────────────┴────┴───────────┴──────────┴──────────────────┘
    block: size (4, LE; top bit: stored as it is) · data · block checksum (0 or 4)

The frame is taken apart here, and only single blocks go to the library, for two reasons. The
library's frame reader takes no limit on what it makes of its input, while a block is limited by the
buffer it is given. And what Java accepts is narrower than the format: blocks must not refer back
to earlier blocks, so a frame that does is refused here as it is there.

Of the frame's checksums only the one over the descriptor (HC) is verified: block and content are
covered by the CRC-32C of the batch that holds them. Java checks no content checksum either.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

import cramjam

from strandline.errors import CorruptRecords, InvariantViolated, RecordsTooLarge

DEFAULT_LEVEL: Final = 9
"""`compression.lz4.level` at which Java uses the fast compressor; all others mean "high"."""

_LOWEST_HIGH_LEVEL: Final = 3
_HIGHEST_HIGH_LEVEL: Final = 12
_BLOCKS_MAX: Final = 1 << 15
"""Most blocks of a frame that is read; each costs a round in Python. Writers fill theirs, so that
this many hold 2 GiB."""

_MAGIC: Final = 0x184D2204
_BLOCK_BYTES: Final = 64 * 1024
_STORED_BIT: Final = 0x80000000
_UINT32: Final = Struct("<I")

# Magic; version 1 with independent blocks and no checksums; blocks of 64 KiB; descriptor checksum.
_WRITTEN_HEADER: Final = bytes.fromhex("04224d18 60 40 82")
# The same, but with a checksum behind each block.
_LIBRARY_HEADER: Final = bytes.fromhex("04224d18 70 40 ad")
_END_MARK: Final = b"\x00\x00\x00\x00"

_DICTIONARY_BIT: Final = 0x01
_RESERVED_FLAG_BIT: Final = 0x02
_CONTENT_CHECKSUM_BIT: Final = 0x04
_CONTENT_SIZE_BIT: Final = 0x08
_BLOCK_CHECKSUM_BIT: Final = 0x10
_INDEPENDENT_BIT: Final = 0x20


def compress_frame(data: memoryview, level: int) -> bytes:
    """Compress into one frame of independent 64 KiB blocks without checksums, as Java writes."""
    parts: list[bytes] = [_WRITTEN_HEADER]
    for start in range(0, len(data), _BLOCK_BYTES):
        block = data[start : start + _BLOCK_BYTES]
        packed = _compress_block(block, level)
        if len(packed) < len(block):
            parts += (_UINT32.pack(len(packed)), packed)
        else:
            parts += (_UINT32.pack(len(block) | _STORED_BIT), bytes(block))
    parts.append(_END_MARK)
    return b"".join(parts)


def _compress_block(block: memoryview, level: int) -> bytes:
    if level == DEFAULT_LEVEL:
        return bytes(cramjam.lz4.compress_block(block, store_size=False))
    # The library's block function has no levels. Its frame function has, so the only block of a
    # frame is cut out: behind the header and the size, in front of its checksum and the end mark.
    compressor = cramjam.lz4.Compressor(
        level=min(max(level, _LOWEST_HIGH_LEVEL), _HIGHEST_HIGH_LEVEL),
        content_checksum=False,
        block_linked=False,
    )
    compressor.compress(bytes(block))
    frame = bytes(compressor.finish())
    if not frame.startswith(_LIBRARY_HEADER):
        raise InvariantViolated("The LZ4 library writes another frame than it used to.")
    return frame[len(_LIBRARY_HEADER) + 4 : -8]


def decompress_frame(data: memoryview, max_bytes: int) -> memoryview:
    """Decompress one frame, which must fill `data`; the result has at most `max_bytes`.

    Raises `CorruptRecords`; its subclass `RecordsTooLarge` if it is more.
    """
    blocks, room = _outline(data)
    out = bytearray(min(room, max_bytes))
    filled = 0
    with memoryview(out) as target:
        for block, is_stored, block_room in blocks:
            size = min(block_room, len(out) - filled)
            if not is_stored:
                filled += _decompress_block(block, target[filled : filled + size], block_room)
            elif size < block_room:
                raise RecordsTooLarge(f"LZ4 data decompresses to more than {max_bytes} bytes.")
            else:
                target[filled : filled + size] = block
                filled += size
    return memoryview(out)[:filled]


def _outline(data: memoryview) -> tuple[list[tuple[memoryview, bool, int]], int]:
    """The blocks of a frame, each with whether it is stored and the most that it makes.

    The second value is the most that all make together.
    """
    flags, block_bytes_max, position = _read_descriptor(data)
    trailer_bytes = 4 if flags & _BLOCK_CHECKSUM_BIT else 0
    blocks: list[tuple[memoryview, bool, int]] = []
    total = 0
    while (size_field := _read_uint32(data, position)) & ~_STORED_BIT:
        size = size_field & ~_STORED_BIT
        is_stored = size_field != size
        position += 4
        if size > block_bytes_max or len(data) - position < size + trailer_bytes:
            raise CorruptRecords(f"An LZ4 block of {size} bytes does not fit in its frame.")
        if len(blocks) == _BLOCKS_MAX:
            raise CorruptRecords(f"An LZ4 frame has more than {_BLOCKS_MAX} blocks.")
        # One byte of a block stands for at most 255 bytes: a short one needs no full-size room.
        room = size if is_stored else min(block_bytes_max, 255 * size)
        blocks.append((data[position : position + size], is_stored, room))
        total += room
        position += size + trailer_bytes
    position += 8 if flags & _CONTENT_CHECKSUM_BIT else 4
    if position != len(data):
        raise CorruptRecords("An LZ4 frame does not end where its data ends.")
    return blocks, total


def _decompress_block(block: memoryview, target: memoryview, room: int) -> int:
    """Decompress into `target`, which may be less than the block needs; returns the size."""
    try:
        return int(cramjam.lz4.decompress_block_into(block, target, output_len=len(target)))
    except cramjam.DecompressionError as error:
        if len(target) < room:
            # The library does not say which it is.
            raise RecordsTooLarge(
                f"An LZ4 block is damaged or decompresses to more than {len(target)} bytes."
            ) from error
        raise CorruptRecords(f"An LZ4 block does not decompress to {room} bytes.") from error


def _read_descriptor(data: memoryview) -> tuple[int, int, int]:
    """Returns the flags, the largest block size and the position of the first block."""
    if _read_uint32(data, 0) != _MAGIC or len(data) < len(_WRITTEN_HEADER):
        raise CorruptRecords("The data is not an LZ4 frame.")
    flags, block_descriptor = data[4], data[5]
    if flags >> 6 != 1 or flags & (_DICTIONARY_BIT | _RESERVED_FLAG_BIT):
        raise CorruptRecords(f"The LZ4 frame flags {flags:#04x} are not supported.")
    if not flags & _INDEPENDENT_BIT:
        raise CorruptRecords("An LZ4 frame whose blocks depend on each other is not supported.")
    if block_descriptor & 0x8F or block_descriptor >> 4 < 4:
        raise CorruptRecords(f"The LZ4 block descriptor {block_descriptor:#04x} is not supported.")
    end = 14 if flags & _CONTENT_SIZE_BIT else 6
    if len(data) <= end or data[end] != (_xxh32_short(data[4:end]) >> 8) & 0xFF:
        raise CorruptRecords("The descriptor of an LZ4 frame does not match its checksum.")
    return flags, 1 << (8 + 2 * (block_descriptor >> 4)), end + 1


def _read_uint32(data: memoryview, position: int) -> int:
    if len(data) - position < 4:
        raise CorruptRecords("An LZ4 frame is cut off.")
    value: int = _UINT32.unpack_from(data, position)[0]
    return value


def _xxh32_short(data: memoryview) -> int:
    """The 32-bit xxHash, seed 0, of fewer than 16 bytes: all that a frame descriptor needs."""
    mask = 0xFFFFFFFF
    value = (374761393 + len(data)) & mask
    words_end = len(data) & ~3
    for position in range(0, words_end, 4):
        value = (value + _read_uint32(data, position) * 3266489917) & mask
        value = ((value << 17 | value >> 15) * 668265263) & mask
    for byte in data[words_end:]:
        value = (value + byte * 374761393) & mask
        value = ((value << 11 | value >> 21) * 2654435761) & mask
    value = ((value ^ value >> 15) * 2246822519) & mask
    value = ((value ^ value >> 13) * 3266489917) & mask
    return value ^ value >> 16
