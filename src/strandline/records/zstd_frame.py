"""How large Zstandard data may become, found from its block headers alone (RFC 8878).

This file reads the outline of frames and decompresses nothing.

The library's readers either grow their output without a limit or fill a buffer that they are given.
To give a buffer that is large enough yet not larger than needed, the outline is walked first: a raw
or repeated block states its exact size, a compressed block makes at most 128 KiB, and a frame may
state its content size. So a bomb is known before a byte is allocated, and Java's frames, which are
written as a stream and state no content size, need no guessing either.
"""

from __future__ import annotations

from typing import Final

from strandline.errors import CorruptRecords

_MAGIC: Final = 0xFD2FB528
_SKIPPABLE_MAGIC: Final = 0x184D2A50
_BLOCK_BYTES_MAX: Final = 128 * 1024
_BLOCKS_MAX: Final = 1 << 15
"""Most blocks of all frames together, and most frames. Writers fill their blocks, so that this many
hold 4 GiB; each costs a round in Python."""
_DICTIONARY_ID_BYTES: Final = (0, 1, 2, 4)


def content_bytes_max(data: memoryview) -> int:
    """An upper bound of what the frames in `data` decompress to; they must fill it exactly."""
    total = 0
    position = 0
    blocks_left = _BLOCKS_MAX
    for _ in range(_BLOCKS_MAX):
        if position >= len(data):
            break
        magic = _read_little(data, position, 4)
        if magic & ~0xF == _SKIPPABLE_MAGIC:
            position += 8 + _read_little(data, position + 4, 4)
        elif magic == _MAGIC:
            content, position, blocks_left = _walk_frame(data, position + 4, blocks_left)
            total += content
        else:
            raise CorruptRecords("The data is not a Zstandard frame.")
    if position != len(data):
        raise CorruptRecords("A Zstandard frame is cut off.")
    return total


def _walk_frame(data: memoryview, position: int, blocks_left: int) -> tuple[int, int, int]:
    """The most that the frame's blocks make, the position behind it, and the blocks left."""
    descriptor = _read_little(data, position, 1)
    single_segment = bool(descriptor & 0x20)
    position += 1
    window = 0
    if not single_segment:
        window_descriptor = _read_little(data, position, 1)
        window = 1 << (10 + (window_descriptor >> 3))
        window += (window >> 3) * (window_descriptor & 7)
        position += 1
    position += _DICTIONARY_ID_BYTES[descriptor & 3]
    stated_size, position = _read_content_size(data, position, descriptor)
    if single_segment and stated_size is not None:
        window = stated_size
    limits = min(window, _BLOCK_BYTES_MAX), blocks_left
    content, position, blocks_left = _walk_blocks(data, position, *limits)
    position += 4 if descriptor & 0x04 else 0
    return content if stated_size is None else min(content, stated_size), position, blocks_left


def _read_content_size(data: memoryview, position: int, descriptor: int) -> tuple[int | None, int]:
    match descriptor >> 6:
        case 0:
            if not descriptor & 0x20:
                return None, position
            return _read_little(data, position, 1), position + 1
        case 1:
            return _read_little(data, position, 2) + 256, position + 2
        case 2:
            return _read_little(data, position, 4), position + 4
        case _:
            return _read_little(data, position, 8), position + 8


def _walk_blocks(
    data: memoryview, position: int, block_bytes_max: int, blocks_left: int
) -> tuple[int, int, int]:
    total = 0
    last = False
    while not last:
        blocks_left -= 1
        if blocks_left < 0:
            raise CorruptRecords(f"Zstandard data has more than {_BLOCKS_MAX} blocks.")
        header = _read_little(data, position, 3)
        position += 3
        last = bool(header & 1)
        size = header >> 3
        match header >> 1 & 3:
            case 0:
                total += size
                position += size
            case 1:
                total += size
                position += 1
            case 2:
                total += block_bytes_max
                position += size
            case _:
                raise CorruptRecords("A Zstandard block has a type that does not exist.")
    return total, position, blocks_left


def _read_little(data: memoryview, position: int, size: int) -> int:
    if len(data) - position < size:
        raise CorruptRecords("A Zstandard frame is cut off.")
    return int.from_bytes(data[position : position + size], "little")
