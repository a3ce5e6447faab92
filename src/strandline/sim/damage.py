"""Bit flips in flight (F-33), in places where it is certain what must come of them.

TCP's checksum finds most flips; what it misses can be anywhere. A flip in an offset, an error code
or a partition's number would be believed, by Kafka as well as here: no checksum covers them. So a
test of what a receiver does about flips must choose the bits:

- `flip_in_records`: a bit of a record batch, in its CRC or in what the CRC covers. The receiver
  must refuse the batch: a broker answers CORRUPT_MESSAGE, a follower fetches again, a consumer
  reports it. It never gets into a log, nor to an application (I-47).
- `flip_in_size`: the sign bit of a frame's size. The receiver must end the connection.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

_LENGTH_AT: Final = 8
_MAGIC_AT: Final = 16
_CRC_AT: Final = 17
_COVERED_AT: Final = 21
_HEADER_BYTES: Final = 61
_LENGTH_FROM: Final = 12
"""A batch's length field counts what follows it."""
_MAGIC: Final = b"\x02"
_INT: Final = Struct(">i")
_UNSIGNED: Final = Struct(">I")


class Range(NamedTuple):
    """A part of some bytes."""

    start: int
    end: int


def flip_in_records(data: bytes, draw: Callable[[int], int]) -> bytes | None:
    """The data with one bit of one record batch flipped; None if there is no whole batch in it."""
    batches = find_batches(data)
    if not batches:
        return None
    start, end = batches[draw(len(batches))]
    return _flipped(data, start + _CRC_AT + draw(end - start - _CRC_AT), draw(8))


def flip_in_size(data: bytes, draw: Callable[[int], int]) -> bytes | None:
    """The data with the sign bit of its first frame's size flipped.

    None if it does not begin with a whole frame: then it may be the rest of one.
    """
    del draw
    if len(data) < _INT.size or not 0 <= _INT.unpack_from(data)[0] <= len(data) - _INT.size:
        return None
    return _flipped(data, 0, 7)


def find_batches(data: bytes) -> list[Range]:
    """The record batches in a frame, wherever they are: known by their length and CRC."""
    found: list[Range] = []
    position = 0
    while (magic_at := data.find(_MAGIC, position + _MAGIC_AT)) >= 0:
        start = magic_at - _MAGIC_AT
        end = _end_of_batch(data, start)
        if end is None:
            position = start + 1
        else:
            found.append(Range(start, end))
            position = end
    return found


def _end_of_batch(data: bytes, start: int) -> int | None:
    if len(data) - start < _HEADER_BYTES:
        return None
    end: int = start + _LENGTH_FROM + _INT.unpack_from(data, start + _LENGTH_AT)[0]
    if not start + _HEADER_BYTES <= end <= len(data):
        return None
    (crc,) = _UNSIGNED.unpack_from(data, start + _CRC_AT)
    return end if crc32c(memoryview(data)[start + _COVERED_AT : end]) == crc else None


def _flipped(data: bytes, at: int, bit: int) -> bytes:
    flipped = bytearray(data)
    flipped[at] ^= 1 << bit
    return bytes(flipped)
