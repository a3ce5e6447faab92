"""Confluent's framing (`strandline.schemas.framing`) as decoders of tables take it off.

With Protobuf, the payload begins with the path to the message in its file: a count and as many
positions, as zigzag varints; a single 0 byte means the first message.
"""

from __future__ import annotations

from typing import Final

from strandline.lakehouse.values.decoding import BAD_VALUE, Unfit
from strandline.schemas import framing
from strandline.schemas.errors import Unreadable

_PATH_MAX: Final = 32


def unframe(value: bytes) -> tuple[int, bytes]:
    """The schema id and the payload; raises Unfit."""
    try:
        return framing.unframe(value)
    except Unreadable as error:
        raise Unfit(BAD_VALUE, str(error)) from None


def message_path(payload: bytes) -> tuple[tuple[int, ...], bytes]:
    """The path to the message in its file, and what follows it; raises Unfit."""
    count, at = _zigzag(payload, 0)
    if not 0 <= count <= _PATH_MAX:
        raise Unfit(BAD_VALUE, "The path to the message is damaged.")
    path = []
    for _ in range(count):
        position, at = _zigzag(payload, at)
        if position < 0:
            raise Unfit(BAD_VALUE, "The path to the message is damaged.")
        path.append(position)
    return tuple(path) or (0,), payload[at:]


def looks_framed(value: bytes | None) -> str:
    """A sentence about a plain value that begins as framed ones do; empty for others."""
    if value is None or not framing.is_framed(value):
        return ""
    number, _ = framing.unframe(value)
    return (
        f" It looks framed: a zero byte and the schema id {number} stand in front "
        "(table create --registry URL)."
    )


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
