"""The compiled look for a record by its time beside its twin, on sound, sparse and odd batches."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import CorruptRecords
from strandline.records._kernels import compiled
from strandline.records.batch import HEADER_BYTES, BatchHeader, parse_header
from strandline.records.builder import build_batch, rebuild_batch
from strandline.records.record import Record, read_records
from strandline.records.time_lookup import first_at_least_in_python
from strandline.types import Offset
from tests.records.lies import LIES, LOOSE_LIES, ODDITIES

NOW = 1_700_000_000_000
INT64 = 2**63
KERNEL = compiled("produced")
KINDS = (
    [first_at_least_in_python]
    if KERNEL is None
    else [
        first_at_least_in_python,
        KERNEL.first_at_least,
    ]
)

timestamps = st.sampled_from([NOW, NOW + 1, NOW + 2, NOW - 5000, -1, 0, INT64 - 1, -INT64 + 1])
records = st.lists(
    st.builds(
        Record,
        timestamp=timestamps,
        key=st.none() | st.binary(max_size=4),
        headers=st.lists(st.tuples(st.text(max_size=3), st.none()), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=8,
)
flips = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=2)


def found_by_all(header: BatchHeader, payload: bytes, timestamp: int, offset: int) -> list[Any]:
    """What each kind finds; the error if it refuses."""
    found: list[Any] = []
    for look in KINDS:
        try:
            found.append(look(header, payload, timestamp, offset))
        except CorruptRecords:
            found.append(CorruptRecords)
    return found


@given(
    made=records,
    kept=st.lists(st.booleans(), min_size=8, max_size=8),
    changes=flips,
    stamp=st.none() | timestamps,
    wanted=timestamps,
    base=st.integers(0, 2**40),
    ahead=st.integers(-2, 9),
)
def test_the_kernel_finds_what_its_twin_finds(
    made: list[Record],
    kept: list[bool],
    changes: list[tuple[int, int]],
    stamp: int | None,
    wanted: int,
    base: int,
    ahead: int,
) -> None:
    try:
        batch = build_batch(made, base_offset=Offset(base), log_append_time_ms=stamp)
    except OverflowError:
        return  # a delta of more than 64 bits cannot be written
    try:
        whole = list(read_records(batch))
    except CorruptRecords:
        return
    survivors = [record for record, stays in zip(whole, kept, strict=False) if stays]
    batch = rebuild_batch(parse_header(batch), survivors)
    header, payload = parse_header(batch), batch[HEADER_BYTES:]
    there = (r for r in survivors if r.timestamp >= wanted and r.offset >= base + ahead)
    first = next(((r.offset, r.timestamp) for r in there), None)
    assert found_by_all(header, payload, wanted, base + ahead) == [first] * len(KINDS)
    damaged = bytearray(payload)
    for at, byte in changes:
        if at < len(damaged):
            damaged[at] = byte
    found = found_by_all(header, bytes(damaged), wanted, base + ahead)
    assert found == [found[0]] * len(KINDS)


@pytest.mark.parametrize("name", [*LIES, *LOOSE_LIES, *ODDITIES])
@pytest.mark.parametrize("wanted", [NOW, INT64 - 1])
def test_batches_that_lie_are_read_alike(name: str, wanted: int) -> None:
    batch = {**LIES, **LOOSE_LIES, **ODDITIES}[name].batch(NOW)
    found = found_by_all(parse_header(batch), batch[HEADER_BYTES:], wanted, 0)
    assert found == [found[0]] * len(KINDS)


@given(payload=st.binary(max_size=80), count=st.integers(-2, 8))
def test_random_bytes_are_read_alike(payload: bytes, count: int) -> None:
    header = parse_header(build_batch([Record(timestamp=NOW)] * 3))._replace(record_count=count)
    found = found_by_all(header, payload, NOW, 1)
    assert found == [found[0]] * len(KINDS)
