"""Which transactions the batches of a log say were aborted, segment by segment.

This file reads batches and markers for itself, so that an index which broker code has written, or
made anew after a crash, is held against something else than that code.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from strandline.errors import CorruptRecords
from strandline.records.batch import CONTROL_BIT, LOG_OVERHEAD, TRANSACTIONAL_BIT
from strandline.records.control import ControlType, control_type
from strandline.records.record import read_records
from strandline.sim.checkers.batches import Fields, header_fields, peek

if TYPE_CHECKING:
    from strandline.storage.log import Log
    from strandline.storage.segment import Segment


class MarkedAbort(NamedTuple):
    """A marker that aborts: where it stands and whose it is.

    `first_offset`: where the first batch of the transaction begins that is left, or the log start
    if that is later; None if none is left.
    """

    offset: int
    producer_id: int
    first_offset: int | None


def aborts_in(log: Log) -> Iterator[tuple[Segment, list[MarkedAbort]]]:
    """Every segment of the log, with the markers in it that abort."""
    start, began = log.log_start_offset, dict[int, int]()
    for segment in log.segments.all:
        aborts: list[MarkedAbort] = []
        data, position = peek(segment.log, 0, segment.size), 0
        while (found := header_fields(data, position)) is not None:
            fields = Fields._make(found)
            if fields.attributes & CONTROL_BIT:
                first = began.pop(fields.producer_id, None)
                if _aborts(data, position):
                    aborts.append(MarkedAbort(fields.base_offset, fields.producer_id, first))
            elif (
                fields.attributes & TRANSACTIONAL_BIT
                and fields.base_offset + fields.last_offset_delta >= start
            ):
                began.setdefault(fields.producer_id, max(start, fields.base_offset))
            position += fields.length + LOG_OVERHEAD
        yield segment, aborts


def _aborts(data: bytes, position: int) -> bool:
    """Whether the control batch there aborts; one that compaction has emptied says nothing."""
    try:
        records = list(read_records(memoryview(data), position, check_crc=False))
        return any(control_type(record) is ControlType.ABORT for record in records)
    except CorruptRecords:
        return False  # I-02 tells
