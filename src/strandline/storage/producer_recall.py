"""Finding a producer's older batches in the log, when a repeated one may be among them.

This file knows how to walk back over the batches of a log, and where to give up. What a batch means
is the business of `producer_entry`.

Theory: a producer may have five batches in flight, and each of them must be known again when it is
sent a second time. Snapshots, whose format is Kafka's, hold the last one only. The others are in
the log, just in front of it as a rule, so they are looked for there, and not before a batch arrives
that may repeat one: a start reads nothing for that, no second file can contradict the log, and it
does not matter who wrote the snapshot. Each producer is looked for at most once after a load.

The walk goes over batch headers, from index entry to index entry backwards, within bounds: it runs
in the node's thread. What lies further back is not known again, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from strandline.records.batch import SEQUENCE_MAX, BatchHeader
from strandline.storage.batch_scan import DamagedSegment, headers_between
from strandline.storage.producer_entry import (
    BATCHES_REMEMBERED,
    ProducerEntry,
    RememberedBatch,
)
from strandline.storage.segment import Segment
from strandline.storage.segments import Segments
from strandline.types import NO_SEQUENCE, Offset

HEADERS_MAX: Final = 5_000
"""Batches that a walk looks at, those of the last stretch not counted."""
BYTES_MAX: Final = 32 * 1024 * 1024
"""How far back it goes."""
_STRETCH_MIN: Final = 64 * 1024
_STRETCH_MAX: Final = 128 * 1024
_CHUNK_BYTES: Final = 8 * 1024


def recall_batches(entry: ProducerEntry, segments: Segments, log_start_offset: Offset) -> None:
    """Complete what `entry` knows of its producer's batches in the current epoch.

    Where the log cannot be read as batches the walk ends; other `StorageError` are raised, and
    then the entry stays as it was.
    """
    wanted = BATCHES_REMEMBERED - len(entry.batches)
    older: list[RememberedBatch] = []
    try:
        for stretch in _stretches_back(segments, entry.first_known_offset, log_start_offset):
            own = [header for header in stretch if header.producer_id == entry.producer_id]
            older = [_remembered(each) for each in own if _is_wanted(each, entry)] + older
            if len(older) >= wanted or any(h.producer_epoch != entry.epoch for h in own):
                break
    except DamagedSegment:
        pass  # What lies behind the damage cannot be vouched for; readers are told of it.
    entry.recall(older)


def _stretches_back(
    segments: Segments, end_offset: Offset, start_offset: Offset
) -> Iterator[list[BatchHeader]]:
    """The headers of the batches in `[start_offset, end_offset)`, by stretches, last one first."""
    stretch_bytes, seen, walked = _STRETCH_MIN, 0, 0
    for segment in reversed(segments.since(start_offset)):
        if segment.base_offset >= end_offset:
            continue
        end = _position_of(segment, end_offset)
        while end > 0:
            start, _ = segment.boundary_below(0, max(0, end - stretch_bytes))
            stretch = [
                header
                for _, header in headers_between(segment.log, start, end, _CHUNK_BYTES)
                if header.base_offset >= start_offset
            ]
            yield stretch
            seen += len(stretch)
            walked += end - start
            if seen >= HEADERS_MAX or walked >= BYTES_MAX or not stretch:
                return
            end = start
            stretch_bytes = min(2 * stretch_bytes, _STRETCH_MAX)


def _position_of(segment: Segment, offset: Offset) -> int:
    """Where the batches that start at or after `offset` begin in the segment."""
    if offset > segment.last_offset_max:
        return segment.size
    start = segment.floor_position(offset).position
    for position, header in headers_between(segment.log, start, segment.size):
        if header.base_offset >= offset:
            return position
    return segment.size


def _is_wanted(header: BatchHeader, entry: ProducerEntry) -> bool:
    return not header.is_control and header.producer_epoch == entry.epoch


def _remembered(header: BatchHeader) -> RememberedBatch:
    sequence, delta = header.base_sequence, header.last_offset_delta
    last_sequence = NO_SEQUENCE if sequence < 0 else (sequence + delta) & SEQUENCE_MAX
    return last_sequence, header.last_offset, delta, header.max_timestamp
