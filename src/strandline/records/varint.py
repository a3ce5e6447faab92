"""Zig-zag variable-length integers, as the fields of a record use them.

This file knows how one integer is laid out and nothing of what it means.

A varint holds seven bits per byte, least significant group first; the top bit of a byte says that
another byte follows. Signed numbers are folded first so that small negative ones stay short:
0, -1, 1, -2, 2 ... become 0, 1, 2, 3, 4 ... (the encoding of Protocol Buffers, which Kafka took
over in KIP-98). A `varint` holds 32 bits in at most 5 bytes, a `varlong` 64 bits in at most 10.

Readers are strict: a number that runs past the end, past its longest form, or past its width is
`CorruptRecords`. (Kafka drops the bits above the width; no writer sets them.)
"""

from __future__ import annotations

from strandline.errors import CorruptRecords


def write_varint(out: bytearray, value: int) -> None:
    """Append a signed number. Serves both widths: the bytes are the same for the same number."""
    if 0 <= value < 0x40:  # nearly all sizes of small records
        out.append(value << 1)
        return
    folded = value << 1 if value >= 0 else (-value << 1) - 1
    while folded > 0x7F:
        out.append((folded & 0x7F) | 0x80)
        folded >>= 7
    out.append(folded)


def varint_size(value: int) -> int:
    """How many bytes `write_varint` appends for this number."""
    folded = value << 1 if value >= 0 else (-value << 1) - 1
    return max(1, (folded.bit_length() + 6) // 7)


def read_varint(buffer: bytes | memoryview, position: int, end: int) -> tuple[int, int]:
    """Read a signed 32-bit number; returns it and the position behind it."""
    # One and two bytes are nearly all there is; the loop costs twice as much.
    if position + 1 < end:
        first = buffer[position]
        if first < 0x80:
            return (first >> 1) ^ -(first & 1), position + 1
        second = buffer[position + 1]
        if second < 0x80:
            folded = first & 0x7F | second << 7
            return (folded >> 1) ^ -(folded & 1), position + 2
    return _read(buffer, position, end, 32)


def read_varlong(buffer: bytes | memoryview, position: int, end: int) -> tuple[int, int]:
    """Read a signed 64-bit number; returns it and the position behind it."""
    if position < end and buffer[position] < 0x80:
        folded = buffer[position]
        return (folded >> 1) ^ -(folded & 1), position + 1
    return _read(buffer, position, end, 64)


def _read(buffer: bytes | memoryview, position: int, end: int, bits: int) -> tuple[int, int]:
    folded = 0
    shift = 0
    while shift < bits:
        if position >= end:
            raise CorruptRecords("A variable-length number runs past the end of its record.")
        byte = buffer[position]
        position += 1
        folded |= (byte & 0x7F) << shift
        if byte < 0x80:
            if folded >> bits:
                raise CorruptRecords(f"A variable-length number does not fit in {bits} bits.")
            return (folded >> 1) ^ -(folded & 1), position
        shift += 7
    raise CorruptRecords(f"A variable-length number is longer than {bits} bits allow.")
