"""What a leader takes from a producer, refuses, and changes before it appends."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.config.topic import TopicConfig
from strandline.errors import ErrorCode, ProtocolError
from strandline.records.batch import (
    HEADER,
    TimestampType,
    parse_header,
    set_crc,
    set_log_append_time,
    verify_crc,
)
from strandline.records.builder import build_batch, build_control_batch
from strandline.records.codec import Codec
from strandline.records.control import ControlType, EndTransactionMarker
from strandline.records.record import Record, read_records
from strandline.records.validation import (
    AppendRules,
    RecordError,
    RecordsRejectedError,
    validate_client_batch,
)
from strandline.types import Offset, ProducerEpoch, ProducerId
from tests.records.lies import LIES, LOOSE_LIES, ODDITIES, Claim, batch_of, broken_streams

NOW = 1_700_000_000_000
HOUR = 3_600_000
RULES = AppendRules()
RECORDS = [Record(timestamp=NOW + n, key=b"k%d" % n, value=b"value " * 20) for n in range(4)]


def sample(records: list[Record] | None = None, **options: object) -> bytearray:
    batch = build_batch(RECORDS if records is None else records, **options)  # type: ignore[arg-type]
    return bytearray(batch)


def changed(batch: bytearray, **fields: int) -> bytearray:
    """The batch with other header fields, under a right checksum."""
    out = bytearray(batch)
    HEADER.pack_into(out, 0, *parse_header(batch)._replace(**fields))  # type: ignore[arg-type]
    set_crc(out, 0, len(out))
    return out


def refusal(buffer: bytearray, rules: AppendRules = RULES) -> ProtocolError:
    before = bytes(buffer)
    with pytest.raises(ProtocolError) as caught:
        validate_client_batch(buffer, rules, NOW)
    assert buffer == before, "a refused batch is not touched"
    assert caught.value.message.endswith((".", ")."))
    return caught.value


@pytest.mark.parametrize("codec", list(Codec))
def test_the_common_batch_passes_as_it_came(codec: Codec) -> None:
    buffer = sample(
        codec=codec, producer_id=ProducerId(3), producer_epoch=ProducerEpoch(0), base_sequence=0
    )
    before = bytes(buffer)
    result = validate_client_batch(buffer, RULES, NOW)
    assert result.header == parse_header(before)
    assert result.log_append_time_ms == -1
    assert not result.is_repacked
    assert buffer == before
    result.buffer[:8] = b"\x00" * 7 + b"\x2a"
    assert parse_header(buffer).base_offset == 42, "it is the buffer that came, not a copy"


def test_a_memoryview_is_taken_too() -> None:
    buffer = sample()
    assert validate_client_batch(memoryview(buffer), RULES, NOW).buffer == buffer


def test_bytes_of_a_cut_off_batch_are_dropped() -> None:
    batch = sample()
    for tail in (b"\x00", batch[:11], batch[:12], batch[:16], batch[:60], batch[:-1]):
        result = validate_client_batch(batch + bytearray(tail), RULES, NOW)
        assert result.buffer == batch


@pytest.mark.parametrize(
    ("buffer", "code"),
    [
        (bytearray(), ErrorCode.INVALID_RECORD),
        (sample()[:11], ErrorCode.INVALID_RECORD),
        (sample()[:16], ErrorCode.INVALID_RECORD),
        (sample()[:-1], ErrorCode.INVALID_RECORD),
        (sample() + sample(), ErrorCode.INVALID_RECORD),
        (sample() + bytes(12), ErrorCode.CORRUPT_MESSAGE),
        (sample()[:16] + b"\x00" + sample()[17:], ErrorCode.INVALID_RECORD),
        (sample()[:16] + b"\x01" + sample()[17:], ErrorCode.INVALID_RECORD),
        (sample()[:16] + b"\x03" + sample()[17:], ErrorCode.CORRUPT_MESSAGE),
        (sample()[:16] + b"\xff" + sample()[17:], ErrorCode.CORRUPT_MESSAGE),
        (bytearray(8) + b"\x00\x00\x00\x0d" + bytes(50), ErrorCode.CORRUPT_MESSAGE),
        (bytearray(8) + b"\xff\xff\xff\xff" + bytes(50), ErrorCode.CORRUPT_MESSAGE),
        (
            bytearray(8) + b"\x00\x00\x00\x30" + bytes(4) + b"\x02" + bytes(43),
            ErrorCode.CORRUPT_MESSAGE,
        ),
        (
            bytearray(8) + b"\x7f\xff\xff\xff" + bytes(4) + b"\x02" + bytes(90),
            ErrorCode.INVALID_RECORD,
        ),
    ],
)
def test_other_than_one_whole_batch_is_refused(buffer: bytearray, code: ErrorCode) -> None:
    assert refusal(buffer).code is code


def test_every_flipped_byte_under_the_checksum_is_corrupt() -> None:
    batch = sample(codec=Codec.GZIP)
    for at in range(17, len(batch)):
        batch[at] ^= 0x55
        assert refusal(batch).code is ErrorCode.CORRUPT_MESSAGE, at
        batch[at] ^= 0x55


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"base_offset": 1}, ErrorCode.INVALID_RECORD),
        ({"base_offset": -1}, ErrorCode.INVALID_RECORD),
        ({"record_count": 3}, ErrorCode.INVALID_RECORD),
        ({"record_count": 5}, ErrorCode.INVALID_RECORD),
        ({"record_count": 0, "last_offset_delta": -1}, ErrorCode.INVALID_RECORD),
        ({"record_count": -1, "last_offset_delta": -2}, ErrorCode.INVALID_RECORD),
        ({"attributes": 0x20}, ErrorCode.INVALID_RECORD),
        ({"attributes": 0x40}, ErrorCode.INVALID_RECORD),
        ({"attributes": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"attributes": 6}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"attributes": 7}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"producer_id": 4, "base_sequence": -1}, ErrorCode.INVALID_RECORD),
        ({"producer_id": 0, "base_sequence": -(2**31)}, ErrorCode.INVALID_RECORD),
    ],
)
def test_header_fields_that_no_client_may_send(fields: dict[str, int], code: ErrorCode) -> None:
    assert refusal(changed(sample(), **fields)).code is code


def test_a_transactional_batch_and_unused_bits_pass() -> None:
    for attributes in (0x10, 0x80, -0x8000):
        buffer = changed(sample(), attributes=attributes)
        assert validate_client_batch(buffer, RULES, NOW).header.attributes == attributes


def test_a_coordinator_may_write_control_batches() -> None:
    marker = EndTransactionMarker(ControlType.COMMIT, 1)
    batch = bytearray(
        build_control_batch(
            marker, timestamp=NOW, producer_id=ProducerId(1), producer_epoch=ProducerEpoch(0)
        )
    )
    assert refusal(batch).code is ErrorCode.INVALID_RECORD
    rules = AppendRules(allow_control=True, codec=Codec.ZSTD, compacted=True)
    result = validate_client_batch(batch, rules, NOW)
    assert not result.is_repacked, "control records stay uncompressed"
    assert result.buffer == batch


def test_sizes_are_limited() -> None:
    batch = sample()
    validate_client_batch(batch, AppendRules(max_message_bytes=len(batch)), NOW)
    too_large = refusal(batch, AppendRules(max_message_bytes=len(batch) - 1))
    assert too_large.code is ErrorCode.MESSAGE_TOO_LARGE
    damaged = bytearray(batch)
    damaged[-1] ^= 1
    again = refusal(damaged, AppendRules(max_message_bytes=len(batch) - 1))
    assert again.code is ErrorCode.MESSAGE_TOO_LARGE, "size is looked at before the checksum"
    validate_client_batch(batch, AppendRules(segment_bytes=len(batch)), NOW)
    no_segment = refusal(batch, AppendRules(segment_bytes=len(batch) - 1))
    assert no_segment.code is ErrorCode.RECORD_LIST_TOO_LARGE


@pytest.mark.parametrize("codec", list(Codec))
def test_a_compacted_topic_refuses_records_without_key(codec: Codec) -> None:
    rules = AppendRules(compacted=True)
    validate_client_batch(sample(codec=codec), rules, NOW)
    records = [RECORDS[0], Record(timestamp=NOW), RECORDS[1], Record(timestamp=NOW, value=b"")]
    error = refusal(sample(records, codec=codec), rules)
    assert isinstance(error, RecordsRejectedError)
    assert error.code is ErrorCode.INVALID_RECORD
    assert [entry.index for entry in error.record_errors] == [1, 3]
    assert all("key" in entry.message for entry in error.record_errors)
    assert "index 1" in error.message


def test_future_records_are_refused_with_their_indexes() -> None:
    edge = [Record(timestamp=NOW + HOUR), Record(timestamp=-1), Record(timestamp=0)]
    validate_client_batch(sample(edge), RULES, NOW)
    late = [Record(timestamp=NOW), Record(timestamp=NOW + HOUR + 1)]
    error = refusal(sample(late), RULES)
    assert isinstance(error, RecordsRejectedError)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert error.record_errors == (
        RecordError(
            1,
            f"The timestamp {NOW + HOUR + 1} is outside [{NOW - 2**63 + 1}, {NOW + HOUR}].",
        ),
    )


def test_old_records_are_refused_where_a_limit_is_set() -> None:
    rules = AppendRules(before_max_ms=1000)
    for oldest, allowed in ((NOW - 1000, True), (NOW - 1001, False)):
        buffer = sample([Record(timestamp=NOW), Record(timestamp=oldest)], codec=Codec.LZ4)
        if allowed:
            validate_client_batch(buffer, rules, NOW)
        else:
            assert refusal(buffer, rules).code is ErrorCode.INVALID_TIMESTAMP


def test_a_missing_key_and_a_wrong_time_give_the_code_of_the_time() -> None:
    records = [Record(timestamp=NOW), Record(timestamp=2 * NOW, key=b"k")]
    error = refusal(sample(records), AppendRules(compacted=True))
    assert isinstance(error, RecordsRejectedError)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert [entry.index for entry in error.record_errors] == [0, 1]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("claimed", [NOW * 2, 1, -1, -(2**63), NOW + 2, 2**63 - 1])
def test_c4_every_batch_gets_its_true_largest_timestamp(claimed: int, codec: Codec) -> None:
    """Retention and lookups by time hang on it. Kafka corrects the header, too."""
    buffer = changed(sample(codec=codec), max_timestamp=claimed)
    result = validate_client_batch(buffer, RULES, NOW)
    assert result.header.max_timestamp == NOW + 3
    assert result.header == parse_header(buffer)
    assert buffer == sample(codec=codec)


def test_log_append_time_is_stamped() -> None:
    rules = AppendRules(timestamp_type=TimestampType.LOG_APPEND_TIME)
    buffer = sample([Record(timestamp=2 * NOW)], codec=Codec.SNAPPY)
    result = validate_client_batch(buffer, rules, NOW)
    assert result.log_append_time_ms == result.header.max_timestamp == NOW
    assert result.header == parse_header(buffer)
    assert verify_crc(buffer, 0, len(buffer))
    assert [record.timestamp for record in read_records(buffer)] == [NOW]


def test_a_client_must_not_claim_log_append_time() -> None:
    stamped = sample()
    set_log_append_time(stamped, 0, NOW)
    rules = AppendRules(timestamp_type=TimestampType.LOG_APPEND_TIME)
    error = refusal(bytearray(stamped), rules)
    assert isinstance(error, RecordsRejectedError)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert [entry.index for entry in error.record_errors] == [0, 1, 2, 3]
    # Under CreateTime a stamp inside the limits is taken and its type put right, as Kafka does.
    result = validate_client_batch(stamped, RULES, NOW)
    assert result.header.timestamp_type is TimestampType.CREATE_TIME
    assert result.header.max_timestamp == NOW
    unset = sample()
    set_log_append_time(unset, 0, -1)
    assert refusal(unset).code is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("target", list(Codec))
@pytest.mark.parametrize("source", list(Codec))
@pytest.mark.parametrize("timestamp_type", list(TimestampType))
def test_a_topic_codec_packs_the_records_anew(
    source: Codec, target: Codec, timestamp_type: TimestampType
) -> None:
    options: dict[str, object] = {
        "codec": source,
        "producer_id": ProducerId(6),
        "producer_epoch": ProducerEpoch(1),
        "base_sequence": 8,
        "is_transactional": True,
    }
    buffer = sample(None, **options)
    before = bytes(buffer)
    rules = AppendRules(codec=target, timestamp_type=timestamp_type)
    result = validate_client_batch(buffer, rules, NOW)
    assert result.is_repacked is (source is not target)
    if result.is_repacked:
        assert buffer == before
    header = result.header
    assert header == parse_header(result.buffer)
    assert header.size_bytes == len(result.buffer)
    assert header.codec is target
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (6, 1, 8)
    assert header.timestamp_type is timestamp_type
    by_append = timestamp_type is TimestampType.LOG_APPEND_TIME
    expected = [
        record._replace(offset=Offset(n), timestamp=NOW if by_append else record.timestamp)
        for n, record in enumerate(RECORDS)
    ]
    assert list(read_records(result.buffer)) == expected
    result.buffer[0:8] = bytes(8)


def test_a_batch_that_grows_too_large_is_refused() -> None:
    buffer = sample(codec=Codec.ZSTD)
    rules = AppendRules(codec=Codec.NONE, max_message_bytes=len(buffer) + 10)
    assert refusal(buffer, rules).code is ErrorCode.MESSAGE_TOO_LARGE
    rules = AppendRules(codec=Codec.NONE, segment_bytes=len(buffer) + 10)
    assert refusal(buffer, rules).code is ErrorCode.RECORD_LIST_TOO_LARGE


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_a_bomb_is_refused(codec: Codec) -> None:
    """With the code that makes Java's producer split the batch, in case that it is none."""
    buffer = sample([Record(timestamp=NOW, key=b"k", value=bytes(1 << 20))], codec=codec)
    for rules in (RULES, AppendRules(compacted=True), AppendRules(codec=Codec.NONE)):
        enough = replace(rules, max_decompressed_bytes=1 << 21, max_message_bytes=1 << 21)
        validate_client_batch(bytearray(buffer), enough, NOW)
        small = replace(enough, max_decompressed_bytes=1 << 20)
        assert refusal(buffer, small).code is ErrorCode.MESSAGE_TOO_LARGE


