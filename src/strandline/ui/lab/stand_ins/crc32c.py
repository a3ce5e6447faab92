"""CRC-32C in Python, in place of the compiled package, which does not exist for browsers.

One table of 256 entries: the records of a scenario are short. A test compares it with the package.
"""

from __future__ import annotations

from collections.abc import Iterator

_POLYNOMIAL = 0x82F63B78


def _entries() -> Iterator[int]:
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        yield value


_TABLE = tuple(_entries())


def crc32c(data: bytes | bytearray | memoryview, value: int = 0) -> int:
    """The checksum of `data`, which follows bytes of the checksum `value`."""
    table = _TABLE
    crc = value ^ 0xFFFFFFFF
    for byte in bytes(data):
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF
