"""Zig-zag varints: known bytes, round trips, and everything a reader must refuse."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import CorruptRecords
from strandline.records.varint import read_varint, read_varlong, varint_size, write_varint

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


def written(value: int) -> bytes:
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-65, "8101"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
        (2**63 - 1, "feffffffffffffffff01"),
        (-(2**63), "ffffffffffffffffff01"),
    ],
)
def test_known_encodings(value: int, expected: str) -> None:
    assert written(value).hex() == expected


@given(INT32, st.binary(max_size=3), st.binary(max_size=3))
def test_a_varint_round_trips_in_place(value: int, before: bytes, after: bytes) -> None:
    data = written(value)
    whole = before + data + after
    end = len(before) + len(data)
    assert read_varint(whole, len(before), len(whole)) == (value, end)
    assert len(data) == varint_size(value)


@given(INT64)
def test_a_varlong_round_trips(value: int) -> None:
    data = written(value)
    assert read_varlong(data, 0, len(data)) == (value, len(data))
    assert len(data) == varint_size(value)


@given(INT64)
def test_every_cut_off_number_is_refused(value: int) -> None:
    data = written(value)
    for end in range(len(data)):
        with pytest.raises(CorruptRecords, match="past the end"):
            read_varlong(data, 0, end)


@pytest.mark.parametrize("data", ["ffffffff1f", "ffffffffff00", "8080808080808000"])
def test_a_varint_wider_than_32_bits_is_refused(data: str) -> None:
    raw = bytes.fromhex(data)
    with pytest.raises(CorruptRecords, match="32 bits"):
        read_varint(raw, 0, len(raw))


@pytest.mark.parametrize("data", ["ffffffffffffffffff03", "ffffffffffffffffffff00"])
def test_a_varlong_wider_than_64_bits_is_refused(data: str) -> None:
    raw = bytes.fromhex(data)
    with pytest.raises(CorruptRecords, match="64 bits"):
        read_varlong(raw, 0, len(raw))
