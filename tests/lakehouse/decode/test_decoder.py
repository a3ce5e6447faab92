"""Bytes of a partition as Arrow batches: the schema, every kind of row, transactions, limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from strandline.client.aborted import AbortedFilter
from strandline.errors import CorruptRecords
from strandline.lakehouse.decode.decoder import Decoder
from strandline.lakehouse.decode.schema import kafka_schema
from strandline.lakehouse.reading.errors import EpochDiverged
from strandline.records.batch import CRC_AT
from strandline.records.builder import build_batch, build_control_batch
from strandline.records.codec import Codec
from strandline.records.columns import BuilderLimits
from strandline.records.control import ControlType, EndTransactionMarker
from strandline.records.record import Record
from strandline.types import LeaderEpoch, Offset, ProducerEpoch, ProducerId, TopicPartition

AT = TopicPartition("flights", 3)


@pytest.fixture(params=["compiled", "pure"], autouse=True)
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test runs with the compiled builder, if there is one, and with its twin."""
    if request.param == "pure":
        monkeypatch.setenv("STRANDLINE_PURE_PYTHON", "1")


def decoded(
    data: bytes, aborted: AbortedFilter | None = None, **limits: Any
) -> tuple[list[pa.RecordBatch], Decoder]:
    decoder = Decoder(AT, BuilderLimits(**limits))
    batches = [*decoder.feed(data, aborted), *decoder.finish()]
    for batch in batches:
        batch.validate(full=True)
    return batches, decoder


def batch(first: int, records: Sequence[Record], **options: Any) -> bytes:
    return build_batch(
        records, base_offset=Offset(first), **{"leader_epoch": LeaderEpoch(1), **options}
    )


def offsets(batches: Sequence[pa.RecordBatch]) -> list[int]:
    return [offset for each in batches for offset in each.column("offset").to_pylist()]


def test_rows_have_the_schema_and_contents_that_sparks_own_source_gives() -> None:
    records = [
        Record(
            timestamp=1_700_000_000_123, key=b"a", value=None, headers=(("h", b"1"), ("h", None))
        ),
        Record(timestamp=-1, key=None, value=b"", headers=()),
    ]
    (rows,), _ = decoded(batch(41, records), with_headers=True)
    assert rows.schema.equals(kafka_schema(with_headers=True))
    assert rows.to_pylist() == [
        {
            "key": b"a",
            "value": None,
            "topic": "flights",
            "partition": 3,
            "offset": 41,
            "timestamp": datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC),
            "timestampType": 0,
            "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
        },
        {
            "key": None,
            "value": b"",
            "topic": "flights",
            "partition": 3,
            "offset": 42,
            "timestamp": datetime(1970, 1, 1, tzinfo=UTC) - timedelta(milliseconds=1),
            "timestampType": 0,
            "headers": None,
        },
    ]


def test_columns_without_any_bytes_are_columns_all_the_same() -> None:
    (rows,), _ = decoded(batch(0, [Record(timestamp=1), Record(timestamp=1)]), with_headers=True)
    for name in ("key", "value", "headers"):
        assert rows.column(name).to_pylist() == [None, None]
    (rows,), _ = decoded(batch(0, [Record(timestamp=1, headers=(("", None),))]), with_headers=True)
    assert rows.column("headers").to_pylist() == [[{"key": "", "value": None}]]


def test_headers_are_left_out_unless_they_are_asked_for() -> None:
    records = [Record(timestamp=1, value=b"v", headers=(("h", b"1"),))]
    (rows,), _ = decoded(batch(0, records))
    assert rows.schema.equals(kafka_schema())


def test_header_names_that_are_not_text_have_their_wrong_bytes_replaced() -> None:
    name = b"ok\xff".decode("utf-8", "surrogateescape")
    records = [Record(timestamp=1, headers=((name, b"1"), ("é", b"2")))]
    (rows,), _ = decoded(batch(0, records), with_headers=True)
    assert [each["key"] for each in rows.to_pylist()[0]["headers"]] == ["ok\ufffd", "é"]


