"""Records inside a batch: round trips, what compaction leaves, and everything refused."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import CorruptRecords, InvariantViolated
from strandline.records.batch import (
    HEADER_BYTES,
    LOG_OVERHEAD,
    OFFSET_LENGTH_EPOCH,
    TimestampType,
    parse_header,
    set_crc,
    verify_crc,
)
from strandline.records.builder import (
    BatchBuilder,
    BatchOptions,
    build_batch,
    join_batch,
    rebuild_batch,
)
from strandline.records.codec import Codec
from strandline.records.record import Record, read_records
from strandline.records.varint import write_varint
from strandline.types import LeaderEpoch, Offset, ProducerEpoch, ProducerId

FIELD = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(max_size=5), FIELD), max_size=4).map(tuple)
TIMESTAMPS = st.integers(-1, 2**61)
RECORD = st.builds(Record, timestamp=TIMESTAMPS, key=FIELD, value=FIELD, headers=HEADERS)
RECORDS = st.lists(RECORD, min_size=1, max_size=12)


@given(RECORDS, st.sampled_from(Codec), st.integers(0, 2**62))
def test_batches_round_trip(records: list[Record], codec: Codec, base: int) -> None:
    batch = build_batch(
        records,
        base_offset=Offset(base),
        leader_epoch=LeaderEpoch(3),
        codec=codec,
        producer_id=ProducerId(7),
        producer_epoch=ProducerEpoch(1),
        base_sequence=2,
    )
    expected = [record._replace(offset=Offset(base + n)) for n, record in enumerate(records)]
    assert list(read_records(batch)) == expected
    assert list(read_records(memoryview(bytearray(b"__" + batch)), 2)) == expected
    header = parse_header(batch)
    assert header.max_timestamp == max(record.timestamp for record in records)
    assert header.base_timestamp == records[0].timestamp
    assert header.record_count == header.last_offset_delta + 1 == len(records)
    assert header.codec is codec
    assert verify_crc(batch, 0, len(batch))


@given(RECORDS)
def test_the_builder_knows_its_size(records: list[Record]) -> None:
    builder = BatchBuilder(BatchOptions(base_offset=Offset(9)))
    for n, record in enumerate(records):
        expected = builder.size_with(record)
        assert builder.append(record) == 9 + n
        assert builder.size_bytes == expected
        assert builder.record_count == n + 1
    assert len(builder.build()) == builder.size_bytes


def test_an_empty_batch_is_not_built() -> None:
    with pytest.raises(InvariantViolated):
        build_batch([])


def test_log_append_time_replaces_the_records_timestamps() -> None:
    batch = build_batch([Record(timestamp=5), Record(timestamp=9)], log_append_time_ms=70)
    assert parse_header(batch).timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [record.timestamp for record in read_records(batch)] == [70, 70]


def test_a_header_key_that_is_not_utf8_keeps_its_bytes() -> None:
    payload = record_bytes(headers=b"\x02\x04\xff\xfe\x01")
    batch = batch_of(payload, 1)
    (record,) = read_records(batch)
    assert record.headers == (("\udcff\udcfe", None),)
    assert build_batch([record], base_offset=Offset(0)) == batch


@given(RECORDS, st.sampled_from(Codec), st.data())
def test_compaction_keeps_offsets_and_identity(
    records: list[Record], codec: Codec, data: st.DataObject
) -> None:
    batch = bytearray(
        build_batch(
            records,
            codec=codec,
            producer_id=ProducerId(4),
            producer_epoch=ProducerEpoch(0),
            base_sequence=10,
            is_transactional=True,
        )
    )
    OFFSET_LENGTH_EPOCH.pack_into(batch, 0, 1000, len(batch) - LOG_OVERHEAD, 6)
    before = parse_header(batch)
    kept = [record for record in read_records(batch) if data.draw(st.booleans())]
    horizon = data.draw(st.none() | st.integers(0, 2**60))
    rebuilt = rebuild_batch(before, kept, delete_horizon_ms=horizon)
    after = parse_header(rebuilt)
    assert list(read_records(rebuilt)) == kept
    assert after.record_count == len(kept)
    for name in ("base_offset", "last_offset", "last_sequence", "leader_epoch", "producer_id"):
        assert getattr(after, name) == getattr(before, name), name
    assert after.is_transactional
    if kept:
        assert after.delete_horizon_ms == horizon
        assert after.codec is codec
        # A later pass, without a new horizon, keeps the one there is.
        again = rebuild_batch(after, kept[-1:])
        assert parse_header(again).delete_horizon_ms == horizon
        assert list(read_records(again)) == kept[-1:]
    else:
        assert len(rebuilt) == HEADER_BYTES
        assert after.max_timestamp == before.max_timestamp


def test_compaction_keeps_the_append_time() -> None:
    batch = build_batch([Record(timestamp=5), Record(timestamp=9)], log_append_time_ms=70)
    kept = list(read_records(batch))[1:]
    rebuilt = rebuild_batch(parse_header(batch), kept)
    assert list(read_records(rebuilt)) == kept
    assert parse_header(rebuilt).max_timestamp == 70


def test_a_foreign_record_is_not_rebuilt_into_a_batch() -> None:
    batch = build_batch([Record(), Record()])
    with pytest.raises(InvariantViolated):
        rebuild_batch(parse_header(batch), [Record(offset=Offset(2))])


def record_bytes(
    *,
    attributes: bytes = b"\x00",
    timestamp: bytes = b"\x00",
    offset: bytes = b"\x00",
    key: bytes = b"\x01",
    value: bytes = b"\x01",
    headers: bytes = b"\x00",
    length: int | None = None,
) -> bytes:
    body = attributes + timestamp + offset + key + value + headers
    out = bytearray()
    write_varint(out, len(body) if length is None else length)
    return bytes(out + body)


def batch_of(payload: bytes, count: int, *, last_delta: int | None = None) -> bytes:
    """A batch with a right checksum around any payload."""
    header = parse_header(build_batch([Record(timestamp=0)]))
    delta = count - 1 if last_delta is None else last_delta
    return bytes(join_batch(header._replace(record_count=count, last_offset_delta=delta), payload))


def test_the_smallest_record_is_read() -> None:
    assert list(read_records(batch_of(record_bytes(), 1))) == [Record(Offset(0), 0)]


@pytest.mark.parametrize(
    ("payload", "count", "reason"),
    [
        (record_bytes(length=5), 1, "does not fit"),
        (record_bytes(length=7), 1, "does not fit"),
        (record_bytes(length=-1), 1, "does not fit"),
        (record_bytes(length=2**31 - 1), 1, "does not fit"),
        (b"\xff\xff\xff\xff\xff\x0f" + record_bytes(), 1, "32 bits"),
        (record_bytes(timestamp=b"\xff" * 10 + b"\x01"), 1, "64 bits"),
        (record_bytes(timestamp=b"\xff" * 9 + b"\x7f"), 1, "64 bits"),
        (record_bytes(timestamp=b"\xff" * 9 + b"\x01"), 1, "timestamp"),
        (
            record_bytes(timestamp=b"\xff" * 6, key=b"\xff", value=b"\xff", headers=b"\xff"),
            1,
            "end",
        ),
        (
            record_bytes(timestamp=b"\xff" * 5, offset=b"", key=b"", value=b"", headers=b""),
            1,
            "end",
        ),
        (
            record_bytes(
                timestamp=b"\xfe" * 4 + b"\x00", offset=b"", key=b"", value=b"", headers=b""
            ),
            1,
            "end",
        ),
        (record_bytes(offset=b"\x80\x80\x00", key=b"", value=b""), 1, "end"),
        (record_bytes(offset=b"\xff\xff\xff\xff\x1f"), 1, "32 bits"),
        (record_bytes(offset=b"\x02"), 1, "offset delta 1"),
        (record_bytes(offset=b"\x01"), 1, "offset delta -1"),
        (record_bytes() + record_bytes(), 2, "offset delta 0 behind 0"),
        (record_bytes(offset=b"\x02") + record_bytes(), 2, "offset delta 0 behind 1"),
        (record_bytes() + record_bytes(offset=b"\x04"), 2, "offset delta 2"),
        (record_bytes(key=b"\x10"), 1, "runs past"),
        (record_bytes(value=b"\x10"), 1, "runs past"),
        (record_bytes(value=b"\x80\x80\x04"), 1, "runs past"),
        (record_bytes(headers=b"\x01"), 1, "-1 headers"),
        (record_bytes(headers=b"\x02"), 1, "1 headers"),
        (record_bytes(headers=b"\xfe\xff\xff\xff\x0f"), 1, "headers"),
        (record_bytes(headers=b"\x02\x01\x01"), 1, "no key"),
        (record_bytes(headers=b"\x02\x00\x10"), 1, "runs past"),
        (record_bytes(headers=b"\x00\x00"), 1, "follow the last header"),
        (record_bytes(), 2, "declares 2 records"),
        (record_bytes() * 2, 1, "follow the last record"),
        (record_bytes() + b"\x00", 1, "follow the last record"),
        (record_bytes(), 0, "follow the last record"),
        (record_bytes(), -1, "declares -1 records"),
        (record_bytes(), 2**31 - 1, "records"),
    ],
)
def test_malformed_records_are_refused(payload: bytes, count: int, reason: str) -> None:
    with pytest.raises(CorruptRecords, match=reason):
        list(read_records(batch_of(payload, count)))


def test_gaps_are_read_where_the_header_allows_them() -> None:
    payload = record_bytes(offset=b"\x02") + record_bytes(offset=b"\x0a")
    batch = batch_of(payload, 2, last_delta=6)
    assert [record.offset for record in read_records(batch)] == [1, 5]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_records_above_the_limit_are_not_unpacked(codec: Codec) -> None:
    batch = build_batch([Record(value=bytes(100_000))], codec=codec)
    assert len(batch) < 10_000
    assert len(list(read_records(batch, max_bytes=100_020))) == 1
    with pytest.raises(CorruptRecords):
        read_records(batch, max_bytes=100_000)


def test_a_wrong_checksum_or_a_cut_is_noticed_before_iteration() -> None:
    batch = bytearray(build_batch([Record(value=b"abc")]))
    with pytest.raises(CorruptRecords, match="cut off"):
        read_records(batch[:-1])
    batch[-2] ^= 1
    with pytest.raises(CorruptRecords, match="checksum"):
        read_records(batch)
    assert len(list(read_records(batch, check_crc=False))) == 1


@given(st.binary(max_size=300))
def test_random_bytes_raise_only_corrupt_records(data: bytes) -> None:
    with pytest.raises(CorruptRecords):
        list(read_records(data))


@given(st.sampled_from(Codec), st.integers(0, 40), st.binary(max_size=100))
def test_random_payloads_raise_only_corrupt_records(
    codec: Codec, count: int, payload: bytes
) -> None:
    header = parse_header(build_batch([Record()], codec=codec))
    batch = join_batch(header._replace(record_count=count, last_offset_delta=count), payload)
    try:
        assert len(list(read_records(batch))) == count
    except CorruptRecords:
        return


@pytest.mark.parametrize("codec", list(Codec))
def test_mutations_behind_a_right_checksum_raise_only_corrupt_records(codec: Codec) -> None:
    source = random.Random(5)
    records = [
        Record(timestamp=n, key=b"k", value=b"v" * 9, headers=(("h", b"x"),)) for n in range(6)
    ]
    good = build_batch(records, codec=codec)
    refused = 0
    for _ in range(2000):
        batch = bytearray(good)
        for _ in range(source.randrange(1, 4)):
            batch[source.randrange(21, len(batch))] = source.randrange(256)
        set_crc(batch, 0, len(batch))
        try:
            for record in read_records(batch):
                assert record.offset <= 2**31
        except CorruptRecords:
            refused += 1
    assert refused > 200
