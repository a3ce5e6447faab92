"""The codecs: round trips, the shapes that other clients write, limits, and damage."""

from __future__ import annotations

import gzip
import random
import tracemalloc
import zlib

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import CorruptRecords
from strandline.records.compression import DEFAULT_LEVELS, Codec, compress, decompress
from strandline.records.lz4_frame import _xxh32_short
from tests.alone import run_alone

PACKING = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
LEVELS = [
    *[(Codec.GZIP, level) for level in (-1, 1, 9)],
    *[(Codec.LZ4, level) for level in (1, 9, 10, 12, 17)],
    *[(Codec.ZSTD, level) for level in (-131072, -1, 1, 3, 19, 22)],
]
# Pieces that repeat and pieces that do not, across the block sizes of 32, 64 and 128 KiB.
MIXED = b"".join(bytes([n % 256]) * 3000 + random.Random(n).randbytes(2000) for n in range(60))


@pytest.mark.parametrize("codec", list(Codec))
@given(data=st.binary(max_size=2000))
def test_every_codec_round_trips(codec: Codec, data: bytes) -> None:
    packed = compress(codec, data)
    assert decompress(codec, packed, len(data)) == data
    assert decompress(codec, memoryview(bytearray(packed)), len(data)) == data


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("size", [0, 1, 32767, 32768, 32769, 65536, 65537, 131072, 300_000])
def test_block_boundaries_round_trip(codec: Codec, size: int) -> None:
    data = MIXED[:size]
    assert decompress(codec, compress(codec, bytearray(data)), size) == data


@pytest.mark.parametrize(("codec", "level"), LEVELS)
def test_every_level_round_trips(codec: Codec, level: int) -> None:
    assert decompress(codec, compress(codec, MIXED, level), len(MIXED)) == MIXED


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_higher_level_packs_tighter(codec: Codec) -> None:
    text = b" ".join(b"%d" % (n * n % 9973) for n in range(20_000)) + random.Random(1).randbytes(
        70_000
    )
    best = {Codec.GZIP: 9, Codec.LZ4: 12, Codec.ZSTD: 19}[codec]
    fast = {Codec.GZIP: 1, Codec.LZ4: 9, Codec.ZSTD: -5}[codec]
    assert len(compress(codec, text, best)) < len(compress(codec, text, fast))
    assert compress(codec, text) == compress(codec, text, DEFAULT_LEVELS[codec])


@pytest.mark.parametrize("codec", list(Codec))
def test_one_byte_above_the_limit_is_refused(codec: Codec) -> None:
    packed = compress(codec, MIXED)
    assert decompress(codec, packed, len(MIXED)) == MIXED
    with pytest.raises(CorruptRecords):
        decompress(codec, packed, len(MIXED) - 1)


def bombs() -> dict[str, tuple[Codec, bytes]]:
    zeros = bytes(64 * 1024 * 1024)
    rle_block = ((128 * 1024) << 3 | 1 << 1).to_bytes(3, "little") + b"\x00"
    rle_frame = bytes.fromhex("28b52ffd 00 58") + rle_block * 2000 + b"\x01\x00\x00"
    liar = bytes.fromhex("28b52ffd e0") + (2**62).to_bytes(8, "little") + b"\x01\x00\x00"
    return {
        "gzip": (Codec.GZIP, compress(Codec.GZIP, zeros)),
        "lz4": (Codec.LZ4, compress(Codec.LZ4, zeros)),
        "snappy framed": (Codec.SNAPPY, compress(Codec.SNAPPY, zeros)),
        "snappy raw": (Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(zeros))),
        "snappy lie": (Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"a" * 20),
        "zstd": (Codec.ZSTD, compress(Codec.ZSTD, zeros)),
        "zstd rle": (Codec.ZSTD, rle_frame),
        "zstd lie": (Codec.ZSTD, liar),
    }


def test_bombs_are_refused_within_the_limit() -> None:
    run_alone(open_the_bombs)


def open_the_bombs() -> None:
    limit = 1 << 20
    for name, (codec, packed) in bombs().items():
        tracemalloc.start()
        try:
            with pytest.raises(CorruptRecords):
                decompress(codec, packed, limit)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 3 * limit, f"{name} allocated {peak} bytes"


def test_many_gzip_members_are_read_but_not_without_end() -> None:
    members = [gzip.compress(b"%d," % n) for n in range(64)]
    assert decompress(Codec.GZIP, b"".join(members), 1000).startswith(b"0,1,2,")
    with pytest.raises(CorruptRecords, match="members"):
        decompress(Codec.GZIP, b"".join(members) + members[0], 1000)


@pytest.mark.parametrize("codec", PACKING)
def test_every_cut_is_refused(codec: Codec) -> None:
    packed = compress(codec, b"abcdefgh" * 40 + bytes(range(256)))
    for end in range(len(packed)):
        if codec is Codec.SNAPPY and end == 16:
            # Its framing has no end mark: a cut between chunks leaves a shorter, valid stream.
            assert decompress(codec, packed[:end], 1000) == b""
            continue
        with pytest.raises(CorruptRecords):
            decompress(codec, packed[:end], 1000)


