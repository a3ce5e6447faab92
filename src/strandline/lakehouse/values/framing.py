"""Confluent's framing: a zero byte and a schema id in front of the value.

    +------+-----------------+---------
    | 0x00 | id, 4 bytes, BE | payload
    +------+-----------------+---------

With Protobuf, the payload begins with the path to the message in its file: a count and as many
positions, as zigzag varints; a single 0 byte means the first message.
"""

from __future__ import annotations

from typing import Final

from strandline.lakehouse.values.decoding import BAD_VALUE, Unfit

_HEAD: Final = 5
_PATH_MAX: Final = 32


def unframe(value: bytes) -> tuple[int, bytes]:
    """The schema id and the payload; raises Unfit."""
    if len(value) < _HEAD or value[0] != 0:
        raise Unfit(
            BAD_VALUE, "The value does not begin with a schema id (a zero byte and 4 more)."
        )
    return int.from_bytes(value[1:_HEAD], "big"), value[_HEAD:]


def skip_message_path(payload: bytes) -> bytes:
    """What follows the path to the message; raises Unfit."""
    count, at = _zigzag(payload, 0)
    if not 0 <= count <= _PATH_MAX:
        raise Unfit(BAD_VALUE, "The path to the message is damaged.")
    for _ in range(count):
        _, at = _zigzag(payload, at)
    return payload[at:]


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while at < len(data) and shift <= 28:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
    raise Unfit(BAD_VALUE, "The path to the message is damaged.")
