"""The compiled walk over produced records beside its twin, on sound, odd and lying batches."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from strandline.records._kernels import compiled
from strandline.records.batch import HEADER_BYTES, parse_header
from strandline.records.builder import build_batch
from strandline.records.codec import Codec
from strandline.records.columns import BuilderLimits, new_builder
from strandline.records.produced_records import (
    look_closely_in_python,
    newest_of,
    newest_of_in_python,
)
from strandline.records.record import Record, read_records
from tests.records.lies import LIES, LOOSE_LIES, ODDITIES, Claim, number

NOW = 1_700_000_000_000
INT64 = 2**63
KERNEL = compiled("produced")
needs_kernel = pytest.mark.skipif(KERNEL is None, reason="the compiled kernels are not built")
ALL = {**LIES, **LOOSE_LIES, **ODDITIES}

timestamps = st.sampled_from([NOW, NOW + 1, NOW - 5000, -1, -2, 0, INT64 - 1, -INT64 + 1])
fields = st.none() | st.binary(max_size=40)
records = st.lists(
    st.builds(
        Record,
        timestamp=timestamps,
        key=fields,
        value=fields,
        headers=st.lists(st.tuples(st.text(max_size=3), fields), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=6,
)
limits = st.sampled_from(
    [(-INT64, INT64 - 1), (NOW - 1000, NOW + 1000), (1, 0), (NOW - INT64 + 1, NOW)]
)
flips = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3)


def damaged(data: bytes, changes: list[tuple[int, int]]) -> bytes:
    out = bytearray(data)
    for at, byte in changes:
        if at < len(out):
            out[at] = byte
    return bytes(out)


@needs_kernel
@given(
    records=records,
    changes=flips,
    cut=st.integers(-3, 3),
    count=st.integers(-1, 1),
    limits=limits,
    wants_keys=st.booleans(),
    stamp=st.none() | timestamps,
    base=st.sampled_from([None, NOW, INT64 - 1, -INT64]),
)
def test_the_kernel_finds_what_its_twin_finds(
    records: list[Record],
    changes: list[tuple[int, int]],
    cut: int,
    count: int,
    limits: tuple[int, int],
    wants_keys: bool,
    stamp: int | None,
    base: int | None,
) -> None:
    assert KERNEL is not None
    try:
        batch = build_batch(records)
        payload = batch[HEADER_BYTES:]
        base_timestamp = parse_header(batch).base_timestamp if base is None else base
    except OverflowError:
        return  # a delta of more than 64 bits cannot be written
    payload = damaged(payload, changes)
    payload = payload[:cut] if cut < 0 else payload + bytes(cut)
    count += len(records)
    both = [
        look(payload, count, base_timestamp, stamp, *limits, wants_keys, 2)
        for look in (KERNEL.look_closely, look_closely_in_python)
    ]
    assert both[0] == both[1]
    whole = b"in front" + payload + b"behind"
    where = 8, 8 + len(payload)
    newest = [
        walk(whole, *where, count, base_timestamp, *limits, wants_keys)
        for walk in (KERNEL.newest_of, newest_of_in_python)
    ]
    assert newest[0] == newest[1]
    malformed, largest, _, without_key, out_of_range = both[0]
    if stamp is None:
        sound = malformed < 0 and not without_key and not out_of_range
        assert newest[0] == (largest if sound else None)


@needs_kernel
@given(payload=st.binary(max_size=120), count=st.integers(-2, 12))
@example(payload=b"\xff" * 80, count=1)
def test_random_bytes_are_walked_alike(payload: bytes, count: int) -> None:
    assert KERNEL is not None
    arguments = payload, count, NOW, None, -INT64, INT64 - 1, False, 3
    assert KERNEL.look_closely(*arguments) == look_closely_in_python(*arguments)


@needs_kernel
@pytest.mark.parametrize("walk", [KERNEL and KERNEL.newest_of, newest_of_in_python])
@pytest.mark.parametrize("where", [(-1, 8), (5, 4), (0, 10_000), (2**40, 2**41)])
def test_what_is_outside_of_the_buffer_is_not_read(walk: object, where: tuple[int, int]) -> None:
    assert callable(walk)
    assert walk(bytes(64), *where, 1, NOW, -INT64, INT64 - 1, False) is None


@pytest.mark.parametrize("name", ALL)
def test_what_is_walked_through_can_be_read(name: str) -> None:
    """By the reader of one record after the other, and by the one that fills columns."""
    claim: Claim = ALL[name]
    batch = claim.batch(NOW)
    header = parse_header(batch)
    is_sound = (
        header.record_count == header.last_offset_delta + 1
        and newest_of(batch, HEADER_BYTES, len(batch), claim.count, NOW, -INT64, NOW, False)
        is not None
    )
    assert is_sound is (name in ODDITIES)
    if is_sound:
        assert [record.offset for record in read_records(batch)] == list(range(claim.count))
        builder = new_builder(BuilderLimits())
        assert builder.take_plain(batch, 0, stops_at_transactions=True) == len(batch)
        assert builder.rows == claim.count


@needs_kernel
def test_every_single_changed_byte_is_judged_alike() -> None:
    assert KERNEL is not None
    source = random.Random(7)
    batch = build_batch(
        [Record(timestamp=NOW + n, key=b"k" * 3, value=b"v" * 5) for n in range(3)]
        + [Record(timestamp=NOW, headers=(("h", None), ("i", b"x")))],
        codec=Codec.NONE,
    )
    payload = batch[HEADER_BYTES:]
    for at in range(len(payload)):
        for byte in {0, 1, 2, 0x7F, 0x80, 0xFF, source.randrange(256)}:
            arguments = damaged(payload, [(at, byte)]), 4, NOW, None, 0, NOW + 9, True, 9
            assert KERNEL.look_closely(*arguments) == look_closely_in_python(*arguments)


def test_refused_records_are_counted_and_some_are_named() -> None:
    batch = build_batch([Record(timestamp=NOW + n % 2) for n in range(10)])
    arguments = batch[HEADER_BYTES:], 10, NOW, None, NOW, NOW, False, 3
    found = (-1, NOW + 1, [(n, False, NOW + 1) for n in (1, 3, 5)], 0, 5)
    assert look_closely_in_python(*arguments) == found
    if KERNEL is not None:
        assert KERNEL.look_closely(*arguments) == found


def test_a_number_is_written_as_records_have_it() -> None:
    assert [number(n) for n in (0, -1, 1, 64)] == [b"\0", b"\1", b"\2", b"\x80\1"]
