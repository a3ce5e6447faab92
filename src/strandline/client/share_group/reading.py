"""The records of one partition in the answer to a share fetch. Knows batches, and no session."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from strandline.client.share_group.acknowledgements import ShareRecord
from strandline.errors import CorruptRecords
from strandline.protocol.acknowledge_type import AckType
from strandline.protocol.messages.share_fetch import AcquiredRecords, PartitionData
from strandline.records.batch import check_crc, iterate_headers
from strandline.records.record import Record, read_records
from strandline.types import TopicPartition

_OFFSETS_MAX: Final = 1_000_000
"""More than any broker lets a member have of a partition; an answer that names more is garbage."""


@dataclass(slots=True)
class Acquired:
    """What a member was given of a partition."""

    records: dict[int, ShareRecord] = field(default_factory=dict)
    """By offset, in their order."""
    others: dict[int, AckType] = field(default_factory=dict)
    """What it says of the other offsets by itself: there is no record, or it could not be read."""
    error: CorruptRecords | None = None


def acquired_in(at: TopicPartition, data: PartitionData, *, checks_crc: bool) -> Acquired:
    """The records that belong to the member now. Bytes may hold others, too, which do not.

    What cannot be read is released: it may have been damaged on its way, and a later delivery of it
    may do better. Kafka's consumer rejects it.
    """
    found = Acquired()
    ranges = sorted(data.acquired_records or (), key=_first_offset)
    if not ranges:
        return found
    count = sum(max(0, each.last_offset - each.first_offset + 1) for each in ranges)
    if count > _OFFSETS_MAX:
        found.error = CorruptRecords(
            f"The broker says of {count} records of partition {at} that they are for this member."
        )
        return found
    index = 0
    try:
        for record in _records(data.records, checks_crc=checks_crc):
            _, timestamp, key, value, headers = record
            offset = int(record.offset)
            while index < len(ranges) and ranges[index].last_offset < offset:
                index += 1
            if index == len(ranges):
                break
            if offset >= ranges[index].first_offset:
                deliveries = ranges[index].delivery_count
                found.records[offset] = ShareRecord(
                    *at, offset, timestamp, key, value, headers, deliveries
                )
    except CorruptRecords as error:
        found.error = CorruptRecords(f"Records of partition {at} cannot be read: {error}")
    missing = AckType.GAP if found.error is None else AckType.RELEASE
    for each in ranges:
        for unread in range(each.first_offset, each.last_offset + 1):
            if unread not in found.records:
                found.others[unread] = missing
    return found


def _first_offset(acquired: AcquiredRecords) -> int:
    return acquired.first_offset


def _records(data: Any, *, checks_crc: bool) -> Iterator[Record]:
    buffer = data if isinstance(data, memoryview) else memoryview(data or b"")
    for position, header in iterate_headers(buffer):
        if checks_crc:
            check_crc(buffer, position, header)
        if not header.is_control:
            yield from read_records(buffer, position, check_crc=False)
