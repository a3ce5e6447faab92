"""The end of a transaction as it stands in a log: a control batch with one marker (KIP-98).

This file knows how to get the marker out of the batch. What its bytes mean is `records.control`;
what it does to a producer is `producer_state`.
"""

from __future__ import annotations

from typing import NamedTuple

from strandline.errors import CorruptRecords
from strandline.records.batch import Buffer
from strandline.records.control import parse_marker
from strandline.records.record import read_records


class EndMarker(NamedTuple):
    """How a transaction ended, and the coordinator epoch that says so."""

    is_abort: bool
    coordinator_epoch: int
    timestamp: int


def read_end_marker(batch: Buffer) -> EndMarker | None:
    """The marker in a whole control batch of a transactional producer.

    None for an empty batch: compaction has removed the whole transaction with its marker. Raises
    `CorruptRecords` for anything that is not a marker.
    """
    record = next(iter(read_records(batch)), None)
    if record is None:
        return None
    marker = parse_marker(record)
    if marker is None:
        raise CorruptRecords("A control batch of a producer holds no end-of-transaction marker.")
    return EndMarker(not marker.commits, marker.coordinator_epoch, record.timestamp)