def test_how_far_a_batch_may_inflate_follows_from_its_largest_size() -> None:
    for largest, limit in ((1, 32 << 20), (10 << 20, 40 << 20), (500 << 20, 128 << 20)):
        rules = AppendRules.for_topic(TopicConfig(max_message_bytes=largest))
        assert rules.max_decompressed_bytes == limit


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("name", [*LIES, *LOOSE_LIES])
def test_c4_what_readers_cannot_read_is_not_taken(name: str, codec: Codec) -> None:
    """A batch under a right checksum stopped every reader of its partition once it was taken."""
    claim = {**LIES, **LOOSE_LIES}[name]
    for rules in (
        RULES,
        AppendRules(compacted=True),
        AppendRules(timestamp_type=TimestampType.LOG_APPEND_TIME),
        AppendRules(codec=Codec.LZ4),
    ):
        assert refusal(bytearray(claim.batch(NOW, codec)), rules).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_c4_what_does_not_decompress_is_not_taken(codec: Codec) -> None:
    for name, packed in broken_streams(codec).items():
        batch = bytearray(batch_of(packed, Claim(b""), NOW, codec))
        assert refusal(batch).code is ErrorCode.INVALID_RECORD, name


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("name", ODDITIES)
def test_what_is_odd_and_can_be_read_is_taken(name: str, codec: Codec) -> None:
    buffer = bytearray(ODDITIES[name].batch(NOW, codec))
    result = validate_client_batch(buffer, RULES, NOW)
    assert result.header.max_timestamp == NOW
    assert len(list(read_records(buffer))) == ODDITIES[name].count


