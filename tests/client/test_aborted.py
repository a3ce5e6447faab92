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


LAST_OFFSET_DELTA = 23
"""Its place in a batch."""


def test_a_batch_that_is_skipped_is_not_believed_before_its_checksum() -> None:
    """A wrong end in its header would take the reader over records, or under them."""
    aborted, length = bytearray(LOG), len(batch(0, 7, b"aborted 0", b"aborted 1"))
    aborted[LAST_OFFSET_DELTA + 3] ^= 4
    with pytest.raises(CorruptRecords, match="t-0 cannot be read beyond offset 0"):
        read(0, COMMITTED, bytes(aborted))
    before = batch(0, -1, b"0", b"1", b"2", b"3") + LOG[length:]
    shorter = bytearray(before)
    shorter[LAST_OFFSET_DELTA + 3] ^= 2
    with pytest.raises(CorruptRecords, match="t-0 cannot be read beyond offset 2"):
        read(2, FetchSettings(), bytes(shorter))


TWO_PRODUCERS = (
    batch(0, 7, b"7 aborted 0", b"7 aborted 1"),
    batch(2, 8, b"8 aborted 2"),
    marker(3, 7, ControlType.ABORT),
    batch(4, 7, b"7 committed 4", b"7 committed 5"),
    batch(6, 8, b"8 aborted 6"),
    marker(7, 7, ControlType.COMMIT),
    marker(8, 8, ControlType.ABORT),
    batch(9, 8, b"8 committed 9"),
    batch(10, 7, b"7 aborted 10"),
    batch(11, -1, b"plain 11"),
    marker(12, 8, ControlType.COMMIT),
    marker(13, 7, ControlType.ABORT),
    batch(14, 7, b"7 aborted 14"),
    marker(15, 7, ControlType.ABORT),
    batch(16, 7, b"7 committed 16"),
    batch(17, 8, b"8 committed 17", b"8 committed 18"),
    marker(19, 7, ControlType.COMMIT),
    marker(20, 8, ControlType.COMMIT),
)
BASES = (0, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 19, 20, 21)
ABORTED = ((7, 0, 3), (8, 2, 8), (7, 10, 13), (7, 14, 15))
"""The producer, the first offset and the marker's offset of each aborted transaction."""
COMMITTED_VALUES = {
    4: b"7 committed 4",
    5: b"7 committed 5",
    9: b"8 committed 9",
    11: b"plain 11",
    16: b"7 committed 16",
    17: b"8 committed 17",
    18: b"8 committed 18",
}


def answer(offset: int, first: int, stop: int) -> dict[int, bytes | None]:
    """What a committed reader makes of the batches with these indexes, asked for from `offset`."""
    data = PartitionData(
        high_watermark=21,
        last_stable_offset=21,
        aborted_transactions=[
            AbortedTransaction(producer_id=producer, first_offset=begun)
            for producer, begun, ended in ABORTED
            if ended >= offset and begun < BASES[stop]
        ],
        records=memoryview(b"".join(TWO_PRODUCERS[first:stop])),
    )
    asked = FetchFrom(PARTITION, NO_TOPIC_ID, Offset(offset), LeaderEpoch(0))
    fetched = records_of(asked, data, COMMITTED)
    assert fetched.next_offset == BASES[stop]
    return {record.offset: record.value for record in fetched.records}


def test_every_way_to_cut_a_range_in_two_gives_the_same_records() -> None:
    assert answer(0, 0, len(TWO_PRODUCERS)) == COMMITTED_VALUES
    for cut in range(len(TWO_PRODUCERS)):
        before = answer(0, 0, cut)
        behind = answer(BASES[cut], cut, len(TWO_PRODUCERS))
        assert before | behind == COMMITTED_VALUES, f"cut at {BASES[cut]}"


def test_batch_by_batch_gives_the_same_records() -> None:
    found: dict[int, bytes | None] = {}
    for index in range(len(TWO_PRODUCERS)):
        found |= answer(BASES[index], index, index + 1)
    assert found == COMMITTED_VALUES


def test_a_marker_of_before_does_not_hide_what_its_producer_committed_next() -> None:
    assert answer(3, 2, 6) == {4: b"7 committed 4", 5: b"7 committed 5"}


def test_a_reader_inside_of_the_range_finds_the_same() -> None:
    for offset in range(21):
        first = max(index for index in range(len(TWO_PRODUCERS)) if BASES[index] <= offset)
        expected = {at: value for at, value in COMMITTED_VALUES.items() if at >= offset}
        assert answer(offset, first, len(TWO_PRODUCERS)) == expected
