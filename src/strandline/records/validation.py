"""Which batches a leader takes, and what it changes in them before they are appended.

This file knows a topic's rules for what is appended. It must not know offsets or leader epochs
(the log assigns them), nor producers' sequences (the log's producer state checks them).

A produce request holds exactly one batch per partition. Its records are walked, decompressed for
that if need be: what readers could not read is not acknowledged, and the largest timestamp, on
which retention and lookups by time depend, is the records' and not what the header claims. In the
common case the batch is then appended as it came. The order of the checks, their codes and their
limits are those of Kafka 4.3 (`ProduceRequest.validateRecords`, `UnifiedLog.append`,
`LogValidator`), with these differences:

- Offset deltas must count up from 0 (Kafka asks that of compressed batches only), and every field
  must be as its readers want it (Kafka skips over keys, values and headers in compressed batches).
- A codec that does not exist is UNSUPPORTED_COMPRESSION_TYPE (Kafka: UNKNOWN_SERVER_ERROR).
- Malformed records or compressed data under a right checksum are always INVALID_RECORD: sending
  them again, which CORRUPT_MESSAGE asks for, cannot help (Kafka: sometimes UNKNOWN_SERVER_ERROR).
- What decompresses to more than `AppendRules.max_decompressed_bytes` is MESSAGE_TOO_LARGE (Kafka
  has no limit).
- A client's batch with a delete horizon is INVALID_RECORD: only compaction decides when tombstones
  may go (Kafka takes it). The unused attribute bits 7 to 15 are ignored, as in Kafka.
- Recompression packs the same records anew without rewriting them one by one. (A batch whose
  producer wrongly claimed LogAppendTime so keeps its records' own times under CreateTime, as it
  does in Kafka too unless it is recompressed.)
"""

from __future__ import annotations

from typing import NamedTuple

from strandline.errors import CorruptRecords, ErrorCode, ProtocolError, RecordsTooLarge
from strandline.records.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD,
    BatchHeader,
    Buffer,
    TimestampType,
    WritableBuffer,
    set_max_timestamp,
    verify_crc,
)
from strandline.records.builder import join_batch
from strandline.records.codec import Codec
from strandline.records.compression import compress, inflate
from strandline.records.produced_framing import only_batch
from strandline.records.record_checks import (
    RecordError,
    RecordsRejectedError,
    newest_timestamp,
)
from strandline.records.rules import AppendRules
from strandline.types import NO_TIMESTAMP

__all__ = [
    "AppendRules",
    "RecordError",
    "RecordsRejectedError",
    "ValidatedBatch",
    "validate_client_batch",
]


class ValidatedBatch(NamedTuple):
    """A batch that may be appended once it has its offset and leader epoch."""

    buffer: memoryview
    """Writable, exactly the batch: a part of the buffer that came, or a new one."""
    header: BatchHeader
    """The header as it now stands in the buffer."""
    log_append_time_ms: int
    """The time that the batch was stamped with; -1 on a topic with CreateTime."""
    is_repacked: bool
    """Whether the records were compressed anew, so that `buffer` is a new one."""


def validate_client_batch(
    buffer: WritableBuffer, rules: AppendRules, now_ms: int
) -> ValidatedBatch:
    """Check the records of one partition in a produce request; they must be one batch.

    Bytes of an incomplete batch behind the first are dropped, as Kafka does. `now_ms` is the wall
    time. The buffer is changed in place only when the batch is accepted. Raises `ProtocolError`;
    errors of single records come as its subclass `RecordsRejectedError`.
    """
    header = only_batch(buffer)
    size = header.length + LOG_OVERHEAD
    if header.base_offset != 0 and not rules.allow_control:
        raise _invalid(f"A produced batch must have the base offset 0, not {header.base_offset}.")
    _check_size(size, rules.max_message_bytes)
    if not verify_crc(buffer, 0, size):
        raise ProtocolError(
            ErrorCode.CORRUPT_MESSAGE, "The record batch does not match its checksum."
        )
    if header.attributes & CODEC_MASK > Codec.ZSTD:
        raise ProtocolError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"There is no compression codec {header.attributes & CODEC_MASK}.",
        )
    if not rules.allow_control:
        _check_client_fields(header)

    batch = memoryview(buffer)[:size]
    payload: Buffer
    if header.attributes & CODEC_MASK:
        payload, start = _open(header, batch, rules), 0
    else:
        payload, start = batch, HEADER_BYTES
    max_timestamp = newest_timestamp(header, payload, rules, now_ms, start)
    is_repacked = rules.codec is not None and _must_repack(header, rules.codec)
    if is_repacked:
        batch = _repack(header, memoryview(payload)[start:], rules)
        header = BatchHeader._make(HEADER.unpack_from(batch))
    if len(batch) > rules.segment_bytes:
        raise ProtocolError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"A batch of {len(batch)} bytes does not fit in a segment of {rules.segment_bytes}.",
        )
    append_time = NO_TIMESTAMP
    if rules.timestamp_type is TimestampType.LOG_APPEND_TIME:
        append_time = max_timestamp = now_ms
    if max_timestamp != header.max_timestamp or header.timestamp_type is not rules.timestamp_type:
        # The only change in place, and the last step: nothing can be refused after it.
        set_max_timestamp(batch, 0, rules.timestamp_type, max_timestamp)
        header = BatchHeader._make(HEADER.unpack_from(batch))
    return ValidatedBatch(batch, header, append_time, is_repacked)


def _check_client_fields(header: BatchHeader) -> None:
    """What only a client's batch must satisfy; a coordinator's own is trusted with it."""
    count = header.record_count
    if count <= 0 or header.last_offset_delta + 1 != count:
        raise _invalid(
            f"A batch declares {count} records and the last offset delta "
            f"{header.last_offset_delta}."
        )
    if header.attributes & (CONTROL_BIT | DELETE_HORIZON_BIT):
        raise _invalid("A client may write neither control batches nor delete horizons.")
    if header.producer_id > -1 and header.base_sequence < 0:
        raise _invalid(
            f"The batch of producer {header.producer_id} has the sequence {header.base_sequence}."
        )


def _check_size(size: int, max_message_bytes: int) -> None:
    if size > max_message_bytes:
        raise ProtocolError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch takes {size} bytes; the topic allows {max_message_bytes} "
            f"(max.message.bytes).",
        )


def _open(header: BatchHeader, batch: memoryview, rules: AppendRules) -> Buffer:
    try:
        return inflate(header.codec, batch[HEADER_BYTES:], rules.max_decompressed_bytes)
    except RecordsTooLarge as error:
        # Java's producer splits a batch that gets this answer and sends the parts.
        raise ProtocolError(ErrorCode.MESSAGE_TOO_LARGE, str(error)) from error
    except CorruptRecords as error:
        raise _invalid(str(error)) from error


def _must_repack(header: BatchHeader, target: Codec) -> bool:
    source = header.attributes & CODEC_MASK
    # Control records stay uncompressed, whatever the topic says.
    return source != target and not (header.attributes & CONTROL_BIT and source == Codec.NONE)


def _repack(header: BatchHeader, payload: memoryview, rules: AppendRules) -> memoryview:
    codec = Codec.NONE if rules.codec is None else rules.codec
    repacked = header._replace(attributes=header.attributes & ~CODEC_MASK | codec)
    batch = join_batch(repacked, compress(codec, payload, rules.level))
    _check_size(len(batch), rules.max_message_bytes)
    return memoryview(batch)


def _invalid(message: str) -> ProtocolError:
    return ProtocolError(ErrorCode.INVALID_RECORD, message)
