"""The few primitive encodings of `__consumer_offsets` records and of the consumer protocol.

Big endian. Strings are UTF-8 of at most 32,767 bytes; null is length -1. The flexible forms
(KIP-482) have an unsigned varint for length + 1, so that null is 0. Lengths are checked against
what is there before anything is allocated. Damage is `CorruptRecords`.
"""

from __future__ import annotations

import struct
from uuid import UUID

from strandline.errors import CorruptRecords, InvariantViolated

STRING_BYTES_MAX = 0x7FFF
_VARINT_BYTES_MAX = 5


class Reader:
    """Reads primitives from the front of a buffer to its end."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = memoryview(data)
        self._position = 0

    @property
    def remaining(self) -> int:
        """How many bytes have not been read."""
        return len(self._data) - self._position

    def take(self, length: int) -> bytes:
        """The next `length` bytes."""
        if length < 0 or length > self.remaining:
            raise CorruptRecords(f"{length} bytes are announced where {self.remaining} are left.")
        start = self._position
        self._position += length
        return bytes(self._data[start : self._position])

    def int16(self) -> int:
        """A signed 16-bit integer."""
        return int.from_bytes(self.take(2), "big", signed=True)

    def int32(self) -> int:
        """A signed 32-bit integer."""
        return int.from_bytes(self.take(4), "big", signed=True)

    def int64(self) -> int:
        """A signed 64-bit integer."""
        return int.from_bytes(self.take(8), "big", signed=True)

    def uuid(self) -> UUID:
        """A UUID, most significant byte first."""
        return UUID(bytes=self.take(16))

    def varint(self) -> int:
        """An unsigned 32-bit integer of one to five bytes, low bits first."""
        value = 0
        for index in range(_VARINT_BYTES_MAX):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return value
        raise CorruptRecords("A varint is longer than five bytes.")

    def string(self, *, flexible: bool = False) -> str:
        """A string that must not be null."""
        text = self.nullable_string(flexible=flexible)
        if text is None:
            raise CorruptRecords("A string is null that must not be.")
        return text

    def nullable_string(self, *, flexible: bool = False) -> str | None:
        """A string, or None."""
        length = self.varint() - 1 if flexible else self.int16()
        if length < 0:
            return None
        if length > STRING_BYTES_MAX:
            raise CorruptRecords(f"A string of {length} bytes is too long.")
        try:
            return self.take(length).decode()
        except UnicodeDecodeError as error:
            raise CorruptRecords("A string is not UTF-8.") from error

    def blob(self, *, flexible: bool = False) -> bytes:
        """Bytes that must not be null."""
        return self.take(self.varint() - 1 if flexible else self.int32())

    def count(self, *, flexible: bool = False) -> int:
        """The number of entries of an array; each takes a byte at least."""
        entries = self.varint() - 1 if flexible else self.int32()
        if not 0 <= entries <= self.remaining:
            raise CorruptRecords(f"{entries} entries are announced in {self.remaining} bytes.")
        return entries

    def tagged_fields(self) -> dict[int, bytes]:
        """The tagged fields at the end of a flexible structure, by tag."""
        fields = {}
        for _ in range(self.varint()):
            tag = self.varint()
            fields[tag] = self.take(self.varint())
        return fields


class Writer:
    """Collects primitives; the counterpart of `Reader`."""

    def __init__(self) -> None:
        self._data = bytearray()

    def done(self) -> bytes:
        """What has been written."""
        return bytes(self._data)

    def int16(self, value: int) -> None:
        """A signed 16-bit integer."""
        self._data += struct.pack(">h", value)

    def int32(self, value: int) -> None:
        """A signed 32-bit integer."""
        self._data += struct.pack(">i", value)

    def int64(self, value: int) -> None:
        """A signed 64-bit integer."""
        self._data += struct.pack(">q", value)

    def raw(self, data: bytes) -> None:
        """Bytes as they are."""
        self._data += data

    def varint(self, value: int) -> None:
        """An unsigned integer, low bits first."""
        while value >= 0x80:
            self._data.append(value & 0x7F | 0x80)
            value >>= 7
        self._data.append(value)

    def string(self, text: str | None, *, flexible: bool = False) -> None:
        """A string, or null. Whoever lets a longer one in has a bug: requests are limited."""
        if text is None:
            if flexible:
                self.varint(0)
            else:
                self.int16(-1)
            return
        data = text.encode()
        if len(data) > STRING_BYTES_MAX:
            raise InvariantViolated(f"A string of {len(data)} bytes cannot be written.")
        if flexible:
            self.varint(len(data) + 1)
        else:
            self.int16(len(data))
        self._data += data

    def blob(self, data: bytes, *, flexible: bool = False) -> None:
        """Bytes with their length."""
        self.count(len(data), flexible=flexible)
        self._data += data

    def count(self, entries: int, *, flexible: bool = False) -> None:
        """The number of entries of an array."""
        if flexible:
            self.varint(entries + 1)
        else:
            self.int32(entries)


def utf16_length(text: str) -> int:
    """The length of a string as Java counts it."""
    return len(text) + sum(character > "\uffff" for character in text)
