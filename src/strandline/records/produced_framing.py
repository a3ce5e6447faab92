"""Where the batches of a produce request begin and end, before any of them is looked into.

This file knows the frames of batches, of old formats too. It must not know what a topic accepts
(`validation.py`) nor what records are. The shapes are told apart as Kafka 4.3 does it
(`ByteBufferLogInputStream`, `ProduceRequest.validateRecords`).
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from strandline.errors import ErrorCode, ProtocolError
from strandline.records.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    verify_crc,
)
from strandline.records.codec import Codec

_INT32: Final = Struct(">i")
_LENGTH_AT: Final = 8
_SMALLEST_LENGTH: Final = 14
"""The length field of the smallest record of magic 0: below it, the bytes are no batch at all."""
_FLAGS_AT: Final = ATTRIBUTES_AT + 1
"""The lower byte of the attributes, which has all the bits that mean something."""


def begins_with_transactional_batch(buffer: Buffer) -> bool:
    """Whether the first batch, if it is all there and undamaged, is part of a transaction.

    Raises `ProtocolError` with CORRUPT_MESSAGE where the bytes cannot be a batch.
    """
    return _begins_with(buffer, TRANSACTIONAL_BIT, TRANSACTIONAL_BIT)


def begins_with_zstd(buffer: Buffer) -> bool:
    """The same of a batch that is compressed with zstd."""
    return _begins_with(buffer, CODEC_MASK, Codec.ZSTD)


def _begins_with(buffer: Buffer, mask: int, wanted: int) -> bool:
    """Unlike in Kafka, a damaged batch has no attributes: the bit may be what is damaged, or whose
    transaction it is. Its append is refused with CORRUPT_MESSAGE, upon which producers send it
    again, where what is said of transactions and codecs ends them."""
    size = whole_batch_size(buffer, 0)
    return (
        size is not None
        and size > _FLAGS_AT
        and buffer[MAGIC_AT] == MAGIC
        and buffer[_FLAGS_AT] & mask == wanted
        and verify_crc(buffer, 0, size)
    )


def only_batch(buffer: Buffer) -> BatchHeader:
    """The header of the one batch that the records of a partition must be.

    Raises `ProtocolError`.
    """
    if len(buffer) >= HEADER_BYTES:
        header = BatchHeader._make(HEADER.unpack_from(buffer))
        if header.magic == MAGIC and header.length + LOG_OVERHEAD == len(buffer):
            return header
    return _only_framed_batch(buffer)


def _only_framed_batch(buffer: Buffer) -> BatchHeader:
    """The uncommon shapes: none, old format, several, a cut-off tail."""
    size = whole_batch_size(buffer, 0)
    if size is None:
        raise _invalid("A produce request must have one record batch per partition.")
    if buffer[MAGIC_AT] != MAGIC:
        raise _invalid(f"Records must be in format {MAGIC}, not {buffer[MAGIC_AT]}.")
    if whole_batch_size(buffer, size) is not None:
        raise _invalid("A produce request may have only one record batch per partition.")
    if size < HEADER_BYTES:
        raise ProtocolError(
            ErrorCode.CORRUPT_MESSAGE, f"A record batch of {size} bytes has no room for its header."
        )
    return BatchHeader._make(HEADER.unpack_from(buffer))


def whole_batch_size(buffer: Buffer, position: int) -> int | None:
    """The size of the batch at `position`, or None when it is not there completely.

    Raises `ProtocolError` with CORRUPT_MESSAGE where the bytes cannot be a batch.
    """
    remaining = len(buffer) - position
    if remaining < LOG_OVERHEAD:
        return None
    length: int = _INT32.unpack_from(buffer, position + _LENGTH_AT)[0]
    if length < _SMALLEST_LENGTH:
        raise ProtocolError(
            ErrorCode.CORRUPT_MESSAGE, f"A record batch gives its length as {length}."
        )
    if remaining <= MAGIC_AT:
        return None
    if buffer[position + MAGIC_AT] > MAGIC:
        raise ProtocolError(
            ErrorCode.CORRUPT_MESSAGE,
            f"A record batch has the unknown magic {buffer[position + MAGIC_AT]}.",
        )
    size = length + LOG_OVERHEAD
    return size if size <= remaining else None


def _invalid(message: str) -> ProtocolError:
    return ProtocolError(ErrorCode.INVALID_RECORD, message)
