"""The pieces that generated codecs call: variable-length integers, tags, records, refusals.

    unsigned varint     7 bits per byte, low bits first, top bit set on all but the last byte
    compact length      unsigned varint of length + 1; 0 stands for null           (KIP-482)
    tagged fields       varint count, then per field: varint tag, varint size, `size` bytes

Whatever the generated code can do in one or two instructions it does in place; only the uncommon
turn (a length over 126, a tag that is present, a refusal) comes here.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NoReturn, Protocol, TypeAlias
from uuid import UUID

from strandline.errors import ErrorCode, InvariantViolated, MalformedFrame, ProtocolError

STRING_BYTES_MAX: Final = 0x7FFF
"""Kafka refuses longer strings even where the compact encoding could say more."""

COPIED_RECORDS_BYTES_MAX: Final = 16 * 1024
"""Records up to this size are copied into the message: cheaper than one more chunk to send."""

Buffer: TypeAlias = bytes | bytearray | memoryview


ANY_NUMBER: Final = 2**62
"""Of elements in a message: no limit but its bytes."""


class RecordsRange(Protocol):
    """Records that are somewhere else, for instance in a log file: only their size is known here.

    The encoder writes the length and leaves the object itself among the chunks, so that the
    sender can pass them on (sendfile) without the bytes ever entering the process.
    """

    @property
    def length(self) -> int:
        """Number of bytes that will be sent in this place."""


Records: TypeAlias = Buffer | list[Buffer] | tuple[Buffer, ...] | RecordsRange
Chunk: TypeAlias = Buffer | RecordsRange


def read_long_varint(buffer: memoryview, position: int) -> tuple[int, int]:
    """Read an unsigned varint that starts at `position`; returns it and the position behind it."""
    value = 0
    for shift in (0, 7, 14, 21, 28):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0x7FFF_FFFF:
                break
            return value, position
    raise MalformedFrame("A variable-length integer does not fit in 31 bits.")


def varint(value: int) -> bytes:
    """Encode an unsigned varint."""
    if value < 0x80:
        return bytes((value,))
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def long_string_length(size_plus_one: int) -> bytes:
    """Compact length of a string of 127 bytes or more."""
    if size_plus_one > STRING_BYTES_MAX + 1:
        raise InvariantViolated(
            f"A string of {size_plus_one - 1} bytes was to be sent; {STRING_BYTES_MAX} fit."
        )
    return varint(size_plus_one)


def skip_tagged_fields(
    buffer: memoryview, position: int, limit: int, count: int, elements: int
) -> tuple[int, int]:
    """Step over `count` tagged unknown fields. Returns the position behind them, and how many of
    the `elements` that the message may still have are left.

    `count` is its first byte as read; a longer varint is completed from `position`.
    """
    if count > 127:
        count, position = read_long_varint(buffer, position - 1)
    elements -= count
    if elements < 0:
        refuse_elements()
    for _ in range(count):
        _, position = read_long_varint(buffer, position)
        size, position = read_long_varint(buffer, position)
        position += size
        if position > limit:
            raise MalformedFrame("A tagged field reaches past the end of the message.")
    return position, elements


@lru_cache(maxsize=4096)
def uuid_of(raw: bytes) -> UUID:
    """A UUID from its 16 bytes. Topic ids repeat in every request, building a UUID takes 1 us."""
    return UUID(bytes=raw)


def records_size(value: Records) -> int:
    """Bytes that the records take on the wire."""
    if isinstance(value, (bytes, bytearray)):
        return len(value)
    if isinstance(value, memoryview):
        return value.nbytes
    if isinstance(value, (list, tuple)):
        return sum(records_size(part) for part in value)
    return value.length


def put_records(value: Records, out: bytearray, chunks: list[Chunk]) -> bytearray:
    """Put records behind `out`: small ones are copied, others become chunks of their own.

    Returns the buffer in which the message goes on.
    """
    if isinstance(value, (list, tuple)):
        for part in value:
            out = put_records(part, out, chunks)
        return out
    if isinstance(value, (bytes, bytearray, memoryview)) and (
        memoryview(value).nbytes <= COPIED_RECORDS_BYTES_MAX
    ):
        out += value
        return out
    if out:
        chunks.append(out)
    chunks.append(value)
    return bytearray()


def refuse_null(field: str) -> NoReturn:
    """A field that must not be null arrived as null."""
    raise MalformedFrame(f"The field {field} is null or has a negative length.")


def refuse_length(field: str) -> NoReturn:
    """A length that is negative, over its limit, or more than the frame holds."""
    raise MalformedFrame(f"The length of the field {field} is not possible.")


def refuse_count(field: str) -> NoReturn:
    """An array that claims more elements than the rest of the frame can hold."""
    raise MalformedFrame(f"The field {field} has a count that its frame cannot hold.")


def refuse_elements() -> NoReturn:
    """A message of more elements than are read."""
    raise MalformedFrame("A message has too many elements.")


def refuse_tag(field: str) -> NoReturn:
    """A tagged field whose content does not have the announced size."""
    raise MalformedFrame(f"The tagged field {field} does not have the size it announces.")


def cannot_send(message: str, field: str, version: int) -> NoReturn:
    """A value that this version has no place for, and that must not be lost silently."""
    raise ProtocolError(
        ErrorCode.UNSUPPORTED_VERSION,
        f"Version {version} of {message} has no place for a value of {field}.",
    )


def cannot_send_null(message: str, field: str, version: int) -> NoReturn:
    """A null that only later versions can express."""
    raise ProtocolError(
        ErrorCode.UNSUPPORTED_VERSION,
        f"In version {version} of {message} the field {field} cannot be null.",
    )
