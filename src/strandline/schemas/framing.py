"""Confluent's framing: a zero byte and a schema id in front of the value.

+------+-----------------+---------
| 0x00 | id, 4 bytes, BE | payload
+------+-----------------+---------
"""

from __future__ import annotations

from typing import Final

from strandline.schemas.errors import Unreadable

HEAD_BYTES: Final = 5


def is_framed(value: bytes) -> bool:
    """Whether the value begins like a framed one; any zero byte and 4 more do."""
    return len(value) >= HEAD_BYTES and value[0] == 0


def unframe(value: bytes) -> tuple[int, bytes]:
    """The schema id and the payload; raises `Unreadable`."""
    if not is_framed(value):
        raise Unreadable("The value does not begin with a schema id (a zero byte and 4 more).")
    return int.from_bytes(value[1:HEAD_BYTES], "big"), value[HEAD_BYTES:]