@pytest.mark.parametrize("codec", PACKING)
def test_trailing_bytes_are_refused(codec: Codec) -> None:
    packed = compress(codec, b"abcdefgh" * 40)
    for tail in (b"\x00", b"\x00\x00", b"garbage", b"\xff" * 9):
        with pytest.raises(CorruptRecords):
            decompress(codec, packed + tail, 1000)


@pytest.mark.parametrize("codec", PACKING)
@given(st.binary(max_size=200), st.integers(0, 40))
def test_random_bytes_raise_only_corrupt_records(codec: Codec, noise: bytes, keep: int) -> None:
    packed = compress(codec, b"some text, some more text" * 4)
    for data in (noise, packed[:keep] + noise):
        try:
            assert len(decompress(codec, data, 5000)) <= 5000
        except CorruptRecords:
            continue


@pytest.mark.parametrize("codec", PACKING)
def test_every_flipped_byte_raises_only_corrupt_records(codec: Codec) -> None:
    data = b"some text, some more text" * 20
    packed = bytearray(compress(codec, data))
    for at in range(len(packed)):
        for mask in (0x01, 0x80, 0xFF):
            packed[at] ^= mask
            try:
                assert len(decompress(codec, packed, 5000)) <= 5000
            except CorruptRecords:
                pass
            finally:
                packed[at] ^= mask
    assert decompress(codec, packed, 5000) == data


def test_lz4_frames_look_like_java_wrote_them() -> None:
    packed = compress(Codec.LZ4, MIXED)
    assert packed[:7].hex() == "04224d18604082", "version 1, independent blocks of 64 KiB"
    assert packed[-4:] == bytes(4)
    assert bytes(cramjam.lz4.decompress(packed)) == MIXED
    assert compress(Codec.LZ4, b"").hex() == "04224d1860408200000000"


def test_lz4_frames_with_checksums_and_content_size_are_read() -> None:
    block = bytes(cramjam.lz4.compress_block(b"a" * 100, store_size=False))
    descriptor = b"\x7c\x70" + (100).to_bytes(8, "little")
    checksum = bytes([_xxh32_short(memoryview(descriptor)) >> 8 & 0xFF])
    body = len(block).to_bytes(4, "little") + block + b"sums" + bytes(4) + b"sum2"
    frame = b"\x04\x22\x4d\x18" + descriptor + checksum + body
    assert decompress(Codec.LZ4, frame, 100) == b"a" * 100


def test_lz4_frames_of_the_library_are_read() -> None:
    compressor = cramjam.lz4.Compressor(level=1, content_checksum=True, block_linked=False)
    compressor.compress(MIXED)
    assert decompress(Codec.LZ4, bytes(compressor.finish()), len(MIXED)) == MIXED


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ("05224d18604082", "not an LZ4 frame"),
        ("04224d18404082", "depend"),
        ("04224d18a04082", "flags"),
        ("04224d18614082", "flags"),
        ("04224d18624082", "flags"),
        ("04224d18603082", "descriptor"),
        ("04224d18604182", "descriptor"),
        ("04224d18604083", "checksum"),
    ],
)
def test_other_lz4_frames_are_refused(header: str, reason: str) -> None:
    with pytest.raises(CorruptRecords, match=reason):
        decompress(Codec.LZ4, bytes.fromhex(header) + bytes(4), 10)


@pytest.mark.parametrize(
    ("data", "expected"),
    [(b"", 0x02CC5D05), (b"a", 0x550D7456), (b"abc", 0x32D153FF)],
)
def test_the_descriptor_hash_matches_known_values(data: bytes, expected: int) -> None:
    assert _xxh32_short(memoryview(data)) == expected


def test_snappy_is_written_framed_and_read_in_both_shapes() -> None:
    packed = compress(Codec.SNAPPY, MIXED)
    assert packed[:16].hex() == "82534e415050590000000001" + "00000001"
    assert decompress(Codec.SNAPPY, packed, len(MIXED)) == MIXED
    raw = bytes(cramjam.snappy.compress_raw(MIXED))
    assert decompress(Codec.SNAPPY, raw, len(MIXED)) == MIXED


def test_zstd_streams_without_a_content_size_and_skippable_frames_are_read() -> None:
    compressor = cramjam.zstd.Compressor(level=3)
    compressor.compress(MIXED)
    streamed = bytes(compressor.finish())
    assert streamed[4] >> 6 == 0, "no content size"
    assert decompress(Codec.ZSTD, streamed, len(MIXED)) == MIXED
    skippable = bytes.fromhex("5a2a4d18 03000000 616263")
    assert decompress(Codec.ZSTD, skippable + streamed, len(MIXED)) == MIXED
    two = streamed + compress(Codec.ZSTD, b"end")
    assert decompress(Codec.ZSTD, two, len(MIXED) + 3) == MIXED + b"end"


def test_gzip_is_what_the_standard_tools_read() -> None:
    assert gzip.decompress(compress(Codec.GZIP, MIXED)) == MIXED
    with pytest.raises(CorruptRecords, match="damaged"):
        decompress(Codec.GZIP, zlib.compress(MIXED), len(MIXED))
