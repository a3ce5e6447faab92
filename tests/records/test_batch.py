"""The batch header: reading, the checksum, patching in place, walking over several batches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import CorruptRecords
from strandline.records.batch import (
    ATTRIBUTES_AT,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD,
    OFFSET_LENGTH_EPOCH,
    BatchHeader,
    TimestampType,
    iterate_headers,
    parse_header,
    sequence_after,
    set_crc,
    set_log_append_time,
    set_max_timestamp,
    verify_crc,
)
from strandline.records.builder import build_batch
from strandline.records.codec import Codec
from strandline.records.record import Record, read_records
from strandline.types import LeaderEpoch, Offset, ProducerEpoch, ProducerId

RECORDS = [Record(timestamp=1000 + n, key=b"k%d" % n, value=b"v" * n) for n in range(5)]


def sample(**options: object) -> bytearray:
    return bytearray(build_batch(RECORDS, **options))  # type: ignore[arg-type]


def test_the_header_of_a_known_batch() -> None:
    batch = sample(
        base_offset=Offset(70),
        leader_epoch=LeaderEpoch(4),
        codec=Codec.ZSTD,
        producer_id=ProducerId(9),
        producer_epoch=ProducerEpoch(2),
        base_sequence=2**31 - 3,
        is_transactional=True,
    )
    header = parse_header(batch)
    assert header[:4] == (70, len(batch) - 12, 4, 2)
    assert header[5:] == (0x14, 4, 1000, 1004, 9, 2, 2**31 - 3, 5)
    assert header.size_bytes == len(batch)
    assert (header.last_offset, header.next_offset) == (74, 75)
    assert header.last_sequence == 1, "sequence numbers wrap from 2^31 - 1 to 0"
    assert header.codec is Codec.ZSTD
    assert header.is_compressed
    assert header.is_transactional
    assert not header.is_control
    assert header.has_producer
    assert header.timestamp_type is TimestampType.CREATE_TIME
    assert header.delete_horizon_ms is None


def test_a_batch_without_producer_has_no_sequence() -> None:
    header = parse_header(sample())
    assert not header.has_producer
    assert header.last_sequence == -1


def test_the_delete_horizon_is_the_base_timestamp() -> None:
    header = parse_header(sample())._replace(attributes=0x40)
    assert header.delete_horizon_ms == 1000


@pytest.mark.parametrize("number", [5, 6, 7])
def test_an_unknown_codec_is_refused(number: int) -> None:
    with pytest.raises(CorruptRecords, match=str(number)):
        _ = parse_header(sample())._replace(attributes=number).codec


@given(
    st.tuples(
        st.integers(-(2**63), 2**63 - 1),
        st.integers(49, 2**31 - 1),
        st.integers(-(2**31), 2**31 - 1),
        st.just(2),
        st.integers(0, 2**32 - 1),
        st.integers(-(2**15), 2**15 - 1),
        *[st.integers(-(2**31), 2**31 - 1)],
        *[st.integers(-(2**63), 2**63 - 1)] * 3,
        st.integers(-(2**15), 2**15 - 1),
        *[st.integers(-(2**31), 2**31 - 1)] * 2,
    ),
    st.integers(0, 9),
)
def test_every_header_round_trips(fields: tuple[int, ...], position: int) -> None:
    buffer = bytearray(position + HEADER_BYTES + 3)
    HEADER.pack_into(buffer, position, *fields)
    assert parse_header(buffer, position) == fields
    assert parse_header(memoryview(bytes(buffer)), position) == fields
    assert BatchHeader._make(fields)._fields[0] == "base_offset"


def test_a_header_that_cannot_be_is_refused() -> None:
    batch = sample()
    for size in range(HEADER_BYTES):
        with pytest.raises(CorruptRecords, match="61 bytes"):
            parse_header(batch[:size])
    with pytest.raises(CorruptRecords, match="61 bytes"):
        parse_header(batch, -1)
    for magic in (0, 1, 3, 255):
        with pytest.raises(CorruptRecords, match="magic"):
            parse_header(batch[:16] + bytes([magic]) + batch[17:])
    for length in (-1, 0, 48):
        with pytest.raises(CorruptRecords, match="length"):
            parse_header(batch[:8] + length.to_bytes(4, "big", signed=True) + batch[12:])


@pytest.mark.parametrize("codec", list(Codec))
def test_no_flipped_bit_under_the_checksum_goes_unnoticed(codec: Codec) -> None:
    batch = sample(codec=codec)
    assert verify_crc(batch, 0, len(batch))
    for at in range(17, len(batch)):
        for bit in range(8):
            batch[at] ^= 1 << bit
            assert not verify_crc(batch, 0, len(batch)), f"bit {bit} of byte {at}"
            batch[at] ^= 1 << bit
    for at in range(17, len(batch)):
        batch[at] ^= 0xFF
        with pytest.raises(CorruptRecords):
            list(read_records(batch))
        batch[at] ^= 0xFF


def test_a_flipped_length_or_magic_is_noticed() -> None:
    batch = sample()
    for at in (8, 9, 10, 11, 16):
        for bit in range(8):
            batch[at] ^= 1 << bit
            with pytest.raises(CorruptRecords):
                list(read_records(batch))
            batch[at] ^= 1 << bit
    assert len(list(read_records(batch))) == 5


def test_the_checksum_of_a_batch_that_is_not_all_there_does_not_match() -> None:
    batch = sample()
    assert not verify_crc(batch, 0, len(batch) + 1)
    assert not verify_crc(batch[:-1], 0, len(batch))
    assert not verify_crc(batch, 0, HEADER_BYTES - 1)
    assert not verify_crc(batch, -1, len(batch))
    with pytest.raises(CorruptRecords, match="not whole"):
        set_crc(batch, 0, len(batch) + 1)


def test_offset_and_epoch_are_patched_without_breaking_the_checksum() -> None:
    plain = sample()
    buffer = bytearray(b"xyz" + plain + b"tail")
    OFFSET_LENGTH_EPOCH.pack_into(buffer, 3, 2**40, len(plain) - LOG_OVERHEAD, 77)
    header = parse_header(buffer, 3)
    assert (header.base_offset, header.leader_epoch) == (2**40, 77)
    assert verify_crc(buffer, 3, len(plain))
    assert buffer[:3] == b"xyz"
    assert buffer[3 + len(plain) :] == b"tail"
    assert buffer[3 + 16 : 3 + len(plain)] == plain[16:]


def test_log_append_time_is_stamped_under_a_new_checksum() -> None:
    batch = sample(codec=Codec.LZ4, is_transactional=True)
    old = parse_header(batch)
    assert set_log_append_time(batch, 0, 5_000)
    header = parse_header(batch)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header.max_timestamp == 5_000
    assert header.crc != old.crc
    assert header.attributes == old.attributes | 0x08
    assert [record.timestamp for record in read_records(batch)] == [5_000] * 5
    assert set_max_timestamp(batch, 0, TimestampType.CREATE_TIME, 1004)
    assert parse_header(batch) == old, "the way back gives the same bytes"


def test_an_unchanged_stamp_changes_nothing() -> None:
    batch = sample()
    before = bytes(batch)
    assert not set_max_timestamp(batch, 0, TimestampType.CREATE_TIME, 1004)
    assert batch == before


def test_unused_attribute_bits_survive_a_stamp() -> None:
    batch = sample()
    batch[ATTRIBUTES_AT] = 0x80
    set_crc(batch, 0, len(batch))
    set_log_append_time(batch, 0, 1)
    assert batch[ATTRIBUTES_AT] == 0x80
    assert list(read_records(batch))


def test_headers_are_walked_up_to_a_cut_off_batch() -> None:
    sizes = [len(sample(base_offset=Offset(n))) for n in (0, 5, 10)]
    buffer = b"".join(bytes(sample(base_offset=Offset(n))) for n in (0, 5, 10))
    for end in range(len(buffer) + 1):
        whole = 0 if end < sizes[0] else end // sizes[0]
        found = [(at, header.base_offset) for at, header in iterate_headers(buffer, 0, end)]
        assert found == [(n * sizes[0], 5 * n) for n in range(whole)]
    assert [header.base_offset for _, header in iterate_headers(buffer, sizes[0])] == [5, 10]


def test_walking_into_garbage_raises() -> None:
    with pytest.raises(CorruptRecords):
        list(iterate_headers(bytes(sample()) + bytes(HEADER_BYTES)))


@given(st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1))
def test_sequences_wrap_to_zero(sequence: int, increment: int) -> None:
    assert sequence_after(sequence, increment) == (sequence + increment) % 2**31
