"""Control records: transaction markers and the kinds that one may meet."""

from __future__ import annotations

import pytest

from strandline.errors import CorruptRecords
from strandline.records.batch import parse_header
from strandline.records.builder import build_control_batch
from strandline.records.control import (
    ControlType,
    EndTransactionMarker,
    control_type,
    parse_marker,
)
from strandline.records.record import Record, read_records
from strandline.types import LeaderEpoch, Offset, ProducerEpoch, ProducerId


@pytest.mark.parametrize("kind", [ControlType.ABORT, ControlType.COMMIT])
def test_a_marker_round_trips_through_its_batch(kind: ControlType) -> None:
    marker = EndTransactionMarker(kind, coordinator_epoch=12)
    batch = build_control_batch(
        marker,
        timestamp=99,
        producer_id=ProducerId(5),
        producer_epoch=ProducerEpoch(3),
        base_offset=Offset(40),
        leader_epoch=LeaderEpoch(2),
    )
    header = parse_header(batch)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 3, -1)
    assert (header.base_offset, header.leader_epoch, header.record_count) == (40, 2, 1)
    (record,) = read_records(batch)
    assert (record.offset, record.timestamp) == (40, 99)
    assert record.key == bytes([0, 0, 0, kind])
    assert record.value == bytes([0, 0, 0, 0, 0, 12])
    assert parse_marker(record) == marker
    assert marker.commits == (kind is ControlType.COMMIT)


def test_newer_versions_and_kinds_are_understood_as_far_as_possible() -> None:
    newer = Record(key=b"\x00\x07\x00\x01more", value=b"\x00\x07\x00\x00\x00\x05more")
    assert parse_marker(newer) == EndTransactionMarker(ControlType.COMMIT, 5)
    assert control_type(Record(key=b"\x00\x00\x00\x09")) is ControlType.UNKNOWN
    assert parse_marker(Record(key=b"\x00\x00\x00\x09")) is None
    assert parse_marker(Record(key=b"\x00\x00\x00\x02", value=b"")) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, None),
        (b"\x00\x00\x00", b"\x00" * 6),
        (b"\xff\xff\x00\x00", b"\x00" * 6),
        (b"\x00" * 4, None),
        (b"\x00" * 4, b"\x00" * 5),
        (b"\x00" * 4, b"\xff\xff\x00\x00\x00\x00"),
    ],
)
def test_damaged_markers_are_refused(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(CorruptRecords):
        parse_marker(Record(key=key, value=value))