@pytest.mark.parametrize("codec", Codec)
def test_every_codec_is_read_and_ranges_may_cut_batches(codec: Codec) -> None:
    records = [Record(timestamp=n, value=b"%d" % n) for n in range(10)]
    data = b"".join(batch(first, records, codec=codec) for first in (0, 10, 20))
    batches, decoder = decoded(data, start=7, end=23)
    assert offsets(batches) == list(range(7, 23))
    assert decoder.is_complete


def test_batches_are_bounded_and_join_to_the_range() -> None:
    records = [Record(timestamp=n, value=bytes(100)) for n in range(10)]
    data = b"".join(batch(first, records) for first in range(0, 100, 10))
    batches, decoder = decoded(data, bytes_max=3000)
    assert len(batches) > 3
    assert max(each.nbytes for each in batches) < 6000
    assert offsets(batches) == list(range(100))
    assert decoder.next_offset == 100


def test_a_gap_that_compaction_left_at_the_end_completes_the_range() -> None:
    record = [Record(timestamp=1, value=b"v")]
    batches, decoder = decoded(batch(3, record) + batch(9, record), end=7)
    assert offsets(batches) == [3]
    assert decoder.is_complete


PRODUCER: Mapping[str, Any] = {"producer_id": ProducerId(7), "producer_epoch": ProducerEpoch(0)}


def transactional(first: int, count: int = 2) -> bytes:
    records = [Record(timestamp=1, value=b"t") for _ in range(count)]
    return batch(first, records, base_sequence=0, is_transactional=True, **PRODUCER)


def marker(offset: int, kind: ControlType) -> bytes:
    return build_control_batch(
        EndTransactionMarker(kind, 0), timestamp=1, base_offset=Offset(offset), **PRODUCER
    )


def test_markers_are_no_rows_and_aborted_transactions_are_left_out_for_committed_readers() -> None:
    data = (
        transactional(0)
        + marker(2, ControlType.ABORT)
        + transactional(3)
        + marker(5, ControlType.COMMIT)
        + batch(6, [Record(timestamp=1, value=b"plain")])
    )
    everything, _ = decoded(data)
    assert offsets(everything) == [0, 1, 3, 4, 6]
    committed, decoder = decoded(data, AbortedFilter([(ProducerId(7), Offset(0))]))
    assert offsets(committed) == [3, 4, 6]
    assert decoder.next_offset == 7
    tail, _ = decoded(
        data[len(transactional(0)) :], AbortedFilter([(ProducerId(7), Offset(0))]), start=2
    )
    assert offsets(tail) == [3, 4, 6]


def test_a_batch_of_an_aborted_transaction_is_not_believed_before_its_checksum() -> None:
    damaged = bytearray(transactional(0))
    damaged[23 + 3] ^= 4  # of its last offset: the table would go over 2 to 5
    data = bytes(damaged) + marker(2, ControlType.ABORT) + transactional(3)
    with pytest.raises(CorruptRecords, match=r"flights-3 cannot be read beyond offset 0: .*"):
        decoded(data, AbortedFilter([(ProducerId(7), Offset(0))]))


def test_a_batch_written_after_the_plan_is_an_error_inside_the_range_only() -> None:
    record = [Record(timestamp=1, value=b"v")]
    data = batch(0, record) + batch(1, record, leader_epoch=LeaderEpoch(2))
    batches, _ = decoded(data, end=1, leader_epoch_max=1)
    assert offsets(batches) == [0]
    with pytest.raises(EpochDiverged, match="offset 1 is of leader epoch 2") as raised:
        decoded(data, end=2, leader_epoch_max=1)
    assert (raised.value.offset, raised.value.expected_epoch, raised.value.found_epoch) == (1, 1, 2)


def test_damage_is_told_with_the_partition_and_the_offset() -> None:
    record = [Record(timestamp=1, value=b"v")]
    damaged = bytearray(batch(5, record) + batch(6, record))
    damaged[len(batch(5, record)) + CRC_AT] ^= 1
    with pytest.raises(
        CorruptRecords, match=r"flights-3 cannot be read beyond offset 6: .* checksum"
    ):
        decoded(bytes(damaged))
    batches, _ = decoded(bytes(damaged), checks_crc=False)
    assert offsets(batches) == [5, 6]
    with pytest.raises(CorruptRecords, match="magic 1"):
        decoded(batch(5, record)[:16] + b"\x01" + bytes(80))
