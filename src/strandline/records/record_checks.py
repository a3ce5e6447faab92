"""What a topic demands of single records: a key, and a timestamp near the present.

This file knows rules for records, and when a batch's header alone shows that they are kept. It must
not know framing, sizes or codecs (`validation.py`).

A refused batch is refused whole, and the client is told which records were the reason (KIP-467).
When any of them has a wrong timestamp the code is INVALID_TIMESTAMP, otherwise INVALID_RECORD.
"""

from __future__ import annotations

from dataclasses import dataclass

from strandline.errors import CorruptRecords, ErrorCode, ProtocolError
from strandline.records.batch import TIMESTAMP_TYPE_BIT, BatchHeader, TimestampType
from strandline.records.record import Record, iterate_payload
from strandline.records.rules import UNLIMITED_MS, AppendRules
from strandline.types import NO_TIMESTAMP


@dataclass(frozen=True, slots=True)
class RecordError:
    """Why the record at `index` (counted from 0 in its batch) was refused."""

    index: int
    message: str


class RecordsRejectedError(ProtocolError):
    """Some records of a batch break the topic's rules, so none of the batch is appended."""

    def __init__(self, code: ErrorCode, record_errors: tuple[RecordError, ...]) -> None:
        first = record_errors[0]
        super().__init__(
            code,
            f"{len(record_errors)} records were refused, first the one at index {first.index}: "
            f"{first.message}",
        )
        self.record_errors = record_errors


def must_open(header: BatchHeader, rules: AppendRules, now_ms: int) -> bool:
    """Whether the records themselves have to be looked at.

    The largest timestamp in the header decides the upper limit unless it is beyond; a lower limit
    is never decided by it. The stamp LogAppendTime is not the producer's to give.
    """
    if rules.compacted:
        return True
    if rules.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return header.attributes & TIMESTAMP_TYPE_BIT != 0
    limit = now_ms + rules.after_max_ms
    return (
        header.max_timestamp > limit
        or header.base_timestamp > limit
        or rules.before_max_ms < UNLIMITED_MS
        or header.attributes & TIMESTAMP_TYPE_BIT != 0
    )


def check_records(header: BatchHeader, payload: bytes, rules: AppendRules, now_ms: int) -> int:
    """Check each record in a batch's decompressed `payload`; returns the largest timestamp.

    Raises `RecordsRejectedError`, or `ProtocolError` when the records are malformed.
    """
    errors: list[RecordError] = []
    code = ErrorCode.INVALID_RECORD
    max_timestamp = NO_TIMESTAMP
    try:
        for index, record in enumerate(iterate_payload(header, payload)):
            if rules.compacted and record.key is None:
                errors.append(RecordError(index, "A record on a compacted topic must have a key."))
            elif message := _timestamp_error(header, record, rules, now_ms):
                errors.append(RecordError(index, message))
                code = ErrorCode.INVALID_TIMESTAMP
            max_timestamp = max(max_timestamp, record.timestamp)
    except CorruptRecords as error:
        raise ProtocolError(ErrorCode.INVALID_RECORD, str(error)) from error
    if errors:
        raise RecordsRejectedError(code, tuple(errors))
    return max_timestamp


def _timestamp_error(
    header: BatchHeader, record: Record, rules: AppendRules, now_ms: int
) -> str | None:
    timestamp = record.timestamp
    if rules.timestamp_type is TimestampType.CREATE_TIME and timestamp != NO_TIMESTAMP:
        earliest, latest = now_ms - rules.before_max_ms, now_ms + rules.after_max_ms
        if earliest <= timestamp <= latest:
            return None
        return f"The timestamp {timestamp} is outside [{earliest}, {latest}]."
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return "A producer must not stamp its batches with LogAppendTime."
    return None
