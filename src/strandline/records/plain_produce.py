"""A produce request that differs from an earlier one in its correlation id and its batch only.

    api key, version │ correlation id │ client id … partition │ length │ batch │ tags, if compact
    └── constant ────┘                └───── constant ────────┘

This file knows where the batch lies and whether it is the plain case. It has the pure-Python twin
of the compiled look at such a request (`_kernels/produced.pyx`) and takes the kernel where there is
one. It must not know what the constant bytes say, nor what becomes of a request that is not plain.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final, TypeAlias

from crc32c import crc32c

from strandline.records._kernels import compiled
from strandline.records.batch import (
    ATTRIBUTES_AT,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
)
from strandline.records.produced_records import newest_of_in_python

_kernel: Final[Any] = compiled("produced")

VERSION_END: Final = 4
"""Where the constant bytes are interrupted."""
CORRELATION_END: Final = 8
_INT32: Final = Struct(">i")
_NO_TAGS: Final = bytes(3)
"""Of the partition, the topic and the request."""
_CODECS: Final = frozenset(range(5))
_INT64_MAX: Final = 2**63 - 1

PlainProduce: TypeAlias = tuple[int, int, int, BatchHeader]
"""Correlation id, where the batch starts and ends, and its header: a bare tuple, which serves
wherever fields are taken by position."""


def plain_produce_in_python(
    frame: memoryview,
    constant: bytes,
    is_compact: bool,
    bytes_max: int,
    now_ms: int,
    before_max_ms: int,
    after_max_ms: int,
    wants_keys: bool,
    flags: int,
) -> PlainProduce | None:
    """What a request says that has these `constant` bytes and one batch that is the plain case.

    That is: at most `bytes_max` large, of a client, with a right checksum, no attributes but a
    codec and these `flags`, and records that `produced_records.newest_of` finds in order, with the
    newest timestamp that the header claims. Compressed records are not looked at: that is left to
    the caller. Timestamps may lie so far before and after `now_ms` as the two limits say. None for
    every other request; nothing is changed.
    """
    at = len(constant) + CORRELATION_END - VERSION_END
    if (
        at < CORRELATION_END
        or len(frame) < at + HEADER_BYTES
        or frame[:VERSION_END] != constant[:VERSION_END]
        or frame[CORRELATION_END:at] != constant[VERSION_END:]
    ):
        return None
    start, size = _compact_length(frame, at) if is_compact else (at + 4, _int32(frame, at))
    end = start + size
    if size <= HEADER_BYTES or size > bytes_max:
        return None
    if end + len(_NO_TAGS) != len(frame) if is_compact else end != len(frame):
        return None
    if is_compact and frame[end:] != _NO_TAGS:
        return None
    batch = frame[start:end]
    header: BatchHeader = HEADER.unpack_from(batch)  # type: ignore[assignment]
    if (
        header[0] != 0
        or header[1] != size - LOG_OVERHEAD
        or header[3] != MAGIC
        or header[5] - flags not in _CODECS
        or not header[12] == header[6] + 1 > 0
        or crc32c(batch[ATTRIBUTES_AT:]) != header[4]
    ):
        return None
    if header[5] == flags:
        earliest, latest = now_ms - before_max_ms, min(now_ms + after_max_ms, _INT64_MAX)
        newest = newest_of_in_python(
            batch, HEADER_BYTES, size, header[12], header[7], earliest, latest, wants_keys
        )
        if newest != header[8]:
            return None
    return _int32(frame, VERSION_END), start, end, header


def _int32(frame: memoryview, position: int) -> int:
    (value,) = _INT32.unpack_from(frame, position)
    return int(value)


def _compact_length(frame: memoryview, position: int) -> tuple[int, int]:
    """Where the records start and how long they are, from a compact length (one more)."""
    value = 0
    for shift in (0, 7, 14, 21, 28):
        byte = frame[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
    return position, value - 1


plain_produce = plain_produce_in_python if _kernel is None else _kernel.plain_produce
