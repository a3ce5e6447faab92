"""Reading around aborted transactions, on batches built by hand."""

from __future__ import annotations

import pytest

from strandline.client.fetching import FetchFrom, FetchSettings, Isolation, records_of
from strandline.errors import CorruptRecords
from strandline.protocol.messages.fetch import AbortedTransaction, PartitionData
from strandline.records.builder import build_batch, build_control_batch
from strandline.records.control import ControlType, EndTransactionMarker
from strandline.records.record import Record
from strandline.types import (
    NO_TOPIC_ID,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)

PARTITION = TopicPartition("t", 0)
COMMITTED = FetchSettings(isolation=Isolation.READ_COMMITTED)


def batch(base: int, producer: int, *values: bytes) -> bytes:
    return build_batch(
        [Record(timestamp=1, value=value) for value in values],
        base_offset=Offset(base),
        producer_id=ProducerId(producer),
        producer_epoch=ProducerEpoch(0),
        base_sequence=0,
        is_transactional=producer >= 0,
    )


def marker(base: int, producer: int, kind: ControlType) -> bytes:
    return build_control_batch(
        EndTransactionMarker(kind, 0),
        timestamp=1,
        producer_id=ProducerId(producer),
        producer_epoch=ProducerEpoch(0),
        base_offset=Offset(base),
    )


LOG = b"".join(
    (
        batch(0, 7, b"aborted 0", b"aborted 1"),
        batch(2, 8, b"committed 2"),
        batch(3, -1, b"plain 3"),
        marker(4, 7, ControlType.ABORT),
        batch(5, 7, b"committed 5"),
        marker(6, 7, ControlType.COMMIT),
        marker(7, 8, ControlType.COMMIT),
    )
)


def read(offset: int, settings: FetchSettings, log: bytes = LOG) -> tuple[list[bytes | None], int]:
    data = PartitionData(
        high_watermark=8,
        last_stable_offset=8,
        aborted_transactions=[AbortedTransaction(producer_id=7, first_offset=0)],
        records=memoryview(log),
    )
    asked = FetchFrom(PARTITION, NO_TOPIC_ID, Offset(offset), LeaderEpoch(0))
    fetched = records_of(asked, data, settings)
    return [record.value for record in fetched.records], fetched.next_offset


def test_a_committed_reader_skips_what_was_aborted() -> None:
    assert read(0, COMMITTED) == ([b"committed 2", b"plain 3", b"committed 5"], 8)


def test_another_reader_sees_all_but_the_markers() -> None:
    values, next_offset = read(0, FetchSettings())
    assert values[:2] == [b"aborted 0", b"aborted 1"]
    assert len(values) == 5
    assert next_offset == 8


def test_reading_begins_inside_a_batch() -> None:
    assert read(1, FetchSettings())[0][0] == b"aborted 1"
    assert read(1, COMMITTED)[0][0] == b"committed 2"


def test_a_batch_that_is_cut_off_is_left_for_the_next_fetch() -> None:
    values, next_offset = read(0, FetchSettings(), LOG[:-1])
    assert len(values) == 5
    assert next_offset == 7


def test_damage_names_the_partition_and_the_offset() -> None:
    damaged = bytearray(LOG)
    damaged[len(batch(0, 7, b"aborted 0", b"aborted 1")) + 40] ^= 1
    with pytest.raises(CorruptRecords, match="t-0 cannot be read beyond offset 2"):
        read(0, FetchSettings(), bytes(damaged))
