"""The compiled look at a produce request like an earlier one, beside its twin."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from strandline.records._kernels import compiled
from strandline.records.batch import (
    HEADER,
    HEADER_BYTES,
    TRANSACTIONAL_BIT,
    parse_header,
    set_crc,
)
from strandline.records.builder import build_batch
from strandline.records.codec import Codec
from strandline.records.plain_produce import (
    PlainProduce,
    plain_produce,
    plain_produce_in_python,
)
from strandline.records.record import Record
from strandline.types import ProducerEpoch, ProducerId
from tests.records.lies import LIES, LOOSE_LIES, ODDITIES

NOW: Final = 1_700_000_000_000
INT64: Final = 2**63
CONSTANT: Final = b"\0\0\0\x09client and partition"
CORRELATION: Final = -7
ALL: Final = {**LIES, **LOOSE_LIES, **ODDITIES}
KERNEL = compiled("produced")
needs_kernel = pytest.mark.skipif(KERNEL is None, reason="the compiled kernels are not built")
LOOKS: Final[list[Callable[..., PlainProduce | None]]] = [
    plain_produce_in_python,
    *([] if KERNEL is None else [KERNEL.plain_produce]),
]
rules = st.tuples(
    st.sampled_from([NOW, NOW + 10_000, 0, -5, INT64 - 1]),
    st.sampled_from([0, 1000, INT64 - 1]),
    st.sampled_from([0, 1000, 3_600_000, INT64 - 1]),
    st.booleans(),
)


def compact(value: int, least: int = 1) -> bytes:
    """An unsigned number, in at least so many bytes."""
    out = bytearray()
    while value > 0x7F or len(out) < least - 1:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def frame_of(
    batch: bytes, *, is_compact: bool = True, length: bytes | None = None, tags: bytes = bytes(3)
) -> memoryview:
    """A request around a batch."""
    if length is None:
        size = len(batch)
        length = compact(size + 1) if is_compact else size.to_bytes(4, "big")
    head = CONSTANT[:4] + CORRELATION.to_bytes(4, "big", signed=True) + CONSTANT[4:]
    return memoryview(bytearray(head + length + batch + (tags if is_compact else b"")))


def look_at(
    frame: memoryview,
    *more: object,
    is_compact: bool = True,
    bytes_max: int = 1 << 20,
    constant: bytes = CONSTANT,
    flags: int = 0,
) -> PlainProduce | None:
    """What all looks agree about; `more`: the time, and what is allowed."""
    before = bytes(frame)
    limits = more or (NOW, INT64 - 1, 3_600_000, False)
    found = [look(frame, constant, is_compact, bytes_max, *limits, flags) for look in LOOKS]
    assert bytes(frame) == before
    assert all(each == found[0] for each in found)
    return found[0]


def batch_of(count: int = 1, value: bytes = b"v" * 100, codec: Codec = Codec.NONE) -> bytes:
    records = [Record(timestamp=NOW + n, key=b"k", value=value) for n in range(count)]
    return bytes(build_batch(records, codec=codec))


@pytest.mark.parametrize("is_compact", [True, False])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("size", [0, 100, 1000, 5000, 100_000])
def test_a_plain_request_is_taken_apart(is_compact: bool, codec: Codec, size: int) -> None:
    batch = batch_of(3, bytes(size), codec)
    frame = frame_of(batch, is_compact=is_compact)
    found = look_at(frame, is_compact=is_compact)
    assert found is not None
    correlation_id, start, end, header = found
    assert correlation_id == CORRELATION
    assert frame[start:end] == batch
    assert header == parse_header(batch)
    assert plain_produce(frame, CONSTANT, is_compact, len(batch), NOW, 0, 10, True, 0) == look_at(
        frame, NOW, 0, 10, True, is_compact=is_compact, bytes_max=len(batch)
    )
    assert look_at(frame, is_compact=is_compact, bytes_max=len(batch) - 1) is None


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_batch_has_the_flags_that_are_wanted_and_no_others(codec: Codec) -> None:
    record = Record(timestamp=NOW, key=b"k", value=b"v" * 100)
    of_a_transaction = bytes(
        build_batch(
            [record],
            codec=codec,
            producer_id=ProducerId(7),
            producer_epoch=ProducerEpoch(0),
            base_sequence=0,
            is_transactional=True,
        )
    )
    found = look_at(frame_of(of_a_transaction), flags=TRANSACTIONAL_BIT)
    assert found is not None
    assert found[3] == parse_header(of_a_transaction)
    assert look_at(frame_of(of_a_transaction)) is None
    assert look_at(frame_of(batch_of(codec=codec)), flags=TRANSACTIONAL_BIT) is None
    # The newest time of the records is held against the header's.
    for flags, batch in ((0, batch_of(codec=codec)), (TRANSACTIONAL_BIT, of_a_transaction)):
        lying = bytearray(batch)
        lying[35:43] = (NOW - 1).to_bytes(8, "big")
        set_crc(lying, 0, len(lying))
        is_taken = look_at(frame_of(bytes(lying)), flags=flags) is not None
        assert is_taken is (codec is not Codec.NONE), "compressed records are left to the caller"


def test_the_length_may_be_written_in_more_bytes_than_it_needs() -> None:
    batch = batch_of()
    for least in range(1, 6):
        assert look_at(frame_of(batch, length=compact(len(batch) + 1, least))) is not None
    assert look_at(frame_of(batch, length=compact(len(batch) + 1, 6))) is None


@pytest.mark.parametrize(
    "length", [0, 1, HEADER_BYTES + 1, 170, 171, 173, 2**31 - 1, 2**32, 2**35 - 1]
)
def test_a_length_that_is_none(length: int) -> None:
    batch = batch_of()
    assert len(batch) + 1 == 172  # which is written as one more
    assert look_at(frame_of(batch, length=compact(length))) is None
    fixed = (length - 1).to_bytes(8, "big", signed=True)[4:]
    assert look_at(frame_of(batch, is_compact=False, length=fixed), is_compact=False) is None


@pytest.mark.parametrize("tags", [b"", b"\0\0", bytes(4), b"\1\0\0", b"\0\1\0", b"\0\0\1"])
def test_something_else_behind_the_records(tags: bytes) -> None:
    assert look_at(frame_of(batch_of(), tags=tags)) is None


def test_every_other_constant_byte_counts_and_the_correlation_id_does_not() -> None:
    for at in range(len(CONSTANT) + 4):
        frame = frame_of(batch_of())
        frame[at] ^= 1
        assert (look_at(frame) is not None) is (4 <= at < 8)


@pytest.mark.parametrize(
    "constant", [b"", b"\0", CONSTANT[:3], CONSTANT[:4], CONSTANT + bytes(500)]
)
def test_constant_bytes_that_are_not_those_of_the_frame(constant: bytes) -> None:
    assert look_at(frame_of(batch_of()), constant=constant) is None


def test_a_frame_that_is_cut_off_is_not_read_beyond_its_end() -> None:
    frame = frame_of(batch_of())
    for size in range(len(frame)):
        assert look_at(frame[:size]) is None


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_claims(name: str, codec: Codec) -> None:
    batch = ALL[name].batch(NOW, codec)
    found = look_at(frame_of(batch))
    if codec is Codec.NONE:
        is_true = name in ODDITIES and parse_header(batch).max_timestamp == NOW
        assert (found is not None) is is_true


FIELDS: Final = {
    "base_offset": [0, 1, -1, 2**40],
    "leader_epoch": [-1, 0, 7],
    "magic": [2, 1, 0, 3, -1],
    "attributes": [0, 1, 4, 5, 7, 8, 16, 32, 64, 256, -1],
    "last_offset_delta": [0, 1, 2, 3, -1, 2**31 - 1, -(2**31)],
    "max_timestamp": [NOW, NOW + 2, -1],
    "producer_id": [-1, 0, 5, 2**40],
    "producer_epoch": [-1, 0, 3, -(2**15), 2**15 - 1],
    "base_sequence": [-1, 0, 9, 2**31 - 1],
    "record_count": [0, 1, 2, 3, 4, -1, 2**31 - 1, -(2**31)],
}


@given(
    changed=st.dictionaries(st.sampled_from([*FIELDS]), st.integers(0, 10), max_size=3),
    flips=st.lists(st.tuples(st.integers(0, 600), st.integers(0, 255)), max_size=2),
    has_right_crc=st.booleans(),
    count=st.sampled_from([1, 3]),
    size=st.sampled_from([0, 20, 100, 3000]),
    is_compact=st.booleans(),
    bytes_max=st.sampled_from([1 << 20, 200]),
    limits=rules,
)
@example({}, [], True, 1, 20, True, 1 << 20, (NOW, 0, 0, True))
def test_whatever_comes_the_kernel_finds_what_its_twin_finds(
    changed: dict[str, int],
    flips: list[tuple[int, int]],
    has_right_crc: bool,
    count: int,
    size: int,
    is_compact: bool,
    bytes_max: int,
    limits: tuple[int, int, int, bool],
) -> None:
    batch = bytearray(batch_of(count, bytes(size)))
    header = parse_header(batch)
    values = {name: FIELDS[name][n % len(FIELDS[name])] for name, n in changed.items()}
    HEADER.pack_into(batch, 0, *header._replace(**values))  # type: ignore[arg-type]
    for at, byte in flips:
        batch[at % len(batch)] = byte
    if has_right_crc:
        set_crc(batch, 0, len(batch))
    found = look_at(
        frame_of(bytes(batch), is_compact=is_compact),
        *limits,
        is_compact=is_compact,
        bytes_max=bytes_max,
    )
    if found is not None:
        assert found[3] == parse_header(batch)
        assert found[3][0] == 0


@needs_kernel
def test_every_single_changed_byte_is_judged_alike() -> None:
    source = random.Random(11)
    batch = batch_of(2, b"v" * 4)
    whole = bytes(frame_of(batch))
    for at in range(len(whole)):
        for byte in {0, 1, 2, 0x7F, 0x80, 0xFF, source.randrange(256)}:
            changed = memoryview(bytearray(whole))
            changed[at] = byte
            look_at(changed)
            start = len(whole) - 3 - len(batch)
            set_crc(changed[start:-3], 0, len(batch))
            look_at(changed)
