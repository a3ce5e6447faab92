"""Giving the batches of a log to its producer state again.

This file knows which batches are missing in the state and how to read them. What a batch means is
the business of `producer_state`.
"""

from __future__ import annotations

from strandline.errors import CorruptRecords
from strandline.storage.batch_scan import SCAN_CHUNK_BYTES, damaged, headers_between
from strandline.storage.producer_state import ProducerStates
from strandline.storage.segments import Segments
from strandline.types import Offset


def replay_producers(
    producers: ProducerStates,
    segments: Segments,
    scan_from: Offset,
    end_offset: Offset,
    now_ms: int,
) -> None:
    """Bring the state from `scan_from` to `end_offset`. The transaction indexes stay as they are.

    Only headers are read, and the contents of end markers. Raises `DamagedSegment`.
    """
    if scan_from < end_offset and len(segments):
        for segment in segments.since(scan_from):
            if segment.base_offset >= end_offset:
                break
            start = segment.floor_position(scan_from).position
            for position, header in headers_between(
                segment.log, start, segment.size, SCAN_CHUNK_BYTES
            ):
                if header.last_offset < scan_from or header.producer_id < 0:
                    continue
                if header.base_offset >= end_offset:
                    break
                batch = (
                    segment.log.read_at(position, header.size_bytes) if header.is_control else b""
                )
                try:
                    completed = producers.replay(header, batch, now_ms)
                except CorruptRecords as error:
                    raise damaged(segment.log, position, str(error)) from error
                if completed is not None:
                    producers.transactions.complete(completed)
    producers.advance_to(end_offset)
