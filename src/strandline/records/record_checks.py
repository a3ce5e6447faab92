"""What a topic demands of single records: a key, and a timestamp near the present.

This file knows rules for records, and the codes for what breaks them. It must not know framing,
sizes or codecs (`validation.py`), nor how records are read (`produced_records.py`).

A refused batch is refused whole, and the client is told which records were the reason (KIP-467).
When any of them has a wrong timestamp the code is INVALID_TIMESTAMP, otherwise INVALID_RECORD. A
batch with a record that cannot be read is INVALID_RECORD, whatever else is wrong with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from strandline.errors import ErrorCode, ProtocolError
from strandline.records.batch import TIMESTAMP_TYPE_BIT, BatchHeader, Buffer, TimestampType
from strandline.records.produced_records import Refused, Terms, look_closely, newest_of
from strandline.records.rules import AppendRules
from strandline.types import NO_TIMESTAMP

_ERRORS_MAX: Final = 1000
"""Most records that a refusal names, so that its size has a limit (Kafka names all)."""
_NEVER: Final = (1, 0)
"""Limits that no timestamp keeps."""


@dataclass(frozen=True, slots=True)
class RecordError:
    """Why the record at `index` (counted from 0 in its batch) was refused."""

    index: int
    message: str


class RecordsRejectedError(ProtocolError):
    """Some records of a batch break the topic's rules, so none of the batch is appended."""

    def __init__(self, code: ErrorCode, record_errors: tuple[RecordError, ...], count: int) -> None:
        first = record_errors[0]
        super().__init__(
            code,
            f"{count} records were refused, first the one at index {first.index}: {first.message}",
        )
        self.record_errors = record_errors


def newest_timestamp(
    header: BatchHeader, payload: Buffer, rules: AppendRules, now_ms: int, start: int = 0
) -> int:
    """Check each record in `payload[start:]`, which is decompressed; returns the largest timestamp.

    Raises `ProtocolError` when the records cannot be read, and its subclass `RecordsRejectedError`
    when some break the topic's rules.
    """
    earliest, latest = rules.timestamp_limits(now_ms)
    stamp = None
    if header.attributes & TIMESTAMP_TYPE_BIT:
        # The stamp LogAppendTime is not the producer's to give; Kafka takes it for a CreateTime.
        stamp = header.max_timestamp
        if rules.timestamp_type is TimestampType.LOG_APPEND_TIME or stamp == NO_TIMESTAMP:
            earliest, latest = _NEVER
    else:
        newest = newest_of(
            payload,
            start,
            len(payload),
            header.record_count,
            header.base_timestamp,
            earliest,
            latest,
            rules.compacted,
        )
        if newest is not None:
            return newest
    terms = Terms(header.base_timestamp, stamp, earliest, latest, rules.compacted)
    records = memoryview(payload)[start:]
    malformed, newest, refused, without_key, out_of_range = look_closely(
        records, header.record_count, *terms, _ERRORS_MAX
    )
    if malformed == header.record_count:
        raise _invalid("Bytes follow the last record of the batch.")
    if malformed >= 0:
        raise _invalid(f"The record at index {malformed} of the batch cannot be read.")
    if refused:
        raise RecordsRejectedError(
            ErrorCode.INVALID_TIMESTAMP if out_of_range else ErrorCode.INVALID_RECORD,
            tuple(_record_error(record, terms) for record in refused),
            without_key + out_of_range,
        )
    return newest


def _record_error(refused: Refused, terms: Terms) -> RecordError:
    index, has_key, timestamp = refused
    if terms.wants_keys and not has_key:
        message = "A record on a compacted topic must have a key."
    elif (terms.earliest, terms.latest) == _NEVER:
        message = "A producer must not stamp its batches with LogAppendTime."
    else:
        message = f"The timestamp {timestamp} is outside [{terms.earliest}, {terms.latest}]."
    return RecordError(index, message)


def _invalid(message: str) -> ProtocolError:
    return ProtocolError(ErrorCode.INVALID_RECORD, message)
