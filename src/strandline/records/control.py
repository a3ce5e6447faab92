"""Control records: the markers that end a transaction, and the other kinds one may meet.

This file knows what a control record's key and value mean. A control batch (`batch.py`, bit 5)
holds one control record; only coordinators write them and consumers never see them (KIP-98).

    key:   ┌ version ┬ type ┐      value of ABORT and COMMIT: ┌ version ┬ coordinator epoch ┐
           │ 2       │ 2    │                                 │ 2       │ 4                 │
           └─────────┴──────┘                                 └─────────┴───────────────────┘

A newer version only adds to the end, so it is read as version 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import Final

from strandline.errors import CorruptRecords
from strandline.records.record import Record

_KEY: Final = Struct(">hh")
_MARKER_VALUE: Final = Struct(">hi")
_VERSION: Final = 0


class ControlType(IntEnum):
    """What a control record says. Those above COMMIT belong to Kafka's metadata log (KRaft)."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6
    UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class EndTransactionMarker:
    """Ends a producer's transaction on one partition."""

    type: ControlType
    """ABORT or COMMIT."""
    coordinator_epoch: int
    """Leader epoch of the coordinator's partition: an older coordinator is fenced by it."""

    @property
    def commits(self) -> bool:
        return self.type is ControlType.COMMIT

    def record(self, timestamp: int) -> Record:
        """The control record that says this."""
        return Record(
            timestamp=timestamp,
            key=_KEY.pack(_VERSION, self.type),
            value=_MARKER_VALUE.pack(_VERSION, self.coordinator_epoch),
        )


def control_type(record: Record) -> ControlType:
    """The kind of a control record; UNKNOWN for a kind that is newer than this program."""
    if record.key is None or len(record.key) < _KEY.size:
        raise CorruptRecords("A control record's key has fewer than 4 bytes.")
    version, number = _KEY.unpack_from(record.key)
    if version < _VERSION:
        raise CorruptRecords(f"A control record's key has the version {version}.")
    try:
        return ControlType(number)
    except ValueError:
        return ControlType.UNKNOWN


def parse_marker(record: Record) -> EndTransactionMarker | None:
    """Read a control record; None when it is of a kind that ends no transaction."""
    kind = control_type(record)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if record.value is None or len(record.value) < _MARKER_VALUE.size:
        raise CorruptRecords("A transaction marker's value has fewer than 6 bytes.")
    version, coordinator_epoch = _MARKER_VALUE.unpack_from(record.value)
    if version < _VERSION:
        raise CorruptRecords(f"A transaction marker's value has the version {version}.")
    return EndTransactionMarker(kind, coordinator_epoch)
