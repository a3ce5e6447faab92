"""Whether a reader gets through what a log holds: I-57.

Looked at is each batch when it comes into a log, by the reader that makes an object per record, and
not by the walk that brokers take over what clients send.
"""

from __future__ import annotations

from strandline.errors import CorruptRecords
from strandline.records.batch import TRANSACTIONAL_BIT, parse_header
from strandline.records.record import iterate_payload, payload_of


def unreadable(data: bytes, position: int, *, may_have_gaps: bool) -> str | None:
    """What is wrong with the records of the batch there, which is whole and as it was written."""
    header = parse_header(data, position)
    name = f"the batch at offset {header.base_offset}"
    if header.attributes & TRANSACTIONAL_BIT and not header.is_control:
        return f"{name} belongs to a transaction, and there are none"
    try:
        records = list(iterate_payload(header, payload_of(header, data, position)))
    except CorruptRecords as error:
        return f"{name} cannot be read: {error}"
    if not records:
        return None if may_have_gaps else f"{name} has no records"
    newest = max(record.timestamp for record in records)
    if header.max_timestamp != max(newest, -1):
        return f"{name} has the largest timestamp {header.max_timestamp}, its records {newest}"
    if not may_have_gaps and len(records) != header.last_offset_delta + 1:
        return f"{name} has {len(records)} records for {header.last_offset_delta + 1} offsets"
    return None