def test_a_refusal_names_a_limited_number_of_records() -> None:
    buffer = sample([Record(timestamp=NOW)] * 1500)
    error = refusal(buffer, AppendRules(compacted=True))
    assert isinstance(error, RecordsRejectedError)
    assert len(error.record_errors) == 1000
    assert error.message.startswith("1500 records were refused")


def test_the_rules_follow_from_the_topic() -> None:
    assert AppendRules.for_topic(TopicConfig()) == RULES
    config = TopicConfig(
        cleanup_policies=frozenset({"compact", "delete"}),
        compression_type="zstd",
        compression_zstd_level=7,
        message_timestamp_type="LogAppendTime",
        message_timestamp_before_max_ms=5,
        message_timestamp_after_max_ms=6,
        max_message_bytes=7,
        segment_bytes=8,
    )
    assert AppendRules.for_topic(config, allow_control=True) == AppendRules(
        compacted=True,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        before_max_ms=5,
        after_max_ms=6,
        max_message_bytes=7,
        segment_bytes=8,
        codec=Codec.ZSTD,
        level=7,
        allow_control=True,
    )
    for name, codec, level in (
        ("uncompressed", Codec.NONE, None),
        ("gzip", Codec.GZIP, -1),
        ("snappy", Codec.SNAPPY, None),
        ("lz4", Codec.LZ4, 9),
    ):
        rules = AppendRules.for_topic(TopicConfig(compression_type=name))
        assert (rules.codec, rules.level) == (codec, level)


@given(
    st.binary(max_size=200),
    st.integers(0, 80),
    st.sampled_from([RULES, AppendRules(compacted=True)]),
)
def test_random_bytes_raise_only_protocol_errors(
    noise: bytes, keep: int, rules: AppendRules
) -> None:
    with pytest.raises(ProtocolError):
        validate_client_batch(bytearray(noise), rules, NOW)
    with pytest.raises(ProtocolError):
        validate_client_batch(sample()[:keep] + noise, rules, NOW)
